//! A source in memory, and a client that uses a stream without a network.

use bytes::Bytes;
use parking_lot::Mutex;
use pilotfish_proto::ResourceType::{self, Cluster, Endpoint, Route};
use pilotfish_proto::envoy::config::cluster::v3 as cluster;
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_proto::envoy::service::discovery::v3 as discovery;
use pilotfish_proto::{Any, any};
use pilotfish_xds::{
    Change, ChangeKind, ClientId, Collection, CollectionState, ConnectError, Fanout, Held, NoRecorder,
    PeerInfo, PrivateSecret, Protocol, Publication, Recorder, Resource, ResourceSource, SecretsChanged,
    Snapshot, Stream, StreamError, StreamLimits, ViewId,
};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What exists: by view and name.
#[derive(Clone, Default)]
pub(crate) struct World {
    revision: u64,
    resources: BTreeMap<(ViewId, Arc<str>), Resource>,
    /// The class of each client: part of its views.
    classes: BTreeMap<ClientId, u32>,
    /// Classes that see the resources of others, of types that are taken as a whole: by the first that has a
    /// name.
    compositions: BTreeMap<u32, Vec<u32>>,
}

impl World {
    fn parts(&self, view: ViewId) -> Vec<ViewId> {
        let ty = type_of(view);
        let classes = self.compositions.get(&(view.0 / 100)).filter(|_| ty.is_wildcard());
        classes.map_or_else(
            || vec![view],
            |classes| classes.iter().map(|class| self::view(*class, ty)).collect(),
        )
    }

    fn names(&self, view: ViewId) -> BTreeSet<Arc<str>> {
        let parts = self.parts(view);
        let keys = self.resources.keys().filter(|(other, _)| parts.contains(other));
        keys.map(|(_, name)| Arc::clone(name)).collect()
    }

    fn get(&self, view: ViewId, name: &str) -> Option<&Resource> {
        self.parts(view).into_iter().find_map(|part| self.resources.get(&(part, Arc::from(name))))
    }
}

#[derive(Default)]
pub(crate) struct Memory {
    world: Mutex<Arc<World>>,
    pending: Mutex<Publication>,
    clients: AtomicU64,
    pub(crate) not_ready: AtomicBool,
    /// Health that clients reported.
    pub(crate) reported: Mutex<Vec<Option<String>>>,
    pub(crate) gone: Arc<Mutex<Vec<ClientId>>>,
    /// Names that nobody subscribed to any more.
    pub(crate) free: Mutex<Vec<String>>,
    /// By type URL; `None` for one that is not made yet.
    pub(crate) collections: Mutex<BTreeMap<String, Option<Collection>>>,
    /// What is answered once.
    pub(crate) answers: Mutex<BTreeMap<String, (Collection, Held)>>,
    /// The next state always waits for the one that is read.
    pub(crate) is_waited_for: AtomicBool,
    /// What load assignments and routes of unknown names are: stand-ins, or, as most tests have it, all that
    /// there is of them.
    pub(crate) knows_absent: AtomicBool,
    /// Snapshots that were taken.
    pub(crate) snapshots: AtomicU64,
    /// Resources that were read.
    pub(crate) reads: Arc<AtomicU64>,
    /// Secrets of single clients, by name; `None` if there are no such names.
    pub(crate) private: Mutex<Option<BTreeMap<(ClientId, String), PrivateSecret>>>,
    /// Handles of the clients that have read one.
    pub(crate) changed: Mutex<BTreeMap<ClientId, SecretsChanged>>,
    /// Every type is a collection, as for a client that wants nothing else.
    pub(crate) all_collections: AtomicBool,
}

pub(crate) struct Client {
    id: ClientId,
    gone: Arc<Mutex<Vec<ClientId>>>,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.gone.lock().push(self.id);
    }
}

/// The class of clients of which it is not known yet if they see secrets.
pub(crate) const WITHOUT_SECRETS: u32 = 7;
/// The class of clients that never see any.
pub(crate) const REFUSED_SECRETS: u32 = 8;

