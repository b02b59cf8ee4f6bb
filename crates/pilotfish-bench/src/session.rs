//! The protocol state of one simulated proxy, without IO: responses in, requests out.
//!
//! It behaves as a sidecar does: all clusters and listeners, then the load assignments of the EDS clusters and the
//! routes that the listeners name; each response is acknowledged.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, LazyLock};

use bytes::{Bytes, BytesMut};
use parking_lot::RwLock;
use prost::Message;

use crate::messages::{
    CDS, Cluster, DeltaRequest, DeltaResponse, EDS, HCM, Hcm, LDS, Listener, Node, RDS, fields,
};

/// A resource name, shared by all streams of the process.
pub(crate) type Name = u32;

#[derive(Default)]
struct Names {
    ids: HashMap<Arc<str>, Name>,
    texts: Vec<Arc<str>>,
}

static NAMES: LazyLock<RwLock<Names>> = LazyLock::new(Default::default);
/// What a resource refers to, by the hash of its bytes: a thousand streams get the same ones, and the client's time is
/// not what the bench measures.
static REFERENCES: LazyLock<RwLock<HashMap<u64, Arc<[Name]>>>> = LazyLock::new(Default::default);
/// Encoded lists of names by field number, shared between streams with the same subscription.
static ENCODED: LazyLock<RwLock<Encoded>> = LazyLock::new(Default::default);

type Encoded = HashMap<(u32, Vec<Name>), Bytes>;

pub(crate) fn intern(text: &str) -> Name {
    if let Some(id) = NAMES.read().ids.get(text) {
        return *id;
    }
    let mut names = NAMES.write();
    if let Some(id) = names.ids.get(text) {
        return *id;
    }
    let id = Name::try_from(names.texts.len()).unwrap_or(Name::MAX);
    let text: Arc<str> = text.into();
    names.texts.push(Arc::clone(&text));
    names.ids.insert(text, id);
    id
}

pub(crate) fn text(name: Name) -> Option<Arc<str>> {
    NAMES.read().texts.get(name as usize).cloned()
}

/// `repeated string` fields for a list of names.
pub(crate) fn encoded(tag: u32, names: &BTreeSet<Name>) -> Bytes {
    let key = (tag, names.iter().copied().collect::<Vec<_>>());
    if let Some(bytes) = ENCODED.read().get(&key) {
        return bytes.clone();
    }
    let mut buffer = BytesMut::new();
    for name in names.iter().filter_map(|name| text(*name)) {
        prost::encoding::string::encode(tag, &name.to_string(), &mut buffer);
    }
    let bytes = buffer.freeze();
    ENCODED.write().insert(key, bytes.clone());
    bytes
}

/// The state of one type on one stream.
#[derive(Default)]
struct Subscription {
    answered: bool,
    names: BTreeSet<Name>,
    pending: HashSet<Name>,
    /// For clusters and listeners: what each of them refers to.
    references: HashMap<Name, Arc<[Name]>>,
}

/// One simulated proxy.
pub struct Session {
    node: Node,
    clusters: Subscription,
    loads: Subscription,
    listeners: Subscription,
    routes: Subscription,
}

/// The size of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Resources that were sent.
    pub resources: usize,
    /// The size of the message in bytes.
    pub bytes: usize,
}

impl Session {
    /// A proxy without any resource.
    #[must_use]
    pub fn new(node: Node) -> Self {
        Self {
            node,
            clusters: Subscription::default(),
            loads: Subscription::default(),
            listeners: Subscription::default(),
            routes: Subscription::default(),
        }
    }

    /// The first requests of a stream.
    #[must_use]
    pub fn start(&self) -> Vec<Bytes> {
        let node = Some(self.node.clone());
        let clusters = DeltaRequest { node, type_url: CDS.into(), ..Default::default() };
        let listeners = DeltaRequest { type_url: LDS.into(), ..Default::default() };
        vec![clusters.encode_to_vec().into(), listeners.encode_to_vec().into()]
    }

    /// Whether all subscribed resources have arrived.
    #[must_use]
    pub fn synced(&self) -> bool {
        let named = [&self.loads, &self.routes];
        self.clusters.answered && self.listeners.answered && named.iter().all(|s| s.pending.is_empty())
    }

