//! Content of the broadcast servers, and the protocol state of their streams.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use prost::Message;
use tokio::sync::watch;

use crate::messages::{
    Address, Any, CDS, Cluster, ConfigSource, DeltaResponse, EDS, EdsConfig, Empty, Endpoint, LbEndpoint,
    LoadAssignment, LocalityEndpoints, RDS, Resource, Seconds, SocketAddress, fields, framed,
};

/// Clusters, load assignments, and the wakers of streams.
pub(super) struct Hub {
    endpoints: usize,
    state: RwLock<State>,
    groups: Mutex<Groups>,
    /// Encoded responses, shared by all streams that receive the same.
    cache: Mutex<HashMap<Key, Bytes>>,
    pub(super) version: AtomicU64,
    pub(super) changed: watch::Sender<u64>,
    pub(super) wakers: Wakers,
}

#[derive(PartialEq, Eq, Hash)]
enum Key {
    /// Response to a subscription: type, version, hash of the names.
    Answer(u8, u64, u64),
    /// Push from one version to another, for a group of streams.
    Push(u64, u64, usize),
}

struct State {
    clusters: BTreeMap<String, Any>,
    loads: BTreeMap<String, (u64, Any)>,
    /// Changed load assignments, with the version of the change, oldest first.
    changes: Vec<(u64, String)>,
}

/// Maximum number of changes that are stored for streams that are behind.
const KEPT_CHANGES: usize = 1_000;
/// Maximum number of stored encoded responses.
const KEPT_ANSWERS: usize = 256;

/// Sets of names, shared by streams with the same subscription.
struct Groups {
    sets: Vec<Arc<HashSet<String>>>,
    by_hash: HashMap<u64, usize>,
}

/// Protocol state of one stream: its subscribed types, and its group of names.
#[derive(Default)]
pub(super) struct Peer {
    subscribed: Vec<Vec<u8>>,
    group: usize,
    /// Version of this stream.
    has: u64,
}

fn cluster_name(index: usize) -> String {
    format!("outbound|80||svc-{index}.bench.svc.cluster.local")
}

fn cluster(name: &str) -> Any {
    let source = ConfigSource { ads: Some(Empty {}), resource_api_version: 2 };
    let body = Cluster {
        name: name.to_owned(),
        discovery: Cluster::EDS,
        eds: Some(EdsConfig { source: Some(source), service_name: String::new() }),
        connect_timeout: Some(Seconds { seconds: 10 }),
    };
    Any { type_url: CDS.into(), value: body.encode_to_vec().into() }
}

fn load(name: &str, addresses: impl Iterator<Item = String>, bytes: usize) -> Any {
    let endpoint = |address| {
        let socket = Some(SocketAddress { address, port: 8080 });
        LbEndpoint { endpoint: Some(Endpoint { address: Some(Address { socket }) }) }
    };
    let localities = vec![LocalityEndpoints { endpoints: addresses.map(endpoint).collect() }];
    let body = LoadAssignment { cluster: name.to_owned(), localities };
    let mut body = body.encode_to_vec();
    if let Some(missing) = bytes.checked_sub(body.len()).filter(|missing| *missing > 0) {
        // An unknown field as padding.
        prost::encoding::bytes::encode(2_000, &vec![0_u8; missing], &mut body);
    }
    Any { type_url: EDS.into(), value: body.into() }
}

fn addresses(index: usize, endpoints: usize) -> impl Iterator<Item = String> {
    (0..endpoints).map(move |k| format!("10.{}.{}.{}", index / 250, index % 250, k + 1))
}

fn hash_of<'a>(names: impl Iterator<Item = &'a [u8]>) -> u64 {
    names.fold(0, |sum, name| xxhash_rust::xxh3::xxh3_64(name).wrapping_add(sum))
}

impl Hub {
    pub(super) fn new(clusters: usize, endpoints: usize) -> Self {
        let names: Vec<String> = (0..clusters).map(cluster_name).collect();
        let loads = names
            .iter()
            .enumerate()
            .map(|(k, name)| (name.clone(), (1, load(name, addresses(k, endpoints), 0))));
        let state = State {
            loads: loads.collect(),
            clusters: names.iter().map(|name| (name.clone(), cluster(name))).collect(),
            changes: Vec::new(),
        };
        Self {
            endpoints,
            state: RwLock::new(state),
            groups: Mutex::new(Groups { sets: vec![Arc::default()], by_hash: HashMap::from([(0, 0)]) }),
            cache: Mutex::default(),
            version: AtomicU64::new(1),
            changed: watch::Sender::new(1),
            wakers: Wakers::default(),
        }
    }