pub(crate) fn view(class: u32, ty: ResourceType) -> ViewId {
    let at = ResourceType::ALL.iter().position(|other| *other == ty).unwrap();
    ViewId(class * 100 + u32::try_from(at).unwrap())
}

fn type_of(view: ViewId) -> ResourceType {
    ResourceType::ALL[view.0 as usize % 100]
}

/// A small stable hash; never zero.
pub(crate) fn version(body: &[u8]) -> u64 {
    body.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    }) | 1
}

pub(crate) fn body(ty: ResourceType, name: &str, content: &str) -> Bytes {
    let packed = if ty == Cluster {
        let eds = Some(cluster::cluster::ClusterDiscoveryType::Type(3));
        any(&cluster::Cluster {
            name: name.into(),
            alt_stat_name: content.into(),
            cluster_discovery_type: eds,
            ..Default::default()
        })
    } else {
        Any { type_url: ty.type_url().into(), value: format!("{name}={content}").into_bytes() }
    };
    packed.encode_to_vec().into()
}

impl Memory {
    pub(crate) fn set(&self, class: u32, ty: ResourceType, name: &str, content: &str) {
        self.change(class, ty, name, Some(content));
    }

    pub(crate) fn remove(&self, class: u32, ty: ResourceType, name: &str) {
        self.change(class, ty, name, None);
    }

    fn change(&self, class: u32, ty: ResourceType, name: &str, content: Option<&str>) {
        let mut pending = self.pending.lock();
        let mut world = self.world.lock();
        let world = Arc::make_mut(&mut world);
        let (view, name) = (view(class, ty), Arc::<str>::from(name));
        let kind = if let Some(content) = content {
            let body = body(ty, &name, content);
            let resource = Resource {
                name: Arc::clone(&name),
                version: version(&body),
                body,
                changed_at: world.revision + 1,
                stands_in: false,
            };
            world.resources.insert((view, Arc::clone(&name)), resource);
            ChangeKind::Upsert
        } else {
            world.resources.remove(&(view, Arc::clone(&name)));
            ChangeKind::Remove
        };
        pending.changes.push(Change { view, ty, name, kind });
    }

    /// From now on, and for ever, a class sees these.
    pub(crate) fn compose(&self, class: u32, parts: &[u32]) {
        Arc::make_mut(&mut self.world.lock()).compositions.insert(class, parts.to_vec());
    }

    /// Moves a client to another class.
    pub(crate) fn move_client(&self, client: ClientId, class: u32) {
        Arc::make_mut(&mut self.world.lock()).classes.insert(client, class);
        self.pending.lock().view_changed.push(client);
    }

    /// Ends a state: what changed since the last.
    pub(crate) fn commit(&self) -> Publication {
        let mut world = self.world.lock();
        let world = Arc::make_mut(&mut world);
        world.revision += 1;
        let mut publication = std::mem::take(&mut *self.pending.lock());
        publication.revision = world.revision;
        publication
    }

    /// Everything in a view.
    pub(crate) fn all(&self, class: u32, ty: ResourceType) -> BTreeMap<String, u64> {
        let view = view(class, ty);
        let world = self.world.lock();
        let names = world.names(view).into_iter();
        names.map(|name| (name.to_string(), world.get(view, &name).unwrap().version)).collect()
    }
}

/// A state of the source.
pub(crate) struct Seen {
    world: Arc<World>,
    is_waited_for: bool,
    is_absent: bool,
    /// Whether a wildcard is computed: where somebody waits, only in every second snapshot.
    is_prepared: bool,
    reads: Arc<AtomicU64>,
}

impl Snapshot<Client> for Seen {
    fn revision(&self) -> u64 {
        self.world.revision
    }

    fn is_waited_for(&self) -> bool {
        self.is_waited_for
    }

    fn prepare(&self, _: ViewId) -> bool {
        self.is_prepared
    }

    fn view(&self, client: &Client, ty: ResourceType) -> Option<ViewId> {
        let class = self.world.classes.get(&client.id).copied().unwrap_or(0);
        let is_served = match ty {
            ResourceType::NameTable => false,
            ResourceType::Secret => class != WITHOUT_SECRETS && class != REFUSED_SECRETS,
            _ => true,
        };
        is_served.then(|| view(class, ty))
    }