    /// How many named resources have not arrived.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.loads.pending.len() + self.routes.pending.len()
    }

    /// Takes one response and puts what it calls for into `out`.
    ///
    /// # Errors
    /// A response that cannot be decoded, or of a type that was not subscribed.
    pub fn response(&mut self, message: Bytes, out: &mut Vec<Bytes>) -> Result<Seen, String> {
        let bytes = message.len();
        if let Some(resources) = self.plain_push(&message, out) {
            return Ok(Seen { resources, bytes });
        }
        let response =
            DeltaResponse::decode(message).map_err(|error| format!("undecodable response: {error}"))?;
        let url = response.type_url.as_str();
        let subscription = match url {
            CDS => &mut self.clusters,
            EDS => &mut self.loads,
            LDS => &mut self.listeners,
            RDS => &mut self.routes,
            other => return Err(format!("a response of a type that was not subscribed: {other}")),
        };
        subscription.answered = true;
        out.push(acknowledge(url, &response.nonce));
        for resource in &response.resources {
            let name = intern(&resource.name);
            subscription.pending.remove(&name);
            if let (CDS | LDS, Some(body)) = (url, &resource.resource) {
                let references = references(url, name, &body.value)?;
                subscription.references.insert(name, references);
            }
        }
        for name in response.removed_resources.iter().map(|name| intern(name)) {
            subscription.pending.remove(&name);
            subscription.references.remove(&name);
        }
        match url {
            CDS => follow(&self.clusters, &mut self.loads, EDS, out),
            LDS => follow(&self.listeners, &mut self.routes, RDS, out),
            _ => {}
        }
        Ok(Seen { resources: response.resources.len(), bytes })
    }

    /// The common case, without decoding: a push of load assignments to a stream that waits for nothing is counted
    /// and acknowledged. `None` when it is another case.
    fn plain_push(&self, message: &[u8], out: &mut Vec<Bytes>) -> Option<usize> {
        let (mut url, mut nonce, mut resources) = (&b""[..], &b""[..], 0);
        for (number, field) in fields(message) {
            match number {
                2 => resources += 1,
                4 => url = field,
                5 => nonce = field,
                _ => {}
            }
        }
        if url != EDS.as_bytes() || !self.loads.answered || !self.loads.pending.is_empty() {
            return None;
        }
        out.push(acknowledge(EDS, std::str::from_utf8(nonce).ok()?));
        Some(resources)
    }
}

pub(crate) fn acknowledge(url: &str, nonce: &str) -> Bytes {
    let ack = DeltaRequest { type_url: url.into(), response_nonce: nonce.into(), ..Default::default() };
    ack.encode_to_vec().into()
}

/// Asks for what `from` refers to, and no longer for what it does not.
fn follow(from: &Subscription, to: &mut Subscription, url: &str, out: &mut Vec<Bytes>) {
    let wanted: BTreeSet<Name> = from.references.values().flat_map(|names| names.iter().copied()).collect();
    if wanted == to.names {
        return;
    }
    let added: BTreeSet<Name> = wanted.difference(&to.names).copied().collect();
    let removed: BTreeSet<Name> = to.names.difference(&wanted).copied().collect();
    to.pending.retain(|name| !removed.contains(name));
    to.pending.extend(&added);
    to.names = wanted;
    let request = DeltaRequest { type_url: url.into(), ..Default::default() };
    let mut buffer = BytesMut::from(&request.encode_to_vec()[..]);
    buffer.extend_from_slice(&encoded(3, &added));
    buffer.extend_from_slice(&encoded(4, &removed));
    out.push(buffer.freeze());
}

/// The load assignment of a cluster, or the route configurations of a listener.
fn references(url: &str, name: Name, body: &Bytes) -> Result<Arc<[Name]>, String> {
    let hash = xxhash_rust::xxh3::xxh3_64(body);
    if let Some(known) = REFERENCES.read().get(&hash) {
        return Ok(Arc::clone(known));
    }
    let found = if url == CDS { load_of(name, body) } else { routes_of(body) };
    let found: Arc<[Name]> = found.map_err(|error| format!("undecodable resource: {error}"))?.into();
    REFERENCES.write().insert(hash, Arc::clone(&found));
    Ok(found)
}

pub(crate) fn load_of(name: Name, body: &Bytes) -> Result<Vec<Name>, prost::DecodeError> {
    let cluster = Cluster::decode(body.clone())?;
    if cluster.discovery != Cluster::EDS {
        return Ok(Vec::new());
    }
    let service = cluster.eds.map(|eds| eds.service_name).filter(|service| !service.is_empty());
    Ok(vec![service.map_or(name, |service| intern(&service))])
}

