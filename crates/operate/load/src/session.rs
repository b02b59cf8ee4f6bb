//! Protocol state of one proxy that tracks its resources, without IO: responses in, requests out.
//!
//! It behaves like a sidecar: it subscribes to all clusters and listeners, then to the load assignments of
//! the EDS clusters and to the routes of the listeners, and acknowledges each response.
//!
//! A resource is stored as the number of its bytes in a table of the process ([`crate::content`]), so a
//! response is scanned and hashed, and only decoded if its bytes are new.

use std::collections::{BTreeSet, HashSet};

use bytes::{Bytes, BytesMut};
use prost::Message;

use crate::content::{self, Entry};
use crate::messages::{CDS, DeltaRequest, EDS, LDS, Node, RDS, fields};
use crate::names::{Name, encoded, intern, text};

/// Types that a sidecar subscribes to, in the order of its requests.
pub const TYPES: [&str; 4] = [CDS, EDS, LDS, RDS];
pub(crate) const CLUSTERS: usize = 0;
const LOADS: usize = 1;
pub(crate) const LISTENERS: usize = 2;
const ROUTES: usize = 3;

/// Summary of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Index of its type in [`TYPES`].
    pub ty: usize,
    /// Size of the message.
    pub bytes: usize,
    /// Number of resources in it.
    pub resources: usize,
    /// Number of resources that differ from those of the proxy, and of removed names that it had.
    pub changed: usize,
}

/// Resources of a proxy of one type: entries by name, sorted.
#[derive(Default)]
struct Held(Vec<(Name, Entry)>);

impl Held {
    /// Adds received entries; returns the number of changed ones, and true if references changed.
    fn put(&mut self, sent: &mut Vec<(Name, Entry)>) -> (usize, bool) {
        let (mut changed, mut moved) = (0, false);
        let mut added = Vec::new();
        for (name, entry) in sent.drain(..) {
            match self.0.binary_search_by_key(&name, |held| held.0) {
                Ok(at) => {
                    if let Some(held) = self.0.get_mut(at).filter(|held| held.1 != entry) {
                        moved |= content::refers(held.1) != content::refers(entry);
                        held.1 = entry;
                        changed += 1;
                    }
                }
                Err(_) => added.push((name, entry)),
            }
        }
        if !added.is_empty() {
            changed += added.len();
            moved = true;
            self.0.append(&mut added);
            self.0.sort_unstable();
            self.0.dedup_by_key(|held| held.0);
            self.0.shrink_to_fit();
        }
        (changed, moved)
    }

    fn remove(&mut self, name: Name) -> bool {
        match self.0.binary_search_by_key(&name, |held| held.0) {
            Ok(at) => {
                self.0.remove(at);
                true
            }
            Err(_) => false,
        }
    }
}

#[derive(Default)]
struct Subscription {
    answered: bool,
    held: Held,
    names: BTreeSet<Name>,
    pending: HashSet<Name>,
}

pub struct Session {
    node: Node,
    types: [Subscription; 4],
}

impl Session {
    /// Creates a proxy without resources.
    #[must_use]
    pub fn new(node: Node) -> Self {
        Self { node, types: Default::default() }
    }

    /// Resets the proxy, like a restarted one, or only its stream: then it lists its resources on the next
    /// one.
    pub fn leave(&mut self, keep: bool) {
        for subscription in &mut self.types {
            if keep {
                subscription.answered = false;
                subscription.pending = HashSet::new();
            } else {
                *subscription = Subscription::default();
            }
        }
    }

    /// First requests of a stream. A proxy without resources requests all clusters and listeners; one with
    /// resources lists their versions, of all types at once, like Envoy.
    #[must_use]
    pub fn start(&self) -> Vec<Bytes> {
        let mut requests = Vec::new();
        for (ty, subscription) in self.types.iter().enumerate() {
            let named = ty == LOADS || ty == ROUTES;
            if named && subscription.names.is_empty() {
                continue;
            }
            let node = (ty == CLUSTERS).then(|| self.node.clone());
            let url = TYPES.get(ty).copied().unwrap_or_default();
            let request = DeltaRequest { node, type_url: url.into(), ..Default::default() };
            let mut buffer = BytesMut::from(&request.encode_to_vec()[..]);
            if named {
                buffer.extend_from_slice(&encoded(3, &subscription.names));
            }
            put_versions(&subscription.held, &mut buffer);
            requests.push(buffer.freeze());
        }
        requests
    }

    /// True if all subscribed resources have arrived.
    #[must_use]
    pub fn synced(&self) -> bool {
        let [clusters, loads, listeners, routes] = &self.types;
        clusters.answered && listeners.answered && loads.pending.is_empty() && routes.pending.is_empty()
    }