    fn is_undecided(&self, client: &Client, ty: ResourceType) -> bool {
        ty == ResourceType::Secret && self.world.classes.get(&client.id) == Some(&WITHOUT_SECRETS)
    }

    fn parts(&self, view: ViewId) -> Arc<[ViewId]> {
        self.world.parts(view).into()
    }

    fn names(&self, view: ViewId) -> Arc<[Arc<str>]> {
        self.world.names(view).into_iter().collect()
    }

    fn get(&self, view: ViewId, name: &str) -> Option<Resource> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        let known = self.world.get(view, name).cloned();
        known.or_else(|| {
            let ty = type_of(view);
            matches!(ty, Endpoint | Route).then(|| {
                let body = body(ty, name, "");
                Resource {
                    name: name.into(),
                    version: version(&body),
                    body,
                    changed_at: 0,
                    stands_in: self.is_absent,
                }
            })
        })
    }
}

impl ResourceSource for Memory {
    type Client = Client;
    type Snapshot<'a> = Seen;

    fn ready(&self) -> bool {
        !self.not_ready.load(Ordering::SeqCst)
    }

    fn connect(&self, node: &Node, _: &PeerInfo) -> Result<Client, ConnectError> {
        match node.id.as_str() {
            "bad" => Err(ConnectError::InvalidArgument("node id has no namespace".into())),
            "early" => Err(ConnectError::FailedPrecondition("its group is not there".into())),
            "foreign" => Err(ConnectError::PermissionDenied("not in its namespace".into())),
            _ => {
                let id = ClientId(self.clients.fetch_add(1, Ordering::SeqCst));
                Ok(Client { id, gone: Arc::clone(&self.gone) })
            }
        }
    }

    fn client_id(&self, client: &Client) -> ClientId {
        client.id
    }

    fn reported_health(&self, _: &Client, problem: Option<&str>) {
        self.reported.lock().push(problem.map(str::to_owned));
    }

    fn unsubscribed(&self, _: ViewId, names: &[Arc<str>], is_subscribed: &dyn Fn(&str) -> bool) {
        let free = names.iter().filter(|name| !is_subscribed(name));
        self.free.lock().extend(free.map(ToString::to_string));
    }

    fn private_secrets(&self) -> &[&str] {
        if self.private.lock().is_some() { &["default", "ROOTCA"] } else { &[] }
    }

    fn private_secret(&self, client: &Client, name: &str, changed: &SecretsChanged) -> PrivateSecret {
        self.changed.lock().insert(client.id, changed.clone());
        let private = self.private.lock();
        let found = private.as_ref().and_then(|all| all.get(&(client.id, name.to_owned())));
        found.cloned().unwrap_or(PrivateSecret::NotYet)
    }

    fn serves_collection(&self, _: &Client, type_url: &str, _: &[&str]) -> Result<bool, ConnectError> {
        match type_url {
            "config/secret" => Err(ConnectError::Unauthenticated("who are you".into())),
            url => Ok(url.starts_with("config/") || self.all_collections.load(Ordering::SeqCst)),
        }
    }

    fn collection(&self, _: &Client, type_url: &str) -> CollectionState {
        if let Some((collection, held)) = self.answers.lock().remove(type_url) {
            return CollectionState::Once(collection, held);
        }
        match self.collections.lock().get(type_url) {
            Some(None) => CollectionState::NotYet,
            Some(Some(collection)) => CollectionState::Is(collection.clone()),
            None => CollectionState::Is(Collection::new()),
        }
    }

    fn snapshot(&self) -> Seen {
        let number = self.snapshots.fetch_add(1, Ordering::SeqCst);
        let is_waited_for = self.is_waited_for.load(Ordering::SeqCst);
        let is_prepared = !is_waited_for || number.is_multiple_of(2);
        let (world, reads) = (Arc::clone(&self.world.lock()), Arc::clone(&self.reads));
        let is_absent = self.knows_absent.load(Ordering::SeqCst);
        Seen { world, is_waited_for, is_absent, is_prepared, reads }
    }
}