    /// Changes the address of the first endpoint of the first cluster, pads its load assignment to that size,
    /// and wakes all streams.
    pub(super) fn change(&self, address: &str, bytes: usize) {
        let name = cluster_name(0);
        let all = std::iter::once(address.to_owned()).chain(addresses(0, self.endpoints).skip(1));
        let load = load(&name, all, bytes);
        let version = {
            let mut state = self.state.write();
            let version = self.version.load(Ordering::Acquire) + 1;
            state.loads.insert(name.clone(), (version, load));
            state.changes.push((version, name));
            if state.changes.len() > KEPT_CHANGES {
                state.changes.drain(..KEPT_CHANGES / 2);
            }
            self.version.store(version, Ordering::Release);
            version
        };
        self.changed.send_replace(version);
        self.wakers.wake();
    }

    fn cached(&self, key: Key, make: impl FnOnce(&State) -> Option<DeltaResponse>) -> Bytes {
        let mut cache = self.cache.lock();
        if let Some(bytes) = cache.get(&key) {
            return bytes.clone();
        }
        let bytes =
            make(&self.state.read()).map(|response| framed(&response.encode_to_vec())).unwrap_or_default();
        if cache.len() >= KEPT_ANSWERS {
            cache.clear();
        }
        cache.insert(key, bytes.clone());
        bytes
    }

    fn answer(&self, version: u64, url: &[u8], names: &[&[u8]]) -> Bytes {
        let kind = [CDS, EDS, RDS].iter().position(|known| known.as_bytes() == url).unwrap_or(3);
        let key = Key::Answer(u8::try_from(kind).unwrap_or(3), version, hash_of(names.iter().copied()));
        self.cached(key, |state| {
            let mut response = response(version, &String::from_utf8_lossy(url));
            match kind {
                0 => {
                    let all = state.clusters.iter().map(|(name, body)| resource(1, name, body));
                    response.resources = all.collect();
                }
                1 => {
                    for name in names.iter().map(|name| String::from_utf8_lossy(name)) {
                        match state.loads.get(name.as_ref()) {
                            Some((version, body)) => response.resources.push(resource(*version, &name, body)),
                            None => response.removed_resources.push(name.into_owned()),
                        }
                    }
                }
                _ => {}
            }
            Some(response)
        })
    }

    /// Changes for this stream since the last call, as a gRPC frame; empty if there are none.
    pub(super) fn push(&self, peer: &mut Peer) -> Bytes {
        let (from, to) = (peer.has, self.version.load(Ordering::Acquire));
        if from == to {
            return Bytes::new();
        }
        peer.has = to;
        let group = peer.group;
        self.cached(Key::Push(from, to, group), |state| {
            let names = self.groups.lock().sets.get(group).cloned()?;
            let newer = state.changes.iter().rev().take_while(|(version, _)| *version > from);
            let changed: HashSet<&String> =
                newer.map(|(_, name)| name).filter(|name| names.contains(*name)).collect();
            let resources: Vec<Resource> = changed
                .into_iter()
                .filter_map(|name| {
                    state.loads.get(name).map(|(version, body)| resource(*version, name, body))
                })
                .collect();
            (!resources.is_empty()).then(|| DeltaResponse { resources, ..response(to, EDS) })
        })
    }

    /// Handles one request; returns the response as a gRPC frame, if there is one.
    pub(super) fn request(&self, peer: &mut Peer, message: &[u8]) -> Option<Bytes> {
        let (mut url, mut added, mut removed) = (&b""[..], Vec::new(), Vec::new());
        for (number, field) in fields(message) {
            match number {
                2 => url = field,
                3 => added.push(field),
                4 => removed.push(field),
                _ => {}
            }
        }
        let first = !peer.subscribed.iter().any(|known| known == url);
        if !first && added.is_empty() && removed.is_empty() {
            // An ACK costs this look-up, independent of the size of the subscription.
            return None;
        }
        if first {
            peer.subscribed.push(url.to_vec());
        }
        if url == EDS.as_bytes() {
            peer.group = self.groups.lock().joined(peer.group, &added, &removed);
        }
        if !first && added.is_empty() {
            return None;
        }
        let version = self.version.load(Ordering::Acquire);
        if peer.has == 0 {
            peer.has = version;
        }
        Some(self.answer(version, url, &added))
    }
}

