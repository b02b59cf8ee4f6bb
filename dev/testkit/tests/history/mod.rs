//! Histories of worlds: a translator that follows them step by step, and clients that are told what changes.

use pilotfish_model::{ChangeSet, Fact, Kind, World};
use pilotfish_proto::ResourceType;
use pilotfish_registry::testing::Scene;
use pilotfish_translate::{Changes, Client, Proxy, Snapshot, Translator, ViewId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A small generator of numbers: the same history for the same seed on every machine.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below `sides`.
    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(sides.max(1)).unwrap()).unwrap()
    }
}

/// What a client has got: versions by view and name.
type Known = BTreeMap<(ViewId, ResourceType, Arc<str>), Option<u64>>;

/// Sources, a translator and the clients that read from it, with what they were told.
pub(crate) struct Run {
    pub(crate) scene: Scene,
    world: Arc<World>,
    pub(crate) translator: Translator,
    pub(crate) clients: Vec<Client>,
    known: Known,
}

impl Run {
    pub(crate) fn new() -> Self {
        Self {
            scene: Scene::new(),
            world: Arc::default(),
            translator: Translator::new(),
            clients: Vec::new(),
            known: Known::new(),
        }
    }

    /// Publishes what the sources sent, and records the reported changes.
    pub(crate) fn publish(&mut self) {
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
            if change.removed || self.known.contains_key(&key) || is_whole(change.resource_type) {
                self.known.insert(key, now);
            }
        }
    }

    /// Every client reads all resources that it would subscribe to.
    pub(crate) fn ask(&mut self) {
        let snapshot = self.translator.snapshot();
        for client in &self.clients {
            for (view, ty, name) in wanted(&snapshot, client) {
                let now = snapshot.get(view, &name).map(|resource| resource.version);
                self.known.entry((view, ty, name)).or_insert(now);
            }
        }
    }

    /// The incremental state equals one that is computed from scratch, and the reported changes lead to what
    /// there is.
    pub(crate) fn check(&self, context: &str) {
        let fresh = Translator::new();
        fresh.publish(self.world.clone(), &ChangeSet { facts: [Fact::Kind(Kind::MeshConfig)].into() });
        let snapshot = self.translator.snapshot();
        for client in &self.clients {
            let twin = fresh.connect(Proxy::clone(client.proxy()));
            let fresh = fresh.snapshot();
            for ty in ResourceType::ALL {
                let views = (snapshot.view(client, ty), fresh.view(&twin, ty));
                let (Some(ours), Some(theirs)) = views else {
                    assert_eq!((views.0.is_some(), views.1.is_some()), (false, false), "{context}: {ty:?}");
                    continue;
                };
                assert_eq!(
                    snapshot.names(ours),
                    fresh.names(theirs),
                    "{context}: names of {ty:?} of {}",
                    client.proxy().id
                );
                for (view, of, name) in wanted(&snapshot, client).into_iter().filter(|(_, of, _)| *of == ty) {
                    let (a, b) = (snapshot.get(ours, &name), fresh.get(theirs, &name));
                    let bytes = |resource: &Option<pilotfish_translate::EncodedResource>| {
                        resource.as_ref().map(|r| r.body.clone())
                    };
                    assert_eq!(bytes(&a), bytes(&b), "{context}: {of:?} {name} of {}", client.proxy().id);
                    let reported = self.known.get(&(view, of, name.clone())).copied().flatten();
                    assert_eq!(
                        reported,
                        snapshot.get(view, &name).map(|r| r.version),
                        "{context}: {of:?} {name} changed without a report"
                    );
                }
            }
        }
    }
}

fn is_whole(ty: ResourceType) -> bool {
    ty.is_wildcard()
}

/// All that a client wants, by the views that make it up: everything of the types that it takes as a whole,
/// and assignments and routes by the names of clusters and of a few ports.
fn wanted(snapshot: &Snapshot<'_>, client: &Client) -> BTreeSet<(ViewId, ResourceType, Arc<str>)> {
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
        let ports = ["80", "8080", "9080", "http.80", "http.8080", "no-such-route"];
        out.extend(ports.into_iter().map(|name| (view, ResourceType::Route, name.into())));
    }
    out
}