pub(crate) fn fanout() -> Arc<Fanout<Memory>> {
    fanout_with(Arc::new(NoRecorder), StreamLimits::default())
}

/// A source that tells names of nothing from those of empty resources.
pub(crate) fn fanout_that_knows_absent() -> Arc<Fanout<Memory>> {
    let fanout = fanout();
    fanout.source().knows_absent.store(true, Ordering::SeqCst);
    fanout
}

pub(crate) fn fanout_with(recorder: Arc<dyn Recorder>, limits: StreamLimits) -> Arc<Fanout<Memory>> {
    Fanout::new(Arc::new(Memory::default()), recorder, limits)
}

/// A response, decoded.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Got {
    pub(crate) ty: ResourceType,
    pub(crate) nonce: String,
    pub(crate) version: String,
    /// Name (or, state of the world, content) and version.
    pub(crate) resources: Vec<(String, String)>,
    pub(crate) removed: Vec<String>,
}

impl Got {
    pub(crate) fn names(&self) -> Vec<&str> {
        self.resources.iter().map(|(name, _)| name.as_str()).collect()
    }
}

/// A client without a network, with time in its own hands.
pub(crate) struct Peer {
    pub(crate) stream: Arc<Mutex<Stream<Memory>>>,
    pub(crate) protocol: Protocol,
    pub(crate) now: Instant,
    first: bool,
    pub(crate) node: Node,
}

impl Peer {
    pub(crate) fn new(fanout: &Arc<Fanout<Memory>>, protocol: Protocol) -> Self {
        let node = Node {
            id: "sidecar~10.0.0.1~a.ns~ns.svc.cluster.local".into(),
            user_agent_name: "envoy".into(),
            ..Default::default()
        };
        Self {
            stream: fanout.open(protocol, PeerInfo::default()),
            protocol,
            now: Instant::now(),
            first: true,
            node,
        }
    }

    pub(crate) fn delta(fanout: &Arc<Fanout<Memory>>) -> Self {
        Self::new(fanout, Protocol::Delta)
    }

    pub(crate) fn sotw(fanout: &Arc<Fanout<Memory>>) -> Self {
        Self::new(fanout, Protocol::Sotw)
    }

    pub(crate) fn later(&mut self, by: Duration) {
        self.now += by;
    }

    fn node(&mut self) -> Option<Node> {
        std::mem::take(&mut self.first).then(|| self.node.clone())
    }

    pub(crate) fn send_delta(
        &mut self,
        mut request: discovery::DeltaDiscoveryRequest,
    ) -> Result<(), StreamError> {
        request.node = self.node();
        self.stream.lock().on_message(&request.encode_to_vec(), self.now).map(drop)
    }

    pub(crate) fn send_sotw(&mut self, mut request: discovery::DiscoveryRequest) -> Result<(), StreamError> {
        request.node = self.node();
        self.stream.lock().on_message(&request.encode_to_vec(), self.now).map(drop)
    }

    /// Subscribes: names and nonce as the protocol wants them.
    pub(crate) fn ask(&mut self, ty: ResourceType, names: &[&str]) {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let done = match self.protocol {
            Protocol::Delta => self.send_delta(discovery::DeltaDiscoveryRequest {
                type_url: ty.type_url().into(),
                resource_names_subscribe: names,
                ..Default::default()
            }),
            Protocol::Sotw => self.send_sotw(discovery::DiscoveryRequest {
                type_url: ty.type_url().into(),
                resource_names: names,
                ..Default::default()
            }),
        };
        done.expect("the request is taken in");
    }

    pub(crate) fn unsubscribe(&mut self, ty: ResourceType, names: &[&str]) {
        self.send_delta(discovery::DeltaDiscoveryRequest {
            type_url: ty.type_url().into(),
            resource_names_unsubscribe: names.iter().map(|name| (*name).to_owned()).collect(),
            ..Default::default()
        })
        .expect("the request is taken in");
    }