    /// Number of named resources that have not arrived.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.types.iter().map(|subscription| subscription.pending.len()).sum()
    }

    /// Entries of its resources.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry> {
        self.types.iter().flat_map(|subscription| subscription.held.0.iter().map(|(_, entry)| *entry))
    }

    /// Applies one response and appends the resulting requests to `out`.
    ///
    /// # Errors
    /// A malformed response, or one of a type without a subscription.
    pub fn response(&mut self, message: &Bytes, out: &mut Vec<Bytes>) -> Result<Seen, String> {
        let (mut url, mut nonce, mut resources, mut removed) = (&b""[..], &b""[..], Vec::new(), Vec::new());
        for (number, field) in fields(message) {
            match number {
                2 => resources.push(field),
                4 => url = field,
                5 => nonce = field,
                6 => removed.push(field),
                _ => {}
            }
        }
        let ty = TYPES.iter().position(|known| known.as_bytes() == url);
        let ty = ty.ok_or_else(|| {
            format!("a response of a type that was not subscribed: {}", String::from_utf8_lossy(url))
        })?;
        out.push(acknowledge(TYPES.get(ty).copied().unwrap_or_default(), &String::from_utf8_lossy(nonce)));
        let mut seen = Seen { ty, bytes: message.len(), resources: resources.len(), changed: 0 };
        let mut sent = Vec::with_capacity(resources.len());
        for resource in resources {
            sent.push(content::entry_of(ty, message, resource)?);
        }
        let Some(subscription) = self.types.get_mut(ty) else { return Ok(seen) };
        subscription.answered = true;
        if !subscription.pending.is_empty() {
            for (name, _) in &sent {
                subscription.pending.remove(name);
            }
        }
        let (changed, mut moved) = subscription.held.put(&mut sent);
        seen.changed = changed;
        for name in removed {
            let name = intern(&String::from_utf8_lossy(name));
            subscription.pending.remove(&name);
            if subscription.held.remove(name) {
                seen.changed += 1;
                moved = true;
            }
        }
        if subscription.pending.is_empty() {
            subscription.pending = HashSet::new();
        }
        if moved && (ty == CLUSTERS || ty == LISTENERS) {
            self.follow(ty, out);
        }
        Ok(seen)
    }

    /// Updates the subscription to the references of clusters or listeners.
    fn follow(&mut self, ty: usize, out: &mut Vec<Bytes>) {
        let [clusters, loads, listeners, routes] = &mut self.types;
        let (from, to, url) = if ty == CLUSTERS { (clusters, loads, EDS) } else { (listeners, routes, RDS) };
        let wanted = content::references(from.held.0.iter().map(|(_, entry)| *entry));
        if wanted == to.names {
            return;
        }
        let added: BTreeSet<Name> = wanted.difference(&to.names).copied().collect();
        let removed: BTreeSet<Name> = to.names.difference(&wanted).copied().collect();
        for name in &removed {
            to.pending.remove(name);
            to.held.remove(*name);
        }
        to.pending.extend(&added);
        to.names = wanted;
        let request = DeltaRequest { type_url: url.into(), ..Default::default() };
        let mut buffer = BytesMut::from(&request.encode_to_vec()[..]);
        buffer.extend_from_slice(&encoded(3, &added));
        buffer.extend_from_slice(&encoded(4, &removed));
        out.push(buffer.freeze());
    }
}

/// Encodes `initial_resource_versions`: a map, so each entry is a message with a key and a value.
fn put_versions(held: &Held, buffer: &mut BytesMut) {
    for (name, entry) in &held.0 {
        let (Some(name), Some(version)) = (text(*name), content::version(*entry)) else { continue };
        let mut pair = BytesMut::new();
        prost::encoding::string::encode(1, &name.to_string(), &mut pair);
        prost::encoding::string::encode(2, &version.to_string(), &mut pair);
        prost::encoding::bytes::encode(5, &pair.freeze(), buffer);
    }
}

