//! Generated worlds as seen by a few proxies: incremental results equal those from scratch, every difference
//! is reported, and the cost is bounded.

use crate::input::Input;
use crate::{generate, render, schemas};
use pilotfish_config::read_live;
use pilotfish_model::{ChangeSet, Fact, Kind, Object, ObjectKey, World};
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_proto::{ResourceType, Struct, Value, ValueKind};
use pilotfish_registry::testing::{Scene, objects};
use pilotfish_translate::{Changes, Client, EncodedResource, Proxy, Snapshot, Translator, ViewId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

/// Permanent objects that the others can refer to.
static BASE: LazyLock<Vec<Object>> =
    LazyLock::new(|| objects(include_str!("world/base.yaml")).expect("the objects of the base"));

/// Kinds of routes and policies, which are chosen more often.
const LIKELY: &[Kind] = &[
    Kind::VirtualService,
    Kind::DestinationRule,
    Kind::Gateway,
    Kind::ServiceEntry,
    Kind::Sidecar,
    Kind::AuthorizationPolicy,
    Kind::EnvoyFilter,
    Kind::HttpRoute,
    Kind::KubernetesGateway,
    Kind::MeshConfig,
    Kind::RequestAuthentication,
    Kind::PeerAuthentication,
    Kind::Service,
    Kind::WorkloadEntry,
    Kind::Telemetry,
    Kind::ProxyConfig,
];
/// Maximum number of objects in one input.
const MOST_OBJECTS: usize = 24;
/// Maximum number of publications in one input.
const MOST_STEPS: usize = 4;

pub(super) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut run = Run::new();
    BASE.iter().for_each(|object| run.scene.apply_object(object.clone()));
    let mut keys: Vec<ObjectKey> = BASE.iter().map(|object| object.key().clone()).collect();
    let mut left = MOST_OBJECTS;
    for step in 0..MOST_STEPS {
        let count = 1 + input.below(8);
        for _ in 0..count.min(left) {
            left -= 1;
            change(&mut run.scene, &mut keys, &mut input);
        }
        run.publish();
        if step == 0 {
            run.clients = proxies(&mut input).map(|proxy| run.translator.connect(proxy)).collect();
        }
        run.ask();
        if input.is_empty() || left == 0 {
            break;
        }
    }
    run.check();
    // The state of the proxies is removed with them.
    run.clients.clear();
    run.translator.tidy();
}

/// Removes an object, adds one, or replaces one of that name.
fn change(scene: &mut Scene, keys: &mut Vec<ObjectKey>, input: &mut Input<'_>) {
    if input.once_in(6) {
        let at = input.below(keys.len());
        if at < keys.len() {
            scene.delete(keys.swap_remove(at));
        }
        return;
    }
    let kind = match input.below(4) {
        0 => Kind::ALL.get(input.below(Kind::ALL.len())),
        _ => LIKELY.get(input.below(LIKELY.len())),
    };
    let Some(kind) = kind.copied() else { return };
    let schema = schemas::of(kind);
    let object = if schema.api_versions.is_empty() {
        mesh(kind, input)
    } else {
        taken(kind, &generate::object(schema, input))
    };
    if let Some(object) = object {
        keys.push(object.key().clone());
        scene.apply_object(object);
    }
}

/// An object if it is valid, or its replacement.
fn taken(kind: Kind, object: &serde_json::Value) -> Option<Object> {
    match read_live(kind, &Arc::from("cluster"), render::json(object).as_bytes()) {
        Ok(read) => Some(read.object),
        Err(rejected) => rejected.closed,
    }
}

fn mesh(kind: Kind, input: &mut Input<'_>) -> Option<Object> {
    use pilotfish_config::{Limits, MeshFile, read_mesh_file};
    let which = if kind == Kind::MeshConfig { MeshFile::Config } else { MeshFile::Networks };
    let text = render::json(&generate::content(schemas::of(kind), input));
    read_mesh_file(which, "mesh", text.as_bytes(), &Limits::default()).objects.pop().map(|read| read.object)
}

/// A sidecar, a gateway, and one chosen by the input.
fn proxies(input: &mut Input<'_>) -> impl Iterator<Item = Proxy> {
    let metadata: &[(&str, &str)] = match input.below(6) {
        0 => &[("GENERATOR", "grpc")],
        1 => &[("INTERCEPTION_MODE", "NONE")],
        2 => &[("INTERCEPTION_MODE", "TPROXY"), ("DNS_CAPTURE", "true"), ("ISTIO_VERSION", "1.29.1")],
        3 => &[("NETWORK", "n1"), ("CLUSTER_ID", "other"), ("DUAL_STACK", "true")],
        4 => &[("UNPRIVILEGED_POD", "true"), ("HTTP10", "1"), ("IDLE_TIMEOUT", "5s")],
        _ => &[],
    };
    let third = node("sidecar~10.0.0.2,::2~db-0.shop~shop.svc.cluster.local", metadata, &[("app", "db")]);
    let nodes = [
        node("sidecar~10.0.0.1~web-0.shop~shop.svc.cluster.local", &[], &[("app", "web"), ("version", "v1")]),
        node("router~10.0.0.9~edge-0.edge~edge.svc.cluster.local", &[], &[("istio", "edge")]),
        third,
    ];
    nodes.into_iter().filter_map(|node| Proxy::from_node(&node).ok())
}

