//! The source that Envoy is served from: the current play, for any client.

use super::{Play, Refusal};
use bytes::Bytes;
use parking_lot::Mutex;
use pilotfish_proto::envoy::config::cluster::v3::Cluster;
use pilotfish_proto::envoy::config::core::v3::{Node, TypedExtensionConfig, async_data_source::Specifier};
use pilotfish_proto::envoy::config::listener::v3::{Listener, filter};
use pilotfish_proto::envoy::extensions::filters::http::wasm::v3::Wasm as HttpWasm;
use pilotfish_proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use pilotfish_proto::envoy::extensions::filters::network::wasm::v3::Wasm as NetworkWasm;
use pilotfish_proto::envoy::extensions::wasm::v3::{PluginConfig, plugin_config::Vm};
use pilotfish_proto::{Any, ResourceType, any};
use pilotfish_xds::{
    ClientId, ConnectError, Nack, PeerInfo, Push, Recorder, Resource, ResourceSource, Snapshot, ViewId,
};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The one client.
pub(super) const CLIENT: ClientId = ClientId(1);
/// Views are numbered by revision and type.
const TYPES: u64 = 8;

/// What is shown.
struct Scene {
    revision: u64,
    shown: Option<Arc<Play>>,
}

/// See the module.
pub(super) struct Stage {
    scene: Mutex<Arc<Scene>>,
    /// The newest revision of which the stream has seen the listeners.
    seen: AtomicU64,
}

impl Default for Stage {
    fn default() -> Self {
        let empty = Scene { revision: 1, shown: None };
        Self { scene: Mutex::new(Arc::new(empty)), seen: AtomicU64::new(0) }
    }
}

impl Stage {
    /// Puts a play on; returns the new revision.
    pub(super) fn put_on(&self, play: &Arc<Play>) -> u64 {
        let mut scene = self.scene.lock();
        let revision = scene.revision + 1;
        *scene = Arc::new(Scene { revision, shown: Some(play.clone()) });
        revision
    }

    /// Whether the stream knows the listeners of a revision.
    pub(super) fn is_seen(&self, revision: u64) -> bool {
        self.seen.load(Ordering::Acquire) >= revision
    }
}

impl ResourceSource for Stage {
    type Client = ();
    type Snapshot<'a> = Seen<'a>;

    fn ready(&self) -> bool {
        true
    }

    fn connect(&self, _: &Node, _: &PeerInfo) -> Result<(), ConnectError> {
        Ok(())
    }

    fn client_id(&self, (): &()) -> ClientId {
        CLIENT
    }

    fn snapshot(&self) -> Seen<'_> {
        Seen { stage: self, scene: self.scene.lock().clone() }
    }
}

/// One scene, as the stream sees it.
pub(super) struct Seen<'a> {
    stage: &'a Stage,
    scene: Arc<Scene>,
}

impl Seen<'_> {
    /// The type of a view of this scene.
    fn type_of(&self, view: ViewId) -> Option<ResourceType> {
        let view = u64::from(view.0);
        let ty = usize::try_from(view % TYPES).ok().and_then(|at| ResourceType::ALL.get(at).copied());
        ty.filter(|_| view / TYPES == self.scene.revision)
    }
}

impl Snapshot<()> for Seen<'_> {
    fn revision(&self) -> u64 {
        self.scene.revision
    }

    fn view(&self, (): &(), ty: ResourceType) -> Option<ViewId> {
        let at = ResourceType::ALL.iter().position(|other| *other == ty)?;
        let at = self.scene.revision * TYPES + u64::try_from(at).ok()?;
        if let Some(play) = &self.scene.shown {
            play.translator.snapshot().view(&play.client, ty)?;
        }
        u32::try_from(at).ok().map(ViewId)
    }

    fn names(&self, view: ViewId) -> Arc<[Arc<str>]> {
        let Some(play) = &self.scene.shown else { return Arc::default() };
        let Some(ty) = self.type_of(view) else { return Arc::default() };
        if ty == ResourceType::Listener {
            self.stage.seen.fetch_max(self.scene.revision, Ordering::AcqRel);
        }
        let snapshot = play.translator.snapshot();
        snapshot.view(&play.client, ty).map(|view| snapshot.names(view)).unwrap_or_default()
    }

    fn get(&self, view: ViewId, name: &str) -> Option<Resource> {
        let play = self.scene.shown.as_ref()?;
        let ty = self.type_of(view)?;
        let snapshot = play.translator.snapshot();
        let resource = snapshot.get(snapshot.view(&play.client, ty)?, name)?;
        let body = match ty {
            ResourceType::Listener => listener(&resource.body, &play.without),
            ResourceType::ExtensionConfig => fetched(&resource.body),
            ResourceType::Cluster if !play.without.is_empty() => cluster(&resource.body, &play.without),
            _ => resource.body,
        };
        // A version of its own for each scene: what an earlier scene sent is sent again, and judged again.
        let version = resource.version.rotate_left(7) ^ self.scene.revision;
        Some(Resource {
            name: resource.name,
            version: version.max(1),
            body,
            changed_at: self.scene.revision,
            stands_in: resource.stands_in,
        })
    }
}

