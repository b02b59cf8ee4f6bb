//! What the analysis costs in a world of 10,000 services and as many routes: a change costs what it touches.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pilotfish_config::status::Controllers;
use pilotfish_model::{
    ChangeSet, ClusterDomain, Endpoint, EndpointAttributes, HealthStatus, Hostname, Kind, Labels, Locality,
    Namespace, NetworkId, Object, ObjectKey, Origin, Port, Protocol, Provider, Service, ServiceKey, ShardKey,
    TlsMode, Update, World, WorldWriter,
};
use pilotfish_translate::{Analyzer, Known};
use std::sync::Arc;
use std::time::{Duration, Instant};

const KUBERNETES: Provider = Provider::new(0, "Kubernetes");
/// Services of a namespace.
const EACH: usize = 100;

fn namespace(n: usize) -> String {
    format!("ns-{}", n / EACH)
}

fn service(n: usize) -> (ServiceKey, Service) {
    let (name, namespace) = (format!("svc-{n}"), namespace(n));
    let hostname = Hostname::of_kubernetes_service(&name, &namespace, "cluster.local").unwrap();
    let key = ServiceKey { hostname: hostname.clone(), namespace: namespace.as_str().into() };
    let origin = Origin::object(ObjectKey::new(Kind::Service, namespace.as_str(), name), "Kubernetes");
    let port = Port { number: 80, name: "http".into(), protocol: Protocol::Http, target_port: None };
    (key, Service::registered(KUBERNETES, hostname, namespace, vec![port], origin))
}

fn objects(text: &str) -> Vec<Object> {
    let file = pilotfish_config::read("test.yaml", text.as_bytes(), &pilotfish_config::Limits::default());
    assert!(file.rejected.is_empty(), "{:?}", file.rejected);
    file.objects.into_iter().map(|read| read.object).collect()
}

fn route(n: usize, to: &str) -> Update {
    let text = format!(
        "{{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {{name: v-{n}, namespace: {}}}, spec: {{hosts: [svc-{n}], \
         http: [{{route: [{{destination: {{host: {to}, subset: v1}}}}]}}]}}}}",
        namespace(n)
    );
    Update::Object(objects(&text).remove(0))
}

fn rule(n: usize) -> Update {
    let text = format!(
        "{{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {{name: d-{n}, namespace: {}}}, spec: {{host: svc-{n}, \
         subsets: [{{name: v1, labels: {{version: v1}}}}]}}}}",
        namespace(n)
    );
    Update::Object(objects(&text).remove(0))
}

fn endpoints(n: usize, address: usize) -> Update {
    let labels: Labels = Arc::new([("version", "v1")].into_iter().collect());
    let origin =
        Origin::object(ObjectKey::new(Kind::EndpointSlice, namespace(n).as_str(), "s"), "Kubernetes");
    let endpoint = Endpoint {
        addresses: Arc::from([Arc::from(format!("10.{}.{}.1", address / 250, address % 250))]),
        port: 80,
        service_port: "http".into(),
        service_port_id: None,
        health: HealthStatus::Healthy,
        attributes: Arc::new(EndpointAttributes {
            labels,
            locality: Locality::default(),
            network: NetworkId::default(),
            cluster: "Kubernetes".into(),
            weight: 0,
            identity: None,
            tls_mode: TlsMode::Disabled,
            hostname: "".into(),
            sub_domain: "".into(),
            node: "".into(),
            workload_name: "".into(),
            namespace: Namespace::default(),
            entry: None,
            provenance: origin,
        }),
    };
    Update::Endpoints(service(n).0, ShardKey::new(KUBERNETES, "Kubernetes"), [Arc::new(endpoint)].into())
}

struct Mesh {
    writer: WorldWriter,
    analyzer: Analyzer,
}

impl Mesh {
    fn new(size: usize) -> (Self, Duration) {
        let mut writer = WorldWriter::new();
        for n in 0..size {
            let (key, service) = service(n);
            writer.apply(Update::Services(key, [Arc::new(service)].into()));
            for update in [endpoints(n, n), rule(n), route(n, &format!("svc-{n}"))] {
                writer.apply(update);
            }
        }
        let (world, _) = writer.publish().unwrap();
        let mut analyzer =
            Analyzer::new(ClusterDomain::default(), "Kubernetes".into(), Controllers::Both, Known::default());
        let began = Instant::now();
        analyzer.advance(&world, &ChangeSet::default());
        let took = began.elapsed();
        assert_eq!(analyzer.findings().count(), 0);
        (Self { writer, analyzer }, took)
    }

    /// How many results a change computes, and how long it takes.
    fn step(&mut self, update: Update) -> (u64, Duration) {
        self.writer.apply(update);
        let (world, changes): (Arc<World>, ChangeSet) = self.writer.publish().unwrap();
        let (before, began) = (self.analyzer.computed(), Instant::now());
        self.analyzer.advance(&world, &changes);
        (self.analyzer.computed() - before, began.elapsed())
    }
}

/// Changes of the kinds that happen, each by its name.
fn changes(mesh: &mut Mesh) -> Vec<(&'static str, u64, Duration)> {
    let mut out = Vec::new();
    let mut step = |name, update| {
        let (computed, took) = mesh.step(update);
        out.push((name, computed, took));
    };
    step("an endpoint", endpoints(50, 60_000));
    step("a route to nowhere", route(50, "svc-5o"));
    step("the route as it was", route(50, "svc-50"));
    let (key, changed) = service(50);
    let ports = [Port { number: 81, name: "http".into(), protocol: Protocol::Http, target_port: None }];
    step("a service", Update::Services(key, [Arc::new(Service { ports: ports.into(), ..changed })].into()));
    out
}

#[test]
fn a_change_computes_as_much_in_a_large_world_as_in_a_small_one() {
    let computed = |size| {
        let (mut mesh, _) = Mesh::new(size);
        changes(&mut mesh).into_iter().map(|(name, computed, _)| (name, computed)).collect::<Vec<_>>()
    };
    let (small, large) = (computed(200), computed(800));
    assert_eq!(small, large);
    assert!(large.iter().all(|(_, computed)| *computed < 20), "{large:?}");
}

#[test]
#[ignore = "measures: cargo test --release -p pilotfish-translate --test analysis_cost -- --ignored --nocapture"]
fn ten_thousand_services() {
    let (mut mesh, first) = Mesh::new(10_000);
    println!("first: {first:?}, {} results", mesh.analyzer.results());
    for (name, computed, took) in changes(&mut mesh) {
        println!("{name}: {computed} results in {took:?}");
    }
}