fn response(version: u64, url: &str) -> DeltaResponse {
    let version = version.to_string();
    DeltaResponse {
        system_version_info: version.clone(),
        type_url: url.to_owned(),
        nonce: version,
        ..Default::default()
    }
}

fn resource(version: u64, name: &str, body: &Any) -> Resource {
    Resource { version: version.to_string(), name: name.to_owned(), resource: Some(body.clone()) }
}

impl Groups {
    /// Group with the names of another one after a change.
    fn joined(&mut self, group: usize, added: &[&[u8]], removed: &[&[u8]]) -> usize {
        let mut names = self.sets.get(group).map(|set| HashSet::clone(set)).unwrap_or_default();
        for name in removed {
            names.remove(String::from_utf8_lossy(name).as_ref());
        }
        names.extend(added.iter().map(|name| String::from_utf8_lossy(name).into_owned()));
        let hash = hash_of(names.iter().map(String::as_bytes));
        *self.by_hash.entry(hash).or_insert_with(|| {
            self.sets.push(Arc::new(names));
            self.sets.len() - 1
        })
    }
}

/// Tasks to wake on a change: one list, without a lock or queue for each stream.
#[derive(Default)]
pub(super) struct Wakers(Mutex<Slots>);

#[derive(Default)]
struct Slots {
    wakers: Vec<Option<Waker>>,
    free: Vec<usize>,
}

impl Wakers {
    pub(super) fn join(&self, waker: Waker) -> usize {
        let mut slots = self.0.lock();
        let slot = slots.free.pop().unwrap_or(slots.wakers.len());
        if slot == slots.wakers.len() {
            slots.wakers.push(None);
        }
        if let Some(place) = slots.wakers.get_mut(slot) {
            *place = Some(waker);
        }
        slot
    }

    pub(super) fn leave(&self, slot: usize) {
        let mut slots = self.0.lock();
        if let Some(place) = slots.wakers.get_mut(slot) {
            *place = None;
            slots.free.push(slot);
        }
    }

    fn wake(&self) {
        for waker in self.0.lock().wakers.iter().flatten() {
            waker.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{DeltaRequest, LDS};

    fn request(url: &str, subscribe: &[String], nonce: &str) -> Vec<u8> {
        let subscribe = subscribe.to_vec();
        DeltaRequest { type_url: url.into(), subscribe, response_nonce: nonce.into(), ..Default::default() }
            .encode_to_vec()
    }

    fn decoded(frame: &Bytes) -> DeltaResponse {
        DeltaResponse::decode(frame.slice(5..)).expect("a response")
    }

    #[test]
    fn a_stream_gets_what_it_subscribed_to_and_then_what_changed() {
        let hub = Hub::new(3, 2);
        let mut peer = Peer::default();
        let clusters = decoded(&hub.request(&mut peer, &request(CDS, &[], "")).expect("clusters"));
        assert_eq!(clusters.resources.len(), 3);
        assert!(hub.request(&mut peer, &request(CDS, &[], "1")).is_none(), "an acknowledgement");
        let names = [cluster_name(0), "none".to_owned()];
        let loads = decoded(&hub.request(&mut peer, &request(EDS, &names, "")).expect("loads"));
        assert_eq!((loads.resources.len(), loads.removed_resources.len()), (1, 1));
        let listeners = decoded(&hub.request(&mut peer, &request(LDS, &[], "")).expect("an empty answer"));
        assert!(listeners.resources.is_empty());
        assert!(hub.push(&mut peer).is_empty(), "nothing changed");
        hub.change("10.250.0.100", 0);
        let push = hub.push(&mut peer);
        assert!(push.windows(12).any(|part| part == b"10.250.0.100"));
        assert!(hub.push(&mut peer).is_empty(), "only once");
    }

    #[test]
    fn a_stream_that_did_not_subscribe_gets_no_push() {
        let hub = Hub::new(3, 2);
        let mut peer = Peer::default();
        hub.request(&mut peer, &request(EDS, &[cluster_name(2)], ""));
        hub.change("10.250.0.100", 0);
        assert!(hub.push(&mut peer).is_empty());
    }
}
