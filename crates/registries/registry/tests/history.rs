//! Random histories: whatever came in whatever order, the world is that of the objects that are there at the
//! end.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails this way")]

mod support;

use pilotfish_config::SourceEvent;
use pilotfish_model::{ClusterId, Kind, Object, ObjectKey, ServiceKey, ShardKey, World, WorldWriter};
use pilotfish_registry::testing::{EXTERNAL, KUBERNETES, objects};
use pilotfish_registry::{
    AggregateController, AggregateSettings, Conflict, KubernetesRegistry, MergePolicy, MultiClusterServices,
    Registry, RegistrySettings, ServiceEntryRegistry,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;
use support::live::{self, Live, LiveStep};
use support::{export, import, pod_with, se_with, slice, svc, we_with};

const CLUSTERS: [&str; 2] = ["c1", "c2"];

/// Every version of every object that a history may hold: few names, so that they meet.
fn pool() -> String {
    let mut text = String::new();
    for (index, node) in ["n1", "n2"].iter().enumerate() {
        for zone in ["z1", "z2"] {
            text += &format!(
                "apiVersion: v1\nkind: Node\nmetadata: {{name: {node}, labels: {{topology.kubernetes.io/zone: {zone}, role: {node}}}}}\n\
                 status: {{addresses: [{{type: ExternalIP, address: 8.8.8.{index}}}]}}\n---\n"
            );
        }
    }
    for metadata in [
        "{name: ns, labels: {in: 'yes'}}",
        "{name: ns, labels: {in: 'no'}}",
        "{name: ns, annotations: {networking.istio.io/traffic-distribution: PreferClose}}",
        "{name: istio-system, labels: {topology.istio.io/network: sys}}",
    ] {
        text += &format!("apiVersion: v1\nkind: Namespace\nmetadata: {metadata}\n---\n");
    }
    for name in ["p1", "p2"] {
        for (ip, labels, ready, node) in [
            ("1.0.0.1", "{app: a}", "True", "n1"),
            ("1.0.0.2", "{app: a, version: v2}", "True", "n2"),
            ("1.0.0.2", "{app: b, istio.io/draining: 'true'}", "True", "n3"),
            ("1.0.0.1", "{app: a}", "False", "n1"),
        ] {
            let spec = format!(", nodeName: {node}");
            text += &pod_with(name, ip, labels, ready, "", &spec);
            text += &pod_with(name, ip, labels, ready, "", &spec).replace("Running", "Failed");
        }
    }
    text + &services() + &slices() + &entries() + &multi_cluster()
}

fn services() -> String {
    let mut text = String::new();
    for name in ["s1", "s2"] {
        for spec in [
            "{clusterIP: 10.0.0.1, selector: {app: a}, ports: [{name: http, port: 80}]}",
            "{clusterIP: 10.0.0.2, selector: {app: b}, ports: [{name: http, port: 80, targetPort: named}, {name: tcp, port: 90}]}",
            "{clusterIP: None, selector: {app: a}, ports: [{name: http, port: 80}]}",
            "{type: ExternalName, externalName: s1.ns.svc.cluster.local}",
        ] {
            text += &svc(name, spec);
            text += &svc(name, spec)
                .replace("namespace: ns}", "namespace: ns, labels: {istio.io/persistent-session: x}}");
        }
        text += &svc(name, "{type: NodePort, clusterIP: 10.0.0.3, ports: [{name: tls, port: 15443, nodePort: 30000}]}").replace(
            "namespace: ns}",
            "namespace: ns, labels: {topology.istio.io/network: n}, annotations: {traffic.istio.io/nodeSelector: '{\"role\":\"n1\"}'}}",
        );
    }
    text
}

fn slices() -> String {
    let mut text = String::new();
    let reference = |address: &str, pod: &str| {
        format!("{{addresses: [{address}], targetRef: {{kind: Pod, name: {pod}, namespace: ns}}}}")
    };
    for name in ["e1", "e2"] {
        for service in ["s1", "s2"] {
            let ports = "[{name: http, port: 8080}, {name: tcp, port: 9090}]";
            for list in [
                format!("[{}]", reference("1.0.0.1", "p1")),
                format!("[{}, {{addresses: [1.0.0.2]}}]", reference("1.0.0.1", "p2")),
                "[{addresses: [1.0.0.1], conditions: {ready: false, serving: true, terminating: false}}]"
                    .to_owned(),
                format!(
                    "[{{addresses: [1.0.0.1], conditions: {{ready: false}}}}, {}]",
                    reference("1.0.0.1", "p2")
                ),
                "[]".to_owned(),
            ] {
                text += &slice(name, service, ports, &list);
            }
        }
        text += &slice(name, "s1", "[]", "[{addresses: [a.example.com]}]").replace("IPv4", "FQDN");
    }
    text
}

fn entries() -> String {
    let mut text = String::new();
    let hosts = ["[h1.com]", "[h1.com, h2.com]", "[s1.ns.svc.cluster.local]", "[s1.ns.svc.clusterset.local]"];
    for name in ["x1", "x2"] {
        for (index, host) in hosts.iter().enumerate() {
            let metadata = format!(", creationTimestamp: '2024-01-0{}T00:00:00Z'", index + 1);
            for rest in [
                "resolution: STATIC, endpoints: [{address: 3.0.0.1}, {address: 3.0.0.2, ports: {http: 81}}]",
                "resolution: STATIC, addresses: [10.9.0.1, 10.9.0.2], workloadSelector: {labels: {app: a}}",
                "resolution: DNS, workloadSelector: {labels: {}}",
                "resolution: DNS_ROUND_ROBIN",
                "location: MESH_INTERNAL",
            ] {
                let spec =
                    format!("{{hosts: {host}, ports: [{{number: 80, name: http, protocol: HTTP}}], {rest}}}");
                text += &se_with(name, &metadata, &spec);
            }
        }
    }
    for name in ["w1", "w2"] {
        for spec in [
            "{address: 2.0.0.1, labels: {app: a}, ports: {http: 82, named: 83}}",
            "{address: 2.0.0.1, labels: {app: b}, serviceAccount: sa, locality: r/z}",
            "{address: vm.example.com, labels: {app: a}}",
            "{network: n, labels: {app: a}}",
        ] {
            text += &we_with(name, "", spec);
            text += &we_with(name, ", annotations: {proxy.istio.io/health-checks-enabled: 'true'}", spec);
        }
    }
    text
}

fn multi_cluster() -> String {
    let mut text = String::new();
    for name in ["s1", "s2"] {
        text += &export(name);
        for ips in ["[10.7.0.1]", "[10.7.0.2, 10.7.0.1]", "[]"] {
            text += &import(name, ips);
        }
    }
    text
}

fn mesh_pool() -> Vec<Object> {
    use pilotfish_config::{Limits, MeshFile, read_mesh_file};
    let configs = ["{}", "{trustDomain: other}", "{discoverySelectors: [{matchLabels: {in: 'yes'}}]}"];
    let networks = [
        "{}",
        "{networks: {n: {endpoints: [{fromCidr: 1.0.0.1/32}], gateways: [{address: 6.6.6.6, port: 1}]}}}",
        "{networks: {n: {endpoints: [{fromRegistry: c1}], gateways: [{registryServiceName: s1.ns.svc.cluster.local, port: 1}]}}}",
    ];
    let read = |which: MeshFile, text: &str| {
        let file = read_mesh_file(which, "mesh.yaml", text.as_bytes(), &Limits::default());
        assert!(file.rejected.is_empty(), "{:?}", file.rejected);
        file.objects.into_iter().map(|read| read.object)
    };
    let configs = configs.iter().flat_map(|text| read(MeshFile::Config, text).collect::<Vec<_>>());
    let networks = networks.iter().flat_map(|text| read(MeshFile::Networks, text).collect::<Vec<_>>());
    configs.chain(networks).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Apply {
        feed: usize,
        object: usize,
    },
    Mesh {
        object: usize,
    },
    Delete {
        feed: usize,
        object: usize,
    },
    Settle,
    Stop {
        shard: usize,
    },
    Start {
        shard: usize,
    },
    Replace {
        shard: usize,
    },
    Fail {
        feed: usize,
    },
    /// A fresh list of a kind in which every second object is missing.
    List {
        feed: usize,
        kind: usize,
        odd: bool,
    },
    Live {
        registry: usize,
        step: LiveStep,
    },
}

fn steps(pool: usize, mesh: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (0..2usize, 0..pool).prop_map(|(feed, object)| Step::Apply { feed, object }),
        1 => (0..mesh).prop_map(|object| Step::Mesh { object }),
        4 => (0..2usize, 0..pool).prop_map(|(feed, object)| Step::Delete { feed, object }),
        4 => Just(Step::Settle),
        1 => (0..4usize).prop_map(|shard| Step::Stop { shard }),
        1 => (0..4usize).prop_map(|shard| Step::Start { shard }),
        1 => (0..4usize).prop_map(|shard| Step::Replace { shard }),
        1 => (0..2usize).prop_map(|feed| Step::Fail { feed }),
        1 => (0..2usize, 0..7usize, any::<bool>()).prop_map(|(feed, kind, odd)| Step::List { feed, kind, odd }),
        8 => (0..3usize, live::steps()).prop_map(|(registry, step)| Step::Live { registry, step }),
    ];
    proptest::collection::vec(step, 1..80)
}