fn acknowledge(url: &str, nonce: &str) -> Bytes {
    let ack = DeltaRequest { type_url: url.into(), response_nonce: nonce.into(), ..Default::default() };
    ack.encode_to_vec().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Holders;
    use crate::messages::{
        Any, Cluster, DeltaResponse, EdsConfig, Filter, FilterChain, HCM, Hcm, Listener, Rds, Resource,
    };

    fn response(url: &str, nonce: &str, resources: &[(&str, &str, Vec<u8>)], removed: &[&str]) -> Bytes {
        let resources = resources.iter().map(|(name, version, body)| Resource {
            version: (*version).into(),
            name: (*name).into(),
            resource: Some(Any { type_url: url.into(), value: body.clone().into() }),
        });
        let response = DeltaResponse {
            nonce: nonce.into(),
            type_url: url.into(),
            resources: resources.collect(),
            removed_resources: removed.iter().map(|name| (*name).to_owned()).collect(),
            ..Default::default()
        };
        response.encode_to_vec().into()
    }

    fn cluster(name: &str) -> Vec<u8> {
        Cluster { name: name.into(), discovery: Cluster::EDS, ..Default::default() }.encode_to_vec()
    }

    fn listener(route: &str) -> Vec<u8> {
        let hcm = Hcm { rds: Some(Rds { name: route.into() }) };
        let config = Some(Any { type_url: HCM.into(), value: hcm.encode_to_vec().into() });
        let chains = vec![FilterChain { filters: vec![Filter { config }] }];
        Listener { chains, default_chain: None }.encode_to_vec()
    }

    fn give(session: &mut Session, message: &Bytes) -> (Seen, Vec<DeltaRequest>) {
        let mut out = Vec::new();
        let seen = session.response(message, &mut out).expect("a good response");
        (seen, out.into_iter().map(|bytes| DeltaRequest::decode(bytes).expect("a request")).collect())
    }

    /// A proxy with a cluster, its endpoints, a listener and its routes.
    fn in_sync(prefix: &str) -> Session {
        let name = |kind: &str| format!("{prefix}-{kind}");
        let mut session = Session::new(Node { id: prefix.into(), ..Default::default() });
        assert_eq!(session.start().len(), 2, "clusters and listeners");
        let (c, l, r) = (name("c"), name("l"), name("r"));
        let (_, sent) = give(&mut session, &response(CDS, "1", &[(&c, "7", cluster(&c))], &[]));
        assert_eq!(sent[1].subscribe, [c.as_str()]);
        give(&mut session, &response(LDS, "2", &[(&l, "8", listener(&r))], &[]));
        assert!(!session.synced());
        give(&mut session, &response(EDS, "3", &[(&c, "9", vec![])], &[]));
        assert_eq!(session.pending(), 1);
        give(&mut session, &response(RDS, "4", &[], &[&r]));
        assert!(session.synced());
        session
    }

    #[test]
    fn the_name_of_a_load_assignment_may_differ_from_its_cluster() {
        let eds = Some(EdsConfig { service_name: "named-load".into(), source: None });
        let cluster = Cluster { name: "named".into(), discovery: Cluster::EDS, eds, ..Default::default() };
        let mut session = Session::new(Node::default());
        let (_, sent) =
            give(&mut session, &response(CDS, "1", &[("named", "1", cluster.encode_to_vec())], &[]));
        assert_eq!(sent[1].subscribe, ["named-load"]);
    }

    #[test]
    fn random_bytes_are_an_error() {
        let mut session = Session::new(Node::default());
        assert!(session.response(&Bytes::from_static(&[0xff, 0xff, 1]), &mut Vec::new()).is_err());
    }

    #[test]
    fn what_is_sent_again_without_a_difference_is_no_change() {
        let mut session = in_sync("same");
        let again = response(CDS, "5", &[("same-c", "7", cluster("same-c"))], &[]);
        let (seen, sent) = give(&mut session, &again);
        assert_eq!((seen.resources, seen.changed, sent.len()), (1, 0, 1));
        let (seen, _) = give(&mut session, &response(EDS, "6", &[("same-c", "10", vec![1, 1])], &[]));
        assert_eq!(seen.changed, 1);
    }

    #[test]
    fn a_proxy_that_comes_back_names_what_it_holds() {
        let mut session = in_sync("back");
        session.leave(true);
        let requests: Vec<DeltaRequest> = session
            .start()
            .into_iter()
            .map(|bytes| DeltaRequest::decode(bytes).expect("a request"))
            .collect();
        let urls: Vec<&str> = requests.iter().map(|request| request.type_url.as_str()).collect();
        assert_eq!(urls, TYPES);
        assert_eq!(requests[0].initial_versions, [("back-c".to_owned(), "7".to_owned())].into());
        assert_eq!(requests[1].subscribe, ["back-c"]);
        assert_eq!(requests[1].initial_versions, [("back-c".to_owned(), "9".to_owned())].into());
        session.leave(false);
        assert_eq!(session.start().len(), 2, "nothing is held");
    }

    #[test]
    fn a_cluster_that_goes_takes_its_endpoints() {
        let mut session = in_sync("gone");
        let (seen, sent) = give(&mut session, &response(CDS, "5", &[], &["gone-c"]));
        assert_eq!((seen.changed, sent[1].unsubscribe.clone()), (1, vec!["gone-c".to_owned()]));
        assert_eq!(session.entries().count(), 1, "the listener");
    }

    #[test]
    fn content_is_counted_once_and_for_each_holder() {
        let mut holders = Holders::default();
        let shared = response(RDS, "1", &[("shared-r", "1", vec![8, 1])], &[]);
        let mut sessions = [in_sync("one"), in_sync("two")];
        for session in &mut sessions {
            give(session, &shared);
            holders.add(session);
        }
        let [clusters, .., routes] = holders.content();
        assert_eq!((clusters.held, clusters.distinct, clusters.single), (2, 2, 2));
        assert_eq!((routes.held, routes.distinct, routes.single), (2, 1, 0));
        assert_eq!(routes.held_bytes, 2 * routes.distinct_bytes);
    }
}