/// The listener without its socket: ports and addresses of this machine are not the matter. It is all that
/// differs from what a proxy is sent, unless there are filters to leave out.
fn listener(body: &Bytes, without: &BTreeSet<String>) -> Bytes {
    let mut listener: Listener = unpacked(body);
    listener.bind_to_port = Some(false);
    for chain in listener.filter_chains.iter_mut().chain(&mut listener.default_filter_chain) {
        chain.filters.retain(|filter| !without.contains(&filter.name));
        for filter in &mut chain.filters {
            let Some(filter::ConfigType::TypedConfig(packed)) = &mut filter.config_type else { continue };
            if without.is_empty() || packed.type_url != any(&HttpConnectionManager::default()).type_url {
                continue;
            }
            let mut manager =
                HttpConnectionManager::decode(packed.value.as_slice()).expect("a connection manager");
            manager.http_filters.retain(|filter| !without.contains(&filter.name));
            *packed = any(&manager);
        }
    }
    any(&listener).encode_to_vec().into()
}

/// The cluster without those filters.
fn cluster(body: &Bytes, without: &BTreeSet<String>) -> Bytes {
    let mut cluster: Cluster = unpacked(body);
    cluster.filters.retain(|filter| !without.contains(&filter.name));
    any(&cluster).encode_to_vec().into()
}

/// A plugin's configuration with the hash that Istio's agent, which fetches modules, would know.
fn fetched(body: &Bytes) -> Bytes {
    let mut config: TypedExtensionConfig = unpacked(body);
    let packed = config.typed_config.as_mut().expect("a configuration");
    if packed.type_url == any(&HttpWasm::default()).type_url {
        let mut plugin = HttpWasm::decode(packed.value.as_slice()).expect("a plugin");
        set_hash(&mut plugin.config);
        *packed = any(&plugin);
    } else if packed.type_url == any(&NetworkWasm::default()).type_url {
        let mut plugin = NetworkWasm::decode(packed.value.as_slice()).expect("a plugin");
        set_hash(&mut plugin.config);
        *packed = any(&plugin);
    }
    any(&config).encode_to_vec().into()
}

fn set_hash(plugin: &mut Option<PluginConfig>) {
    let Some(Vm::VmConfig(vm)) = plugin.as_mut().and_then(|plugin| plugin.vm.as_mut()) else { return };
    if let Some(Specifier::Remote(remote)) = vm.code.as_mut().and_then(|code| code.specifier.as_mut())
        && remote.sha256.is_empty()
    {
        remote.sha256 = "0".repeat(64);
    }
}

fn unpacked<M: Message + Default>(body: &Bytes) -> M {
    let packed = Any::decode(body.clone()).expect("an Any");
    M::decode(packed.value.as_slice()).expect("a message of the resource's type")
}

/// Hears what Envoy answers.
#[derive(Default)]
pub(super) struct Journal(Mutex<Notes>);

#[derive(Default)]
struct Notes {
    refusals: Vec<Refusal>,
    /// Responses that were sent and not answered.
    open: BTreeMap<ResourceType, i64>,
}

impl Journal {
    /// Forgets refusals.
    pub(super) fn begin(&self) {
        self.0.lock().refusals.clear();
    }

    pub(super) fn refusals(&self) -> Vec<Refusal> {
        self.0.lock().refusals.clone()
    }

    /// Whether every response of a type was answered.
    pub(super) fn answered(&self, ty: ResourceType) -> bool {
        self.0.lock().open.get(&ty).is_none_or(|open| *open <= 0)
    }
}

impl Recorder for Journal {
    fn pushed(&self, push: Push) {
        *self.0.lock().open.entry(push.ty).or_default() += 1;
    }

    fn acknowledged(&self, ty: ResourceType, _: Duration) {
        *self.0.lock().open.entry(ty).or_default() -= 1;
    }

    fn rejected(&self, nack: &Nack<'_>) {
        let mut notes = self.0.lock();
        *notes.open.entry(nack.ty).or_default() -= 1;
        notes.refusals.push(Refusal { ty: nack.ty, error: nack.error.to_owned() });
    }
}