struct Run {
    controller: AggregateController,
    writer: WorldWriter,
    world: Arc<World>,
    /// What each feed holds.
    objects: [BTreeMap<ObjectKey, Object>; 2],
    live: Vec<Live>,
}

fn shard_of(index: usize) -> ShardKey {
    let provider = if index < 2 { KUBERNETES } else { EXTERNAL };
    ShardKey::new(provider, ClusterId::from(CLUSTERS[index % 2]))
}

fn registry(index: usize) -> (Box<dyn Registry>, &'static str) {
    let cluster = CLUSTERS[index % 2];
    let settings = RegistrySettings {
        cluster: cluster.into(),
        multi_cluster_services: MultiClusterServices::Hosts,
        ..RegistrySettings::default()
    };
    let registry: Box<dyn Registry> = match index {
        0 | 1 => Box::new(KubernetesRegistry::new(KUBERNETES, settings)),
        2 => Box::new(ServiceEntryRegistry::new(EXTERNAL, settings)),
        _ => Box::new(ServiceEntryRegistry::workload_entries_only(EXTERNAL, settings)),
    };
    (registry, cluster)
}

impl Run {
    fn new(order: &[usize]) -> Self {
        Self::with(order, MergePolicy::default())
    }

    fn with(order: &[usize], merge: MergePolicy) -> Self {
        let mut controller = AggregateController::new(AggregateSettings {
            config_feed: "c1".into(),
            primary: "c1".into(),
            merge,
            ..AggregateSettings::default()
        });
        for cluster in CLUSTERS {
            controller.add_source(cluster, "s");
        }
        for index in order {
            let (registry, feed) = registry(*index);
            controller.add_registry(registry, feed);
        }
        Self {
            controller,
            writer: WorldWriter::new(),
            world: Arc::default(),
            objects: Default::default(),
            live: Vec::new(),
        }
    }