pub(crate) fn routes_of(body: &Bytes) -> Result<Vec<Name>, prost::DecodeError> {
    let listener = Listener::decode(body.clone())?;
    let chains = listener.chains.into_iter().chain(listener.default_chain);
    let configs = chains.flat_map(|chain| chain.filters).filter_map(|filter| filter.config);
    let mut names = Vec::new();
    for config in configs.filter(|config| config.type_url == HCM) {
        if let Some(rds) = Hcm::decode(config.value)?.rds {
            names.push(intern(&rds.name));
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{Any, EdsConfig, Filter, FilterChain, Rds, Resource};

    fn response(url: &str, nonce: &str, resources: &[(&str, Vec<u8>)], removed: &[&str]) -> Bytes {
        let resources = resources
            .iter()
            .map(|(name, body)| Resource {
                version: "1".into(),
                name: (*name).into(),
                resource: Some(Any { type_url: url.into(), value: body.clone().into() }),
            })
            .collect();
        let removed_resources = removed.iter().map(|name| (*name).to_owned()).collect();
        DeltaResponse {
            nonce: nonce.into(),
            type_url: url.into(),
            resources,
            removed_resources,
            ..Default::default()
        }
        .encode_to_vec()
        .into()
    }

    fn cluster(name: &str, service: &str) -> Vec<u8> {
        let eds = Some(EdsConfig { service_name: service.into(), source: None });
        Cluster { name: name.into(), discovery: Cluster::EDS, eds, connect_timeout: None }.encode_to_vec()
    }

    fn listener(route: &str) -> Vec<u8> {
        let hcm = Hcm { rds: Some(Rds { name: route.into() }) };
        let config = Some(Any { type_url: HCM.into(), value: hcm.encode_to_vec().into() });
        let chains = vec![FilterChain { filters: vec![Filter { config }] }];
        Listener { chains, default_chain: None }.encode_to_vec()
    }

    /// Gives a response to the session and returns the requests that follow.
    fn give(session: &mut Session, message: Bytes) -> Vec<DeltaRequest> {
        let mut out = Vec::new();
        session.response(message, &mut out).expect("a good response");
        out.into_iter().map(|bytes| DeltaRequest::decode(bytes).expect("a request")).collect()
    }

    #[test]
    fn a_proxy_follows_clusters_to_loads_and_listeners_to_routes() {
        let mut session = Session::new(Node { id: "n".into(), ..Default::default() });
        assert_eq!(session.start().len(), 2);
        let sent = give(
            &mut session,
            response(CDS, "1", &[("a", cluster("a", "")), ("b", cluster("b", "b-eds"))], &[]),
        );
        assert_eq!(sent.len(), 2, "the acknowledgement and the subscription");
        assert_eq!(sent[1].subscribe, ["a", "b-eds"]);
        give(&mut session, response(LDS, "2", &[("l", listener("r"))], &[]));
        assert!(!session.synced());
        give(&mut session, response(EDS, "3", &[("a", vec![]), ("b-eds", vec![])], &[]));
        assert_eq!(session.pending(), 1);
        give(&mut session, response(RDS, "4", &[], &["r"]));
        assert!(session.synced(), "resources that do not exist are not waited for");
    }

    #[test]
    fn a_removed_cluster_is_unsubscribed() {
        let mut session = Session::new(Node::default());
        give(&mut session, response(CDS, "1", &[("p", cluster("p", "")), ("q", cluster("q", ""))], &[]));
        let sent = give(&mut session, response(CDS, "2", &[], &["p"]));
        assert_eq!(sent[1].unsubscribe, ["p"]);
    }

    #[test]
    fn a_plain_push_is_answered_like_any_other() {
        let mut session = Session::new(Node::default());
        give(&mut session, response(CDS, "1", &[("x", cluster("x", ""))], &[]));
        give(&mut session, response(EDS, "2", &[("x", vec![])], &[]));
        let sent = give(&mut session, response(EDS, "3", &[("x", vec![1, 2])], &[]));
        assert_eq!(sent.len(), 1);
        assert_eq!((sent[0].type_url.as_str(), sent[0].response_nonce.as_str()), (EDS, "3"));
    }

    #[test]
    fn random_bytes_are_an_error() {
        let mut session = Session::new(Node::default());
        assert!(session.response(Bytes::from_static(&[0xff, 0xff, 1]), &mut Vec::new()).is_err());
    }
}
