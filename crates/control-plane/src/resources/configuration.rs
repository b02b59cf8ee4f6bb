//! Configuration for other control planes (MCP over xDS), and the access to it.

use super::hooks::{ClientState, ConnectHook, ConnectingClient};
use crate::mesh::with_mesh;
use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use pilotfish_config::mesh::MeshConfig;
use pilotfish_mcp::{Difference, McpKind};
use pilotfish_model::Kind;
use pilotfish_proto::ValueKind;
use pilotfish_translate::Identity;
use pilotfish_xds::{Collection, CollectionState, ConnectError, Resource};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::Notify;

/// Clients with access to configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigurationClients {
    Nobody,
    /// All clients, also without an identity.
    Anyone,
    /// Clients with a proven identity of one of these namespaces, or with one of these identities.
    Identified {
        /// Namespaces of SPIFFE identities.
        namespaces: BTreeSet<String>,
        /// Full SPIFFE identities: `spiffe://...`.
        identities: BTreeSet<String>,
    },
}

impl ConfigurationClients {
    /// Returns access for clients with an identity of a namespace.
    pub fn of_namespace(namespace: &str) -> Self {
        Self::Identified { namespaces: [namespace.to_owned()].into(), identities: BTreeSet::new() }
    }

    /// Parses `nobody`, `anyone`, or a comma-separated list of namespaces and identities.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.trim() {
            "nobody" => return Ok(Self::Nobody),
            "anyone" => return Ok(Self::Anyone),
            _ => {}
        }
        let (mut namespaces, mut identities) = (BTreeSet::new(), BTreeSet::new());
        for entry in text.split(',').map(str::trim) {
            if entry.starts_with("spiffe://") {
                identities.insert(entry.to_owned());
            } else if pilotfish_config::is_object_name(entry) && !matches!(entry, "nobody" | "anyone") {
                namespaces.insert(entry.to_owned());
            } else {
                return Err(format!("{entry:?} is none of nobody, anyone, a namespace, a SPIFFE identity"));
            }
        }
        Ok(Self::Identified { namespaces, identities })
    }

    /// Checks the access of a client with these proven identities. A namespace of another cluster or trust
    /// domain differs from the one of the same name here.
    fn check(&self, proven: &[String], is_foreign: bool, mesh: &MeshConfig) -> Result<(), ConnectError> {
        match self {
            Self::Anyone => Ok(()),
            Self::Nobody => Err(ConnectError::PermissionDenied("configuration is not served here".into())),
            Self::Identified { .. } if proven.is_empty() => Err(ConnectError::Unauthenticated(
                "configuration is served to clients with an identity only: connect to the port with TLS, or \
                 see --serve-configuration"
                    .into(),
            )),
            Self::Identified { namespaces, identities } => {
                let allowed = |id: &String| {
                    let is_named = |id: Identity| {
                        mesh.has_trust_domain(&id.trust_domain) && namespaces.contains(id.namespace.as_str())
                    };
                    identities.contains(id) || (!is_foreign && Identity::parse(id).is_some_and(is_named))
                };
                if proven.iter().any(allowed) {
                    return Ok(());
                }
                Err(ConnectError::PermissionDenied(format!(
                    "configuration is not served to {}: see --serve-configuration",
                    proven.join(", ")
                )))
            }
        }
    }
}

/// State of a client with regard to configuration.
struct ConfigurationClient {
    configuration: Arc<Configuration>,
    /// True if the node requests configuration only (`GENERATOR=api`).
    is_api: bool,
    allowed: Result<(), ConnectError>,
}

/// Configuration for other control planes.
pub struct Configuration {
    clients: ConfigurationClients,
    /// Cluster whose namespaces [`ConfigurationClients`] name.
    cluster: Arc<str>,
    /// Newest state; `None` before the first.
    state: ArcSwapOption<BTreeMap<Kind, Collection>>,
    /// Number of states so far, locked by the writer of the state.
    counter: Mutex<u64>,
    wanted: Notify,
}

impl Configuration {
    /// Returns the configuration of a cluster, for these clients.
    #[must_use]
    pub fn new(clients: ConfigurationClients, cluster: &str) -> Self {
        let (state, counter) = (ArcSwapOption::empty(), Mutex::new(0));
        Self { clients, cluster: cluster.into(), state, counter, wanted: Notify::new() }
    }