    /// Adds the live registries, without content.
    fn add_live(&mut self) {
        self.live = live::shards().map(|shard| Live::start(shard, &mut self.controller)).into();
    }

    fn send(&mut self, feed: usize, event: SourceEvent) {
        self.controller.source_event(CLUSTERS[feed], "s", event).unwrap();
    }

    fn apply(&mut self, feed: usize, object: &Object) {
        self.objects[feed].insert(object.key().clone(), object.clone());
        self.send(feed, SourceEvent::Apply(object.clone()));
    }

    fn settle(&mut self) {
        for update in self.controller.settle() {
            self.writer.apply(update);
        }
        if let Some((world, _)) = self.writer.publish() {
            self.world = world;
        }
    }

    fn step(&mut self, step: &Step, pool: &[Object], mesh: &[Object]) {
        match step {
            Step::Apply { feed, object } => self.apply(*feed, &pool[*object]),
            Step::Mesh { object } => self.apply(0, &mesh[*object]),
            Step::Delete { feed, object } => {
                let key = pool[*object].key().clone();
                self.objects[*feed].remove(&key);
                self.send(*feed, SourceEvent::Delete(key));
            }
            Step::Settle => self.settle(),
            Step::Stop { shard } => {
                self.controller.remove_registry(&shard_of(*shard));
            }
            Step::Start { shard } => {
                let (registry, feed) = registry(*shard);
                self.controller.add_registry(registry, feed);
            }
            Step::Replace { shard } => {
                let (registry, feed) = registry(*shard);
                self.controller.replace_registry(registry, feed);
            }
            Step::Fail { feed } => {
                self.settle();
                let before = self.world.clone();
                let event = SourceEvent::Failed { at: SystemTime::UNIX_EPOCH, reason: "down".into() };
                self.send(*feed, event);
                self.settle();
                assert_same(&self.world, &before);
            }
            Step::Live { registry, step } => self.live_step(*registry, step),
            Step::List { feed, kind, odd } => {
                let kind = [
                    Kind::Pod,
                    Kind::Service,
                    Kind::EndpointSlice,
                    Kind::ServiceEntry,
                    Kind::WorkloadEntry,
                    Kind::ServiceExport,
                    Kind::ServiceImport,
                ][*kind];
                let held: Vec<Object> = self.objects[*feed]
                    .values()
                    .filter(|object| object.key().kind == kind)
                    .cloned()
                    .collect();
                self.send(*feed, SourceEvent::ListBegan(kind));
                for (index, object) in held.iter().enumerate() {
                    if (index % 2 == 1) == *odd {
                        self.apply(*feed, object);
                    } else {
                        self.objects[*feed].remove(object.key());
                    }
                }
                self.send(*feed, SourceEvent::ListEnded(kind));
            }
        }
    }

