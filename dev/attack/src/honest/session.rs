//! Protocol state of an honest proxy, without IO: it subscribes to all clusters and listeners, the load
//! assignments of the clusters, and the routes of the listeners; it acknowledges every response.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use pilotfish_proto::ResourceType;
use pilotfish_proto::envoy::config::cluster::v3::{Cluster, cluster};
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_proto::envoy::config::endpoint::v3::ClusterLoadAssignment;
use pilotfish_proto::envoy::config::listener::v3::{Listener, filter};
use pilotfish_proto::envoy::config::route::v3::RouteConfiguration;
use pilotfish_proto::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, http_connection_manager::RouteSpecifier,
};
use pilotfish_proto::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use prost::Message;

/// xDS variant of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Delta,
    StateOfTheWorld,
}

/// Subscription of a proxy to one type, and its resources.
#[derive(Default)]
struct Watch {
    answered: bool,
    wanted: BTreeSet<String>,
    has: BTreeSet<String>,
    /// References of each of its resources.
    refers: BTreeMap<String, BTreeSet<String>>,
    /// Version of the last response, for state-of-the-world requests.
    version: String,
    nonce: String,
}

/// Protocol state, as described in the module.
pub(crate) struct Session {
    form: Form,
    node: Node,
    watches: BTreeMap<&'static str, Watch>,
}

const CLUSTERS: ResourceType = ResourceType::Cluster;
const LISTENERS: ResourceType = ResourceType::Listener;
/// Types with references, and the referenced types.
const FOLLOWED: [(ResourceType, ResourceType); 2] =
    [(CLUSTERS, ResourceType::Endpoint), (LISTENERS, ResourceType::Route)];

impl Session {
    /// Creates a proxy without resources.
    pub(crate) fn new(form: Form, node: Node) -> Self {
        Self { form, node, watches: BTreeMap::new() }
    }

    pub(crate) fn start(&mut self) -> Vec<Bytes> {
        let first = [CLUSTERS, LISTENERS].map(|ty| {
            self.watches.insert(ty.type_url(), Watch::default());
            let node = (ty == CLUSTERS).then(|| self.node.clone());
            let type_url = ty.type_url().to_owned();
            Bytes::from(match self.form {
                Form::Delta => DeltaDiscoveryRequest { node, type_url, ..Default::default() }.encode_to_vec(),
                Form::StateOfTheWorld => {
                    DiscoveryRequest { node, type_url, ..Default::default() }.encode_to_vec()
                }
            })
        });
        first.to_vec()
    }

    /// True if it has all subscribed resources.
    pub(crate) fn synced(&self) -> bool {
        let has_all = |watch: &Watch| watch.answered && watch.wanted.is_subset(&watch.has);
        self.watches.contains_key(ResourceType::Endpoint.type_url()) && self.watches.values().all(has_all)
    }

    /// Missing resources, for messages.
    pub(crate) fn missing(&self) -> String {
        let part = |(url, watch): (&&str, &Watch)| {
            let missing = watch.wanted.difference(&watch.has).count();
            let short = ResourceType::from_type_url(url).map_or("?", ResourceType::short);
            (missing > 0 || !watch.answered).then(|| format!("{missing} of {short}"))
        };
        self.watches.iter().filter_map(part).collect::<Vec<_>>().join(", ")
    }

    /// Handles a response and returns the resulting requests.
    pub(crate) fn response(&mut self, message: Bytes) -> Result<Vec<Bytes>> {
        let type_url;
        let mut resources = Vec::new();
        let (mut removed, mut version) = (Vec::new(), String::new());
        let nonce;
        match self.form {
            Form::Delta => {
                let response = DeltaDiscoveryResponse::decode(message).context("undecodable response")?;
                (type_url, nonce, removed) = (response.type_url, response.nonce, response.removed_resources);
                let bodies = response.resources.into_iter();
                resources.extend(bodies.filter_map(|found| Some(found.resource?.value)));
            }
            Form::StateOfTheWorld => {
                let response = DiscoveryResponse::decode(message).context("undecodable response")?;
                (type_url, nonce, version) = (response.type_url, response.nonce, response.version_info);
                resources.extend(response.resources.into_iter().map(|any| any.value));
            }
        }
        let Some(ty) = ResourceType::from_type_url(&type_url) else { bail!("a response of {type_url}") };
        let Some(watch) = self.watches.get_mut(ty.type_url()) else {
            bail!("a response of {type_url}, which was not asked for")
        };
        watch.answered = true;
        (watch.version, watch.nonce) = (version, nonce);
        if self.form == Form::StateOfTheWorld && ty.is_wildcard() {
            (watch.has, watch.refers) = Default::default();
        }
        for body in resources {
            let (name, refers) = read(ty, &body)?;
            watch.has.insert(name.clone());
            watch.refers.insert(name, refers);
        }
        for name in removed {
            watch.refers.remove(&name);
            // The removal of a subscribed name means that there is no such resource to wait for.
            watch.has.insert(name);
        }
        let mut out = vec![self.request(ty, &[], &[])];
        out.extend(self.follow(ty));
        Ok(out)
    }

    /// Updates the subscription to the references of a type.
    fn follow(&mut self, from: ResourceType) -> Option<Bytes> {
        let (_, to) = FOLLOWED.into_iter().find(|(followed, _)| *followed == from)?;
        let refers = self.watches.get(from.type_url())?.refers.values();
        let wanted: BTreeSet<String> = refers.flatten().cloned().collect();
        // Without references there is no request, and no response to wait for.
        if wanted.is_empty() && !self.watches.contains_key(to.type_url()) {
            return None;
        }
        let watch = self.watches.entry(to.type_url()).or_default();
        if watch.wanted == wanted {
            return None;
        }
        let added: Vec<String> = wanted.difference(&watch.wanted).cloned().collect();
        let gone: Vec<String> = watch.wanted.difference(&wanted).cloned().collect();
        watch.has.retain(|name| wanted.contains(name));
        watch.wanted = wanted;
        Some(self.request(to, &added, &gone))
    }