    /// True if any client has access.
    pub fn is_served(&self) -> bool {
        self.clients != ConfigurationClients::Nobody
    }

    /// Waits for the first request for configuration.
    pub async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Applies differences to the state.
    pub fn apply(&self, differences: Vec<Difference>) {
        let mut counter = self.counter.lock();
        *counter += 1;
        let mut state = self.state.load().as_deref().cloned().unwrap_or_default();
        for (kind, name, resource) in differences {
            let collection = state.entry(kind).or_default();
            match resource {
                Some(served) => {
                    let resource = Resource {
                        name: served.name,
                        version: served.version,
                        body: served.any.into(),
                        changed_at: *counter,
                        stands_in: false,
                    };
                    collection.insert(name, Arc::new(resource));
                }
                None => drop(collection.remove(&name)),
            }
        }
        self.state.store(Some(Arc::new(state)));
    }
}

impl ConnectHook for Arc<Configuration> {
    fn connect(
        &self,
        client: &mut ConnectingClient<'_>,
    ) -> Result<Option<Box<dyn ClientState>>, ConnectError> {
        let ConnectingClient { node, peer, world, .. } = client;
        let generator = node.metadata.as_ref().and_then(|metadata| metadata.fields.get("GENERATOR"));
        let generator = generator.and_then(|value| value.kind.as_ref());
        let is_api = matches!(generator, Some(ValueKind::StringValue(text)) if text == "api");
        let is_foreign = peer.cluster.as_ref().is_some_and(|cluster| *cluster != self.cluster);
        let check = |mesh: &MeshConfig| self.clients.check(&peer.identities, is_foreign, mesh);
        let state =
            ConfigurationClient { configuration: self.clone(), is_api, allowed: with_mesh(world, check) };
        Ok(Some(Box::new(state)))
    }
}

impl ClientState for ConfigurationClient {
    /// Any type for clients that request configuration only, known kinds for others.
    fn serves_collection(&self, type_url: &str, _names: &[&str]) -> Result<bool, ConnectError> {
        let configuration = &self.configuration;
        if !self.is_api && (McpKind::of_type_url(type_url).is_none() || !configuration.is_served()) {
            return Ok(false);
        }
        self.allowed.clone()?;
        // The permit is kept if nothing waits for it yet.
        configuration.wanted.notify_one();
        Ok(true)
    }