    fn live_step(&mut self, registry: usize, step: &LiveStep) {
        let fails = matches!(step, LiveStep::Failed);
        if fails {
            self.live[registry].take(&mut self.controller);
            self.settle();
        }
        let before = self.world.clone();
        self.live[registry].step(step, &mut self.controller);
        if fails {
            self.live[registry].take(&mut self.controller);
            self.settle();
            assert_same(&self.world, &before);
        }
    }

    /// Live registries have taken in what was sent, and count as in sync if they have said so.
    fn finish_live(&mut self) {
        for live in &mut self.live {
            live.take(&mut self.controller);
            let all = self.controller.status();
            let status = all.iter().find(|status| status.shard == live.shard).unwrap();
            assert_eq!(status.sync.is_synced(), live.synced, "{}", live.shard);
            assert_eq!((status.services, status.endpoints, status.workloads), live.content.counts());
            if !live.synced {
                self.controller.registry_synced(&live.shard).unwrap();
            }
        }
    }

    /// Everything is there and in sync.
    fn finish(&mut self) {
        self.finish_live();
        for index in 0..4 {
            let (registry, feed) = registry(index);
            let is_there = self.controller.status().iter().any(|status| status.shard == shard_of(index));
            if !is_there {
                self.controller.add_registry(registry, feed);
            }
        }
        for feed in 0..2 {
            self.send(feed, SourceEvent::Listed);
        }
        self.settle();
        assert_eq!(self.controller.synced(), Ok(()));
    }
}

/// The objects of a history in registries of one's choice alone.
fn only(objects: &[BTreeMap<ObjectKey, Object>; 2], registries: &[usize]) -> Arc<World> {
    let mut run = Run::new(registries);
    for (feed, objects) in objects.iter().enumerate() {
        objects.values().for_each(|object| run.apply(feed, object));
    }
    run.settle();
    run.world
}

/// The hosts that each registry has, in the order in which registries win. A host that a ServiceImport brings
/// belongs to the clusters that import it, wherever its Service is.
fn hosts_by_registry(run: &Run) -> Vec<(ShardKey, BTreeSet<ServiceKey>)> {
    let is_imported = |key: &ServiceKey| key.hostname.text().ends_with(".clusterset.local");
    let mut all: Vec<(ShardKey, BTreeSet<ServiceKey>)> = Vec::new();
    let kubernetes = only(&run.objects, &[0, 1]);
    for (index, cluster) in CLUSTERS.iter().enumerate() {
        let alone = only(&run.objects, &[index]);
        let own = alone.services().map(|(key, _)| key).filter(|key| !is_imported(key));
        let imported = kubernetes.services().filter(|(key, services)| {
            is_imported(key) && services[0].addresses.contains_key(&ClusterId::from(*cluster))
        });
        all.push((shard_of(index), own.chain(imported.map(|(key, _)| key)).cloned().collect()));
    }
    let entries = only(&run.objects, &[2]);
    all.push((shard_of(2), entries.services().map(|(key, _)| key.clone()).collect()));
    all.extend(run.live.iter().map(|live| (live.shard.clone(), live.content.services().collect())));
    // The other registries are in order already.
    all.sort_by_key(|(shard, _)| shard.provider);
    all
}

/// Whoever comes first has a service; registries of other types that have it, too, lose.
fn naive_conflicts(run: &Run, merge: MergePolicy) -> Vec<Conflict> {
    let registries = hosts_by_registry(run);
    let hosts: BTreeSet<&ServiceKey> = registries.iter().flat_map(|(_, hosts)| hosts).collect();
    let mut conflicts = Vec::new();
    for service in hosts {
        let mut having =
            registries.iter().filter(|(_, hosts)| hosts.contains(service)).map(|(shard, _)| shard);
        let Some(winner) = having.next() else { continue };
        conflicts.extend(having.filter(|loser| loser.provider != winner.provider).map(|loser| Conflict {
            service: service.clone(),
            winner: winner.clone(),
            loser: loser.clone(),
            endpoints_count: merge == MergePolicy::Union,
        }));
    }
    conflicts
}

