//! A source in memory.

use bytes::Bytes;
use parking_lot::Mutex;
use pilotfish_proto::ResourceType::{self, Cluster, Endpoint, NameTable, Route};
use pilotfish_proto::envoy::config::cluster::v3 as cluster;
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_proto::{Any, any};
use pilotfish_xds::{
    Change, ChangeKind, ClientId, Collection, CollectionState, ConnectError, PeerInfo, Publication, Resource,
    ResourceSource, Snapshot, ViewId,
};
use prost::Message;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Existing resources by view and name.
#[derive(Clone, Default)]
struct State {
    revision: u64,
    resources: BTreeMap<(ViewId, Arc<str>), Resource>,
    /// Class of each client, which is part of its views.
    classes: BTreeMap<ClientId, u32>,
}

/// Resources of two classes of clients, and changes since the last publication.
#[derive(Default)]
pub(super) struct Memory {
    state: Mutex<Arc<State>>,
    pending: Mutex<Publication>,
    clients: AtomicU64,
    gone: Arc<AtomicU64>,
}

pub(super) struct Client {
    id: ClientId,
    gone: Arc<AtomicU64>,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.gone.fetch_add(1, Ordering::SeqCst);
    }
}

fn view(class: u32, ty: ResourceType) -> ViewId {
    let at = ResourceType::ALL.iter().position(|other| *other == ty).unwrap_or_default();
    ViewId(class * 100 + u32::try_from(at).unwrap_or_default())
}

/// A small stable hash; never zero.
pub(super) fn version(body: &[u8]) -> u64 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    body.iter().fold(0xcbf2_9ce4_8422_2325, mix) | 1
}

/// Encoded resource with that content.
pub(super) fn body(ty: ResourceType, name: &str, content: &str) -> Bytes {
    let packed = if ty == Cluster {
        any(&cluster::Cluster {
            name: name.into(),
            alt_stat_name: content.into(),
            cluster_discovery_type: Some(cluster::cluster::ClusterDiscoveryType::Type(3)),
            ..Default::default()
        })
    } else {
        Any { type_url: ty.type_url().into(), value: format!("{name}={content}").into_bytes() }
    };
    packed.encode_to_vec().into()
}

fn resource(ty: ResourceType, name: &str, content: &str, changed_at: u64) -> Resource {
    let body = body(ty, name, content);
    Resource { name: name.into(), version: version(&body), body, changed_at, stands_in: false }
}

impl Memory {
    /// Sets or removes a resource of a class.
    pub(super) fn set(&self, class: u32, ty: ResourceType, name: &str, content: Option<usize>) {
        let mut state = self.state.lock();
        let state = Arc::make_mut(&mut state);
        let (view, key) = (view(class, ty), Arc::<str>::from(name));
        let kind = if let Some(content) = content {
            let resource = resource(ty, name, &content.to_string(), state.revision + 1);
            state.resources.insert((view, Arc::clone(&key)), resource);
            ChangeKind::Upsert
        } else {
            state.resources.remove(&(view, Arc::clone(&key)));
            ChangeKind::Remove
        };
        self.pending.lock().changes.push(Change { view, ty, name: key, kind });
    }

    /// Moves a client to another class.
    pub(super) fn move_client(&self, client: ClientId, class: u32) {
        Arc::make_mut(&mut self.state.lock()).classes.insert(client, class);
        self.pending.lock().view_changed.push(client);
    }

    /// Ends a state; returns its changes from the last one.
    pub(super) fn commit(&self) -> Publication {
        let mut state = self.state.lock();
        let state = Arc::make_mut(&mut state);
        state.revision += 1;
        let mut publication = std::mem::take(&mut *self.pending.lock());
        publication.revision = state.revision;
        publication
    }

    /// Versions of all resources of a client.
    pub(super) fn all(&self, client: ClientId, ty: ResourceType) -> BTreeMap<String, u64> {
        let state = self.state.lock();
        let view = view(state.classes.get(&client).copied().unwrap_or_default(), ty);
        let own = state.resources.iter().filter(|((other, _), _)| *other == view);
        own.map(|((_, name), resource)| (name.to_string(), resource.version)).collect()
    }

    /// Number of accepted clients that have not disconnected.
    pub(super) fn connected(&self) -> u64 {
        self.clients.load(Ordering::SeqCst) - self.gone.load(Ordering::SeqCst)
    }
}

pub(super) struct Seen(Arc<State>);

impl Snapshot<Client> for Seen {
    fn revision(&self) -> u64 {
        self.0.revision
    }

    fn view(&self, client: &Client, ty: ResourceType) -> Option<ViewId> {
        let class = self.0.classes.get(&client.id).copied().unwrap_or_default();
        (ty != NameTable).then(|| view(class, ty))
    }

    fn names(&self, view: ViewId) -> Arc<[Arc<str>]> {
        self.0
            .resources
            .keys()
            .filter(|(other, _)| *other == view)
            .map(|(_, name)| Arc::clone(name))
            .collect()
    }

    fn get(&self, view: ViewId, name: &str) -> Option<Resource> {
        let known = self.0.resources.get(&(view, Arc::from(name))).cloned();
        let ty = ResourceType::ALL.get(view.0 as usize % 100).copied();
        known.or_else(|| ty.filter(|ty| matches!(ty, Endpoint | Route)).map(|ty| resource(ty, name, "", 0)))
    }
}

impl ResourceSource for Memory {
    type Client = Client;
    type Snapshot<'a> = Seen;

    fn ready(&self) -> bool {
        true
    }

    fn connect(&self, node: &Node, _: &PeerInfo) -> Result<Client, ConnectError> {
        if node.id == "bad" {
            return Err(ConnectError::InvalidArgument("node id has no namespace".into()));
        }
        let id = ClientId(self.clients.fetch_add(1, Ordering::SeqCst));
        Ok(Client { id, gone: Arc::clone(&self.gone) })
    }

    fn client_id(&self, client: &Client) -> ClientId {
        client.id
    }

    fn serves_collection(&self, _: &Client, type_url: &str, _: &[&str]) -> Result<bool, ConnectError> {
        Ok(type_url.starts_with("config/"))
    }

    fn collection(&self, _: &Client, _: &str) -> CollectionState {
        let made = Arc::new(resource(Endpoint, "x", "1", 1));
        CollectionState::Is(Collection::unit(Arc::clone(&made.name), made))
    }

    fn snapshot(&self) -> Seen {
        Seen(Arc::clone(&self.state.lock()))
    }
}
