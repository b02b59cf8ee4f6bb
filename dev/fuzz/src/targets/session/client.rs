//! A client that follows the protocol, with its state.

use super::source::{Memory, body, version};
use super::{NAMES, TYPES};
use parking_lot::Mutex;
use pilotfish_proto::Any;
use pilotfish_proto::ResourceType::{self, Cluster, Endpoint, Route};
use pilotfish_proto::envoy::config::cluster::v3 as cluster;
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_proto::envoy::service::discovery::v3 as discovery;
use pilotfish_proto::google::rpc::Status;
use pilotfish_xds::{ClientId, Fanout, PeerInfo, Protocol, Stream};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Message of a gRPC frame.
pub(super) fn unframed(frame: &[u8]) -> &[u8] {
    let (head, body) = frame.split_at(5);
    let length = head.iter().skip(1).fold(0, |length, byte| length << 8 | usize::from(*byte));
    assert_eq!((head[0], length), (0, body.len()), "a frame");
    body
}

/// Response, as decoded by the client.
struct Got {
    ty: ResourceType,
    nonce: String,
    /// Names and versions of the resources.
    resources: Vec<(String, String)>,
    removed: Vec<String>,
}

pub(super) struct Honest {
    fanout: Arc<Fanout<Memory>>,
    stream: Arc<Mutex<Stream<Memory>>>,
    protocol: Protocol,
    now: Instant,
    is_first: bool,
    /// Subscribed names; `None` for the wildcard.
    subscribed: BTreeMap<ResourceType, Option<BTreeSet<String>>>,
    have: BTreeMap<ResourceType, BTreeMap<String, String>>,
    nonces: BTreeMap<ResourceType, String>,
    /// Resources that may be sent again without a change.
    excused: Vec<(ResourceType, String)>,
}

impl Honest {
    pub(super) fn new(fanout: &Arc<Fanout<Memory>>, protocol: Protocol, now: Instant) -> Self {
        let names = |ty: ResourceType| (!ty.is_wildcard()).then(|| BTreeSet::from([NAMES[0].to_owned()]));
        let mut client = Self {
            fanout: Arc::clone(fanout),
            stream: fanout.open(protocol, PeerInfo::default()),
            protocol,
            now,
            is_first: true,
            subscribed: TYPES.into_iter().map(|ty| (ty, names(ty))).collect(),
            have: TYPES.into_iter().map(|ty| (ty, BTreeMap::new())).collect(),
            nonces: BTreeMap::new(),
            excused: Vec::new(),
        };
        client.subscribe_all(false);
        client
    }

    /// Number of the client in the source.
    pub(super) fn number(&self) -> ClientId {
        self.stream.lock().status().map_or(ClientId(u64::MAX), |status| status.client)
    }

    pub(super) fn later(&mut self, by: Duration) {
        self.now += by;
    }

    pub(super) fn reconnect(&mut self, resume: bool) {
        self.stream = self.fanout.open(self.protocol, PeerInfo::default());
        self.is_first = true;
        self.nonces.clear();
        self.subscribe_all(resume && self.protocol == Protocol::Delta);
    }

    fn subscribe_all(&mut self, resume: bool) {
        if resume {
            // Endpoints of a resumed client may be sent once more: its clusters may wait for them.
            self.excused.extend(NAMES.iter().map(|name| (Endpoint, (*name).to_owned())));
        }
        for ty in TYPES {
            if !resume {
                self.have.insert(ty, BTreeMap::new());
            }
            let initial_resource_versions = match resume {
                true => self.have[&ty].clone().into_iter().collect(),
                false => Default::default(),
            };
            self.send(
                ty,
                discovery::DeltaDiscoveryRequest {
                    resource_names_subscribe: self.names(ty),
                    initial_resource_versions,
                    ..Default::default()
                },
                self.names(ty),
            );
        }
    }

    fn names(&self, ty: ResourceType) -> Vec<String> {
        self.subscribed[&ty].iter().flatten().cloned().collect()
    }

    /// Sends a request: as it is, or in the other protocol with these names.
    fn send(
        &mut self,
        ty: ResourceType,
        delta: discovery::DeltaDiscoveryRequest,
        resource_names: Vec<String>,
    ) {
        let id = "sidecar~10.0.0.1~a.ns~ns.svc.cluster.local".to_owned();
        let node = std::mem::take(&mut self.is_first).then(|| Node { id, ..Default::default() });
        let type_url = ty.type_url().to_owned();
        let message = match self.protocol {
            Protocol::Delta => discovery::DeltaDiscoveryRequest { node, type_url, ..delta }.encode_to_vec(),
            Protocol::Sotw => discovery::DiscoveryRequest {
                node,
                type_url,
                resource_names,
                response_nonce: delta.response_nonce,
                error_detail: delta.error_detail,
                ..Default::default()
            }
            .encode_to_vec(),
        };
        let done = self.stream.lock().on_message(&message, self.now);
        assert!(done.is_ok(), "a good request: {done:?}");
    }