    /// An ACK, or a change of a subscription.
    fn request(&self, ty: ResourceType, added: &[String], gone: &[String]) -> Bytes {
        let empty = Watch::default();
        let watch = self.watches.get(ty.type_url()).unwrap_or(&empty);
        let type_url = ty.type_url().to_owned();
        let is_subscription = !(added.is_empty() && gone.is_empty());
        Bytes::from(match self.form {
            Form::Delta => DeltaDiscoveryRequest {
                type_url,
                resource_names_subscribe: added.to_vec(),
                resource_names_unsubscribe: gone.to_vec(),
                // A nonce belongs to an ACK only.
                response_nonce: if is_subscription { String::new() } else { watch.nonce.clone() },
                ..Default::default()
            }
            .encode_to_vec(),
            Form::StateOfTheWorld => DiscoveryRequest {
                type_url,
                version_info: watch.version.clone(),
                resource_names: watch.wanted.iter().cloned().collect(),
                response_nonce: watch.nonce.clone(),
                ..Default::default()
            }
            .encode_to_vec(),
        })
    }
}

/// Name of a resource, and its references.
fn read(ty: ResourceType, body: &[u8]) -> Result<(String, BTreeSet<String>)> {
    Ok(match ty {
        ResourceType::Cluster => {
            let cluster = Cluster::decode(body)?;
            let eds = cluster::ClusterDiscoveryType::Type(cluster::DiscoveryType::Eds as i32);
            if cluster.cluster_discovery_type != Some(eds) {
                return Ok((cluster.name, BTreeSet::new()));
            }
            let service = cluster.eds_cluster_config.map(|eds| eds.service_name).unwrap_or_default();
            let refers = if service.is_empty() { cluster.name.clone() } else { service };
            (cluster.name, BTreeSet::from([refers]))
        }
        ResourceType::Endpoint => (ClusterLoadAssignment::decode(body)?.cluster_name, BTreeSet::new()),
        ResourceType::Listener => {
            let listener = Listener::decode(body)?;
            let routes = routes(&listener)?;
            (listener.name, routes)
        }
        ResourceType::Route => (RouteConfiguration::decode(body)?.name, BTreeSet::new()),
        other => bail!("nobody asked for {}", other.short()),
    })
}

/// Route configurations of a listener.
fn routes(listener: &Listener) -> Result<BTreeSet<String>> {
    let chains = listener.filter_chains.iter().chain(&listener.default_filter_chain);
    let mut names = BTreeSet::new();
    for found in chains.flat_map(|chain| &chain.filters) {
        let Some(filter::ConfigType::TypedConfig(config)) = &found.config_type else { continue };
        if !config.type_url.ends_with(".HttpConnectionManager") {
            continue;
        }
        if let Some(RouteSpecifier::Rds(rds)) = HttpConnectionManager::decode(&*config.value)?.route_specifier
        {
            names.insert(rds.route_config_name);
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_proto::Any;
    use pilotfish_proto::envoy::service::discovery::v3::Resource;

    fn cluster(name: &str) -> Any {
        let cluster = Cluster {
            name: name.to_owned(),
            cluster_discovery_type: Some(cluster::ClusterDiscoveryType::Type(
                cluster::DiscoveryType::Eds as i32,
            )),
            ..Default::default()
        };
        Any { type_url: CLUSTERS.type_url().to_owned(), value: cluster.encode_to_vec() }
    }

    fn load(name: &str) -> Any {
        let load = ClusterLoadAssignment { cluster_name: name.to_owned(), ..Default::default() };
        Any { type_url: ResourceType::Endpoint.type_url().to_owned(), value: load.encode_to_vec() }
    }

    fn message(form: Form, ty: ResourceType, bodies: Vec<Any>) -> Bytes {
        let type_url = ty.type_url().to_owned();
        Bytes::from(match form {
            Form::Delta => {
                let resources =
                    bodies.into_iter().map(|body| Resource { resource: Some(body), ..Default::default() });
                DeltaDiscoveryResponse { type_url, resources: resources.collect(), ..Default::default() }
                    .encode_to_vec()
            }
            Form::StateOfTheWorld => {
                DiscoveryResponse { type_url, resources: bodies, ..Default::default() }.encode_to_vec()
            }
        })
    }

    #[test]
    fn a_proxy_has_everything_when_the_endpoints_of_its_clusters_are_there() {
        for form in [Form::Delta, Form::StateOfTheWorld] {
            let mut session = Session::new(form, Node::default());
            assert_eq!(session.start().len(), 2);
            let give = |session: &mut Session, ty, bodies| {
                session.response(message(form, ty, bodies)).expect("a good response").len()
            };
            assert_eq!(give(&mut session, LISTENERS, vec![]), 1);
            assert_eq!(
                give(&mut session, CLUSTERS, vec![cluster("a"), cluster("b")]),
                2,
                "an ACK and a subscription"
            );
            assert!(!session.synced());
            give(&mut session, ResourceType::Endpoint, vec![load("a")]);
            assert_eq!(session.missing(), "1 of eds");
            give(&mut session, ResourceType::Endpoint, vec![load("b")]);
            assert!(session.synced());
            assert!(session.response(message(form, ResourceType::Secret, vec![])).is_err());
        }
    }
}