    /// Subscribes with what the client has from an earlier stream.
    pub(crate) fn resume(&mut self, ty: ResourceType, names: &[&str], have: &[(String, String)]) {
        self.send_delta(discovery::DeltaDiscoveryRequest {
            type_url: ty.type_url().into(),
            resource_names_subscribe: names.iter().map(|name| (*name).to_owned()).collect(),
            initial_resource_versions: have.iter().cloned().collect(),
            ..Default::default()
        })
        .expect("the request is taken in");
    }

    /// State of the world: a request with names and a nonce, as an ACK is.
    pub(crate) fn answer(&mut self, ty: ResourceType, names: &[&str], nonce: &str) {
        self.send_sotw(discovery::DiscoveryRequest {
            type_url: ty.type_url().into(),
            resource_names: names.iter().map(|name| (*name).to_owned()).collect(),
            response_nonce: nonce.into(),
            ..Default::default()
        })
        .expect("the request is taken in");
    }

    pub(crate) fn ack(&mut self, got: &Got) {
        self.send_delta(discovery::DeltaDiscoveryRequest {
            type_url: got.ty.type_url().into(),
            response_nonce: got.nonce.clone(),
            ..Default::default()
        })
        .expect("the request is taken in");
    }

    pub(crate) fn nack(&mut self, got: &Got, names: &[&str], error: &str) {
        let error_detail = Some(pilotfish_proto::google::rpc::Status {
            code: 13,
            message: error.into(),
            ..Default::default()
        });
        let (type_url, response_nonce) = (got.ty.type_url().into(), got.nonce.clone());
        let done = match self.protocol {
            Protocol::Delta => self.send_delta(discovery::DeltaDiscoveryRequest {
                type_url,
                response_nonce,
                error_detail,
                ..Default::default()
            }),
            Protocol::Sotw => self.send_sotw(discovery::DiscoveryRequest {
                type_url,
                response_nonce,
                error_detail,
                resource_names: names.iter().map(|name| (*name).to_owned()).collect(),
                ..Default::default()
            }),
        };
        done.expect("the request is taken in");
    }

    /// The next response.
    pub(crate) fn next(&mut self) -> Option<Got> {
        let response = self.stream.lock().poll_response(self.now)?;
        let frame = response.concat();
        assert_eq!(u32::from_be_bytes(frame[1..5].try_into().unwrap()) as usize, frame.len() - 5);
        Some(decode(self.protocol, &frame[5..]))
    }

    /// All responses that there are, each acknowledged at once (delta).
    pub(crate) fn settle(&mut self) -> Vec<Got> {
        let mut all = Vec::new();
        while let Some(got) = self.next() {
            self.ack(&got);
            all.push(got);
        }
        all
    }

    /// All responses that there are, none acknowledged.
    pub(crate) fn drain(&mut self) -> Vec<Got> {
        std::iter::from_fn(|| self.next()).collect()
    }
}

pub(crate) fn decode(protocol: Protocol, message: &[u8]) -> Got {
    match protocol {
        Protocol::Delta => {
            let message = discovery::DeltaDiscoveryResponse::decode(message).unwrap();
            let names: BTreeSet<_> = message.resources.iter().map(|resource| &resource.name).collect();
            assert_eq!(names.len(), message.resources.len(), "a name is in a response once");
            Got {
                ty: ResourceType::from_type_url(&message.type_url).unwrap(),
                nonce: message.nonce,
                version: message.system_version_info,
                resources: message.resources.into_iter().map(|r| (r.name, r.version)).collect(),
                removed: message.removed_resources,
            }
        }
        Protocol::Sotw => {
            let message = discovery::DiscoveryResponse::decode(message).unwrap();
            let resource = |any: Any| {
                let hash = format!("{:016x}", version(&any.encode_to_vec()));
                let name = if any.type_url == Cluster.type_url() {
                    cluster::Cluster::decode(&any.value[..]).unwrap().name
                } else {
                    String::from_utf8_lossy(&any.value).split('=').next().unwrap_or_default().to_owned()
                };
                (name, hash)
            };
            Got {
                ty: ResourceType::from_type_url(&message.type_url).unwrap(),
                nonce: message.nonce,
                version: message.version_info,
                resources: message.resources.into_iter().map(resource).collect(),
                removed: Vec::new(),
            }
        }
    }
}