    /// Subscribes to names, or unsubscribes.
    pub(super) fn ask(&mut self, ty: ResourceType, names: &[&str], keep: bool) {
        let Some(Some(subscribed)) = self.subscribed.get_mut(&ty) else { return };
        let before = subscribed.clone();
        for name in names {
            if keep {
                subscribed.insert((*name).to_owned());
                self.excused.push((ty, (*name).to_owned()));
            } else if subscribed.len() > 1 && subscribed.remove(*name) {
                self.have.entry(ty).or_default().remove(*name);
            }
        }
        let gone: Vec<String> = before.difference(subscribed).cloned().collect();
        let nonce = self.nonces.get(&ty).cloned().unwrap_or_default();
        if self.protocol == Protocol::Sotw && nonce.is_empty() {
            // Not answered yet: the names are part of the first response.
            self.excused.extend(subscribed.iter().map(|name| (ty, name.clone())));
        }
        let is_sotw = self.protocol == Protocol::Sotw;
        let delta = discovery::DeltaDiscoveryRequest {
            resource_names_subscribe: if keep {
                names.iter().map(|name| (*name).to_owned()).collect()
            } else {
                Vec::new()
            },
            resource_names_unsubscribe: gone,
            response_nonce: if is_sotw { nonce } else { String::new() },
            ..Default::default()
        };
        self.send(ty, delta, self.names(ty));
    }

    /// Handles a response by an ACK, a NACK, or no reply. Returns false if there was no response.
    pub(super) fn poll(&mut self, refuse: bool, answer: bool) -> bool {
        let Some(response) = self.stream.lock().poll_response(self.now) else { return false };
        let got = self.decode(unframed(&response.concat()));
        self.take_in(&got);
        self.nonces.insert(got.ty, got.nonce.clone());
        if answer {
            let error = || Status { code: 13, message: "b: is bad".into(), ..Default::default() };
            if refuse {
                self.excused.extend(got.resources.iter().map(|(name, _)| (got.ty, name.clone())));
            }
            let delta = discovery::DeltaDiscoveryRequest {
                response_nonce: got.nonce,
                error_detail: refuse.then(error),
                ..Default::default()
            };
            self.send(got.ty, delta, self.names(got.ty));
        }
        true
    }

    fn take_in(&mut self, got: &Got) {
        let have = self.have.entry(got.ty).or_default();
        if self.protocol == Protocol::Sotw && got.ty.is_wildcard() {
            have.clear();
        }
        for (name, version) in &got.resources {
            let is_known = have.insert(name.clone(), version.clone()).as_ref() == Some(version);
            let excuse = self.excused.iter().position(|(ty, other)| (*ty, other) == (got.ty, name));
            if let (true, Some(at)) = (is_known, excuse) {
                self.excused.swap_remove(at);
            }
            assert!(!is_known || excuse.is_some(), "{:?} {name} is sent again unchanged", got.ty);
            let subscribed = self.subscribed[&got.ty].as_ref();
            assert!(subscribed.is_none_or(|names| names.contains(name)), "{name} was not subscribed");
            if got.ty == Cluster {
                self.excused.push((Endpoint, name.clone()));
            }
        }
        for name in &got.removed {
            have.remove(name);
        }
    }

    fn decode(&self, message: &[u8]) -> Got {
        let of = |type_url: &str| ResourceType::from_type_url(type_url).expect("a type that was asked for");
        match self.protocol {
            Protocol::Delta => {
                let message = discovery::DeltaDiscoveryResponse::decode(message).expect("a response");
                let names: BTreeSet<_> = message.resources.iter().map(|resource| &resource.name).collect();
                assert_eq!(names.len(), message.resources.len(), "a name is in a response once");
                Got {
                    ty: of(&message.type_url),
                    nonce: message.nonce,
                    resources: message.resources.into_iter().map(|one| (one.name, one.version)).collect(),
                    removed: message.removed_resources,
                }
            }
            Protocol::Sotw => {
                let message = discovery::DiscoveryResponse::decode(message).expect("a response");
                let resources = message.resources.iter().map(named);
                Got {
                    ty: of(&message.type_url),
                    nonce: message.nonce,
                    resources: resources.collect(),
                    removed: Vec::new(),
                }
            }
        }
    }

    /// Lets the client catch up, and compares its resources with the source's.
    pub(super) fn finish(&mut self) {
        for _ in 0..8 {
            while self.poll(false, true) {}
            // State of the world: names that were requested with an old nonce are requested again.
            if self.protocol == Protocol::Sotw {
                for ty in [Endpoint, Route] {
                    self.ask(ty, &[], true);
                }
            }
            self.later(Duration::from_secs(6));
        }
        for ty in TYPES {
            let all = self.fanout.source().all(self.number(), ty);
            let mut expected: BTreeMap<String, String> =
                all.into_iter().map(|(name, version)| (name, format!("{version:016x}"))).collect();
            if let Some(names) = &self.subscribed[&ty] {
                expected.retain(|name, _| names.contains(name));
                for name in names {
                    let empty = format!("{:016x}", version(&body(ty, name, "")));
                    expected.entry(name.clone()).or_insert(empty);
                }
            }
            assert_eq!(self.have[&ty], expected, "{ty:?} of {:?}", self.protocol);
        }
        assert!(!self.poll(false, true), "there is more to come");
        assert!(self.stream.lock().deadline().is_none(), "a deadline is left");
    }
}

/// Name of a resource of our source, and its expected version.
fn named(resource: &Any) -> (String, String) {
    let hash = format!("{:016x}", version(&resource.encode_to_vec()));
    let name = if resource.type_url == Cluster.type_url() {
        cluster::Cluster::decode(&resource.value[..]).expect("a cluster").name
    } else {
        String::from_utf8_lossy(&resource.value).split('=').next().unwrap_or_default().to_owned()
    };
    (name, hash)
}