fn node(id: &str, metadata: &[(&str, &str)], labels: &[(&str, &str)]) -> Node {
    let text = |text: &str| Value { kind: Some(ValueKind::StringValue(text.to_owned())) };
    let fields =
        |pairs: &[(&str, &str)]| pairs.iter().map(|(key, value)| ((*key).to_owned(), text(value))).collect();
    let mut all = Struct { fields: fields(metadata) };
    let labels = Struct { fields: fields(labels) };
    all.fields.insert("LABELS".into(), Value { kind: Some(ValueKind::StructValue(labels)) });
    Node { id: id.to_owned(), metadata: Some(all), ..Default::default() }
}

/// Versions of the clients' resources, by view and name.
type Known = BTreeMap<(ViewId, ResourceType, Arc<str>), Option<u64>>;

/// Objects, a translator and its clients, with the state that was reported to them.
struct Run {
    scene: Scene,
    world: Arc<World>,
    translator: Translator,
    clients: Vec<Client>,
    known: Known,
}

impl Run {
    fn new() -> Self {
        Self {
            scene: Scene::new(),
            world: Arc::default(),
            translator: Translator::new(),
            clients: Vec::new(),
            known: Known::new(),
        }
    }

    /// Publishes the changes, and applies the reported ones.
    fn publish(&mut self) {
        let changes = self.scene.settle();
        if changes.is_empty() {
            return;
        }
        self.world = self.scene.world();
        let reported = self.translator.publish(self.world.clone(), &changes);
        self.take_over(&reported);
    }

    fn take_over(&mut self, reported: &Changes) {
        let snapshot = self.translator.snapshot();
        for change in &reported.changes {
            let key = (change.view, change.resource_type, change.name.clone());
            let now = snapshot.get(change.view, &change.name).map(|resource| resource.version);
            assert!(!change.removed || now.is_none(), "{change:?} is reported as gone and is there");
            if change.removed || self.known.contains_key(&key) || change.resource_type.is_wildcard() {
                self.known.insert(key, now);
            }
        }
    }

    /// Reads all resources that each client would subscribe to.
    fn ask(&mut self) {
        let snapshot = self.translator.snapshot();
        for client in &self.clients {
            for (view, ty, name) in wanted(&snapshot, client) {
                let now = snapshot.get(view, &name).map(|resource| resource.version);
                self.known.entry((view, ty, name)).or_insert(now);
            }
        }
    }

    /// Compares with a translator that begins with the last world.
    fn check(&self) {
        let fresh = Translator::new();
        fresh.publish(self.world.clone(), &ChangeSet { facts: [Fact::Kind(Kind::MeshConfig)].into() });
        let snapshot = self.translator.snapshot();
        for client in &self.clients {
            let twin = fresh.connect(Proxy::clone(client.proxy()));
            self.compare(client, &snapshot, &twin, &fresh.snapshot());
        }
    }

    fn compare(&self, client: &Client, snapshot: &Snapshot<'_>, twin: &Client, fresh: &Snapshot<'_>) {
        let id = &client.proxy().id;
        for ty in ResourceType::ALL {
            let (Some(ours), Some(theirs)) = (snapshot.view(client, ty), fresh.view(twin, ty)) else {
                assert_eq!(
                    snapshot.view(client, ty).is_some(),
                    fresh.view(twin, ty).is_some(),
                    "{ty:?} of {id}"
                );
                continue;
            };
            assert_eq!(snapshot.names(ours), fresh.names(theirs), "names of {ty:?} of {id}");
            for (view, _, name) in wanted(snapshot, client).into_iter().filter(|(_, of, _)| *of == ty) {
                let (now, new) = (snapshot.get(ours, &name), fresh.get(theirs, &name));
                let bytes = |resource: &Option<EncodedResource>| resource.as_ref().map(|r| r.body.clone());
                assert_eq!(bytes(&now), bytes(&new), "{ty:?} {name} of {id}, step by step and from scratch");
                let reported = self.known.get(&(view, ty, name.clone())).copied().flatten();
                assert_eq!(
                    reported,
                    snapshot.get(view, &name).map(|r| r.version),
                    "{ty:?} {name} of {id} changed without a report"
                );
            }
        }
    }
}

/// All resources of a client: all of the types without subscriptions by name, and those that they refer to.
fn wanted(snapshot: &Snapshot<'_>, client: &Client) -> BTreeSet<(ViewId, ResourceType, Arc<str>)> {
    const ROUTES: &[&str] = &[
        "80",
        "8080",
        "9080",
        "http.80",
        "http.8080",
        "https.443.https.edge.edge",
        "15010",
        "no-such-route",
    ];
    let mut out = BTreeSet::new();
    let mut clusters: Vec<Arc<str>> = Vec::new();
    for ty in [ResourceType::Cluster, ResourceType::Listener] {
        let parts = snapshot.view(client, ty).map(|view| snapshot.parts(view)).unwrap_or_default();
        for view in parts.iter().copied() {
            let names = snapshot.names(view);
            if ty == ResourceType::Cluster {
                clusters.extend(names.iter().filter(|name| name.starts_with("outbound")).cloned());
            }
            out.extend(names.iter().map(|name| (view, ty, name.clone())));
        }
    }
    if let Some(view) = snapshot.view(client, ResourceType::Endpoint) {
        out.extend(clusters.into_iter().map(|name| (view, ResourceType::Endpoint, name)));
    }
    if let Some(view) = snapshot.view(client, ResourceType::Route) {
        out.extend(ROUTES.iter().map(|name| (view, ResourceType::Route, Arc::from(*name))));
    }
    out
}