    /// All resources of the type.
    fn collection(&self, type_url: &str) -> Option<CollectionState> {
        let state = self.configuration.state.load();
        let Some(state) = &*state else { return Some(CollectionState::NotYet) };
        let kind = McpKind::of_type_url(type_url).map(|entry| entry.kind);
        let collection = kind.and_then(|kind| state.get(&kind)).cloned().unwrap_or_default();
        Some(CollectionState::Is(collection))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_config::MeshFile;
    use pilotfish_model::{Object, ObjectMeta, Update, WorldWriter};
    use pilotfish_proto::envoy::config::core::v3::Node;
    use pilotfish_proto::{Struct, Value};
    use pilotfish_translate::Proxy;
    use pilotfish_xds::PeerInfo;

    const ROOT: &str = "spiffe://cluster.local/ns/istio-system/sa/istiod";
    const SHOP: &str = "spiffe://cluster.local/ns/shop/sa/web";

    fn asks(clients: &str, identities: &[&str]) -> Result<bool, ConnectError> {
        asks_from(clients, identities, false)
    }

    fn asks_from(clients: &str, identities: &[&str], is_foreign: bool) -> Result<bool, ConnectError> {
        let value = Value { kind: Some(ValueKind::StringValue("api".into())) };
        let metadata = Some(Struct { fields: [("GENERATOR".to_owned(), value)].into() });
        let identities = identities.iter().map(|id| (*id).to_owned()).collect();
        let cluster = Some(if is_foreign { "west" } else { "east" }.into());
        let peer = PeerInfo { identities, cluster, ..PeerInfo::default() };
        let clients = ConfigurationClients::parse(clients).unwrap();
        let client = connected(clients, Node { metadata, ..Node::default() }, &peer);
        client.serves_collection("networking.istio.io/v1/ServiceEntry", &[])
    }

    /// State of a client of cluster `east`, in a mesh with an alias of its trust domain.
    fn connected(clients: ConfigurationClients, node: Node, peer: &PeerInfo) -> Box<dyn ClientState> {
        let mesh = MeshConfig { trust_domain_aliases: vec!["old.local".into()], ..MeshConfig::default() };
        let mut writer = WorldWriter::new();
        writer.apply(Update::Object(Object::new(ObjectMeta::of(MeshFile::Config.key()), mesh)));
        let (world, _) = writer.publish().unwrap();
        let node = Node { id: "sidecar~10.0.0.1~a.shop~shop.svc.cluster.local".into(), ..node };
        let mut proxy = Proxy::from_node(&node).unwrap();
        let mut client = ConnectingClient { node: &node, peer, proxy: &mut proxy, world: &world };
        let hook = Arc::new(Configuration::new(clients, "east"));
        hook.connect(&mut client).unwrap().unwrap()
    }

    #[test]
    fn only_who_may_have_configuration_gets_it() {
        assert_eq!(asks("istio-system", &[ROOT]), Ok(true));
        assert!(matches!(asks("istio-system", &[SHOP]), Err(ConnectError::PermissionDenied(_))));
        assert!(matches!(asks("istio-system", &[]), Err(ConnectError::Unauthenticated(_))));
        assert_eq!(asks(&format!("edge,{SHOP}"), &[SHOP]), Ok(true));
        assert!(matches!(asks(SHOP, &[ROOT]), Err(ConnectError::PermissionDenied(_))));
        assert_eq!(asks("anyone", &[]), Ok(true));
        assert!(matches!(asks("nobody", &[ROOT]), Err(ConnectError::PermissionDenied(_))));
        // Names that only look alike.
        for id in ["spiffe://x/ns/istio-system", "spiffe://x/ns/istio-system2/sa/a", "ns/istio-system/sa/a"] {
            assert!(asks("istio-system", &[id]).is_err(), "{id}");
        }
    }

    #[test]
    fn a_namespace_of_another_cluster_is_not_the_one_of_that_name() {
        assert!(matches!(asks_from("istio-system", &[ROOT], true), Err(ConnectError::PermissionDenied(_))));
        assert_eq!(asks_from(ROOT, &[ROOT], true), Ok(true), "this one is named as a whole");
        assert_eq!(asks_from("anyone", &[ROOT], true), Ok(true));
    }

    /// A federated mesh's certificate is good for the handshake, and its namespaces are its own.
    #[test]
    fn a_namespace_of_another_trust_domain_is_not_the_one_of_that_name() {
        let of = |domain: &str| format!("spiffe://{domain}/ns/istio-system/sa/istiod");
        assert_eq!(asks("istio-system", &[&of("cluster.local")]), Ok(true));
        assert_eq!(asks("istio-system", &[&of("old.local")]), Ok(true), "an alias");
        for domain in ["partner.example", "cluster.local.partner.example", ""] {
            let refused = asks("istio-system", &[&of(domain)]);
            assert!(matches!(refused, Err(ConnectError::PermissionDenied(_))), "{domain}: {refused:?}");
        }
        let partner = of("partner.example");
        assert_eq!(asks(&partner, &[&partner]), Ok(true), "this one is named as a whole");
    }

    #[test]
    fn proxies_are_answered_kinds_that_there_are_and_nothing_else() {
        let serves = |clients, type_url| {
            connected(clients, Node::default(), &PeerInfo::default()).serves_collection(type_url, &[])
        };
        assert_eq!(serves(ConfigurationClients::Anyone, "networking.istio.io/v1/Sidecar"), Ok(true));
        assert_eq!(serves(ConfigurationClients::Anyone, "nonsense"), Ok(false));
        assert_eq!(serves(ConfigurationClients::Nobody, "networking.istio.io/v1/Sidecar"), Ok(false));
    }

    #[test]
    fn mistakes_in_the_setting_are_told() {
        for text in ["", "istio-system,", "anyone,shop", "No Such"] {
            assert!(ConfigurationClients::parse(text).is_err(), "{text:?}");
        }
    }
}
