//! Properties of the whole way from objects to resources, over random histories of the recorded cases' objects:
//! what was computed step by step equals what is computed from scratch, byte for byte, and every difference is reported.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use pilotfish_config::{Limits, MeshFile, read, read_mesh_file};
use pilotfish_model::{ChangeSet, Fact, Kind, Object, ObjectKey, World};
use pilotfish_proto::ResourceType;
use pilotfish_registry::testing::Scene;
use pilotfish_testkit::cases::Case;
use pilotfish_translate::{Changes, Client, Proxy, Snapshot, Translator, ViewId};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// Histories, and steps of each. `PILOTFISH_HISTORIES` runs more of them.
const HISTORIES: u64 = 12;
const STEPS: usize = 30;

/// A small generator of numbers: the same history for the same seed on every machine.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(sides.max(1)).unwrap()).unwrap()
    }
}

/// What a client has got: versions by view and name.
type Known = BTreeMap<(ViewId, ResourceType, Arc<str>), Option<u64>>;

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

    /// Publishes what the sources sent, and records the reported changes.
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
            if change.removed || self.known.contains_key(&key) || is_whole(change.resource_type) {
                self.known.insert(key, now);
            }
        }
    }

    /// Every client reads all resources that it would subscribe to.
    fn ask(&mut self) {
        let snapshot = self.translator.snapshot();
        for client in &self.clients {
            for (view, ty, name) in wanted(&snapshot, client) {
                let now = snapshot.get(view, &name).map(|resource| resource.version);
                self.known.entry((view, ty, name)).or_insert(now);
            }
        }
    }

    /// The incremental state equals one that is computed from scratch, and the reported changes lead to what there is.
    fn check(&self, context: &str) {
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
                    let (a, b) = (snapshot.get(view, &name), fresh.get(theirs, &name));
                    let bytes = |resource: &Option<pilotfish_translate::EncodedResource>| {
                        resource.as_ref().map(|r| r.body.clone())
                    };
                    assert_eq!(bytes(&a), bytes(&b), "{context}: {of:?} {name} of {}", client.proxy().id);
                    let reported = self.known.get(&(view, of, name.clone())).copied().flatten();
                    assert_eq!(
                        reported,
                        a.map(|r| r.version),
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

/// All that a client wants: everything of the types that it takes as a whole, and assignments and routes by the names of
/// clusters and of a few ports.
fn wanted(snapshot: &Snapshot<'_>, client: &Client) -> BTreeSet<(ViewId, ResourceType, Arc<str>)> {
    let mut out = BTreeSet::new();
    let mut clusters: Vec<Arc<str>> = Vec::new();
    for ty in [ResourceType::Cluster, ResourceType::Listener] {
        if let Some(view) = snapshot.view(client, ty) {
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

/// All objects of a case, with its mesh settings.
fn objects(case: &Case) -> Vec<Object> {
    let mut files =
        vec![read("config.yaml", case.file("config.yaml").unwrap().unwrap().as_bytes(), &Limits::default())];
    for (name, which) in [("mesh.yaml", MeshFile::Config), ("networks.yaml", MeshFile::Networks)] {
        files.extend(
            case.file(name)
                .unwrap()
                .map(|text| read_mesh_file(which, name, text.as_bytes(), &Limits::default())),
        );
    }
    files.into_iter().flat_map(|file| file.objects).map(|read| read.object).collect()
}

/// One random history: objects of a few cases come, change places with those of others, and go, while proxies connect
/// and leave.
fn history(cases: &[Case], seed: u64) {
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let chosen: Vec<&Case> = (0..4).map(|_| &cases[dice.roll(cases.len())]).collect();
    let names: Vec<&str> = chosen.iter().map(|case| case.name.as_str()).collect();
    let pool: Vec<Object> = chosen.iter().flat_map(|case| objects(case)).collect();
    let proxies: Vec<_> = chosen.iter().flat_map(|case| &case.proxies).collect();
    let mut run = Run::new();
    let mut there: BTreeSet<ObjectKey> = BTreeSet::new();
    for step in 0..STEPS {
        for _ in 0..=dice.roll(6) {
            let object = pool[dice.roll(pool.len())].clone();
            let gone = there.contains(object.key()) && dice.roll(3) == 0;
            if gone {
                there.remove(object.key());
                run.scene.delete(object.key().clone());
            } else {
                there.insert(object.key().clone());
                run.scene.apply_object(object);
            }
        }
        match dice.roll(4) {
            0 | 1 if run.clients.len() < 5 => {
                let proxy = Proxy::from_node(&proxies[dice.roll(proxies.len())].node()).unwrap();
                run.clients.push(run.translator.connect(proxy));
            }
            2 if run.clients.len() > 2 => drop(run.clients.swap_remove(dice.roll(run.clients.len()))),
            _ => {}
        }
        run.ask();
        run.publish();
        run.ask();
        if step % 3 == 2 {
            run.check(&format!("seed {seed}, step {step}, cases {names:?}"));
        }
    }
}

#[test]
fn step_by_step_equals_from_scratch_and_every_difference_is_reported() {
    let cases = Case::all(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../oracle/cases"))).unwrap();
    let histories =
        std::env::var("PILOTFISH_HISTORIES").ok().and_then(|n| n.parse().ok()).unwrap_or(HISTORIES);
    for seed in 1..=histories {
        history(&cases, seed);
    }
}