/// Which versions of the pool's objects two clusters have at the end, as pairs of a feed and an object of the
/// pool, in any order: one version of each object, and settled now and then.
fn arrivals(pool: &[Object]) -> impl Strategy<Value = Vec<(usize, usize, bool)>> + use<> {
    let mut versions: BTreeMap<ObjectKey, Vec<usize>> = BTreeMap::new();
    for (index, object) in pool.iter().enumerate() {
        versions.entry(object.key().clone()).or_default().push(index);
    }
    let of_feed = |feed: usize| -> Vec<_> {
        versions
            .values()
            .map(|versions| {
                let chosen = proptest::option::weighted(0.8, proptest::sample::select(versions.clone()));
                (chosen, proptest::bool::weighted(0.2))
                    .prop_map(move |(chosen, settle)| chosen.map(|object| (feed, object, settle)))
            })
            .collect()
    };
    let all: Vec<_> = of_feed(0).into_iter().chain(of_feed(1)).collect();
    all.prop_map(|all| all.into_iter().flatten().collect::<Vec<_>>()).prop_shuffle()
}

/// What a cluster of the pool's objects arrives at when they come in this order.
fn arrived(pool: &[Object], arrivals: &[(usize, usize, bool)]) -> Arc<World> {
    let mut run = Run::new(&[0, 1, 2, 3]);
    for (feed, object, settle) in arrivals {
        run.apply(*feed, &pool[*object]);
        if *settle {
            run.settle();
        }
    }
    run.finish();
    run.world
}

fn assert_same(a: &World, b: &World) {
    let list = |world: &World| world.services().map(|(k, v)| (k.clone(), v.clone())).collect::<Vec<_>>();
    assert_eq!(list(a), list(b));
    let list = |world: &World| world.endpoints().map(|(k, v)| (k.clone(), v.clone())).collect::<Vec<_>>();
    assert_eq!(list(a), list(b));
    assert_eq!(a.workloads().collect::<Vec<_>>(), b.workloads().collect::<Vec<_>>());
    assert_eq!(a.all_objects().collect::<Vec<_>>(), b.all_objects().collect::<Vec<_>>());
    assert_eq!(a.network_gateways(), b.network_gateways());
}

thread_local! {
    static POOLS: (Vec<Object>, Vec<Object>) = (objects(&pool()).unwrap_or_else(|error| panic!("{error}")), mesh_pool());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_order_of_arrival_does_not_matter(
        arrivals in POOLS.with(|(pool, _)| arrivals(pool)),
        selected in any::<bool>(),
    ) {
        POOLS.with(|(pool, mesh)| {
            // With or without discovery selectors, which some Namespaces of the pool match.
            let pool: Vec<Object> = pool.iter().chain(mesh).cloned().collect();
            let mut arrivals = arrivals;
            if selected {
                arrivals.insert(arrivals.len() / 2, (0, pool.len() - mesh.len() + 2, false));
            }
            let mut sorted = arrivals.clone();
            sorted.sort_by(|a, b| (a.0, pool[a.1].key()).cmp(&(b.0, pool[b.1].key())));
            assert_same(&arrived(&pool, &arrivals), &arrived(&pool, &sorted));
            sorted.reverse();
            assert_same(&arrived(&pool, &arrivals), &arrived(&pool, &sorted));
        });
    }

    #[test]
    fn a_history_ends_in_the_world_of_its_last_content(
        steps in POOLS.with(|(pool, mesh)| steps(pool.len(), mesh.len())),
        order in Just(vec![0usize, 1, 2, 3]).prop_shuffle(),
        merge in proptest::sample::select(vec![MergePolicy::Union, MergePolicy::First, MergePolicy::Refuse]),
        at_once in any::<bool>(),
    ) {
        POOLS.with(|(pool, mesh)| {
            let mut run = Run::with(&order, merge);
            run.add_live();
            for step in &steps {
                run.step(step, pool, mesh);
            }
            run.finish();
            // The other order of arrival: live registries, then objects.
            let mut scratch = Run::with(&[], merge);
            scratch.add_live();
            for (live, done) in scratch.live.iter_mut().zip(&run.live).rev() {
                live.copy(&done.content, at_once, &mut scratch.controller);
                live.synced = true;
            }
            for (feed, objects) in run.objects.iter().enumerate() {
                for object in objects.values() {
                    scratch.apply(feed, object);
                }
            }
            scratch.finish();
            assert_same(&run.world, &scratch.world);
            let conflicts = |run: &Run| run.controller.conflicts().cloned().collect::<Vec<_>>();
            assert_eq!(conflicts(&run), conflicts(&scratch));
            assert_eq!(conflicts(&run), naive_conflicts(&run, merge));
        });
    }
}
