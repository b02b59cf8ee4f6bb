mod absent;
mod limits;

use super::*;
use crate::testing::{endpoint, service, sidecar};
use pilotfish_model::{Locality, ServiceKey, ShardKey, Update, Workload, WorkloadKey, WorkloadKind};
use pilotfish_model::{ObjectKey, Origin, Port, WorldWriter};
use pilotfish_proto::ResourceType;

const WEB: &str = "outbound|80||web.shop.svc.cluster.local";

struct Plane {
    writer: WorldWriter,
    translator: Translator,
}

impl Plane {
    fn new() -> Self {
        let mut plane = Self { writer: WorldWriter::new(), translator: Translator::new() };
        plane.apply([service("web", "shop").update(), endpoints(&["10.0.0.1"])]);
        plane
    }

    fn apply(&mut self, updates: impl IntoIterator<Item = Update>) -> Changes {
        updates.into_iter().for_each(|update| self.writer.apply(update));
        let (world, changes) = self.writer.publish().unwrap();
        let changes = self.translator.publish(world, &changes);
        self.translator.tidy();
        changes
    }

    fn has(&self, view: ViewId) -> bool {
        self.translator.snapshot().get(view, WEB).is_some()
    }

    fn view(&self, client: &Client) -> ViewId {
        self.translator.snapshot().view(client, ResourceType::Endpoint).unwrap()
    }
}

fn endpoints(addresses: &[&str]) -> Update {
    let key: ServiceKey = service("web", "shop").key();
    let shard = ShardKey::new(crate::testing::KUBERNETES, "Kubernetes");
    let list = addresses.iter().map(|address| Arc::new(endpoint(address, 8080, "http")));
    Update::Endpoints(key, shard, list.collect())
}

/// The pod of a sidecar, somewhere.
fn pod(name: &str, region: &str) -> Update {
    let labels = crate::testing::labels(&[("topology.kubernetes.io/region", region)]);
    Update::Workload(Arc::new(Workload {
        key: WorkloadKey {
            kind: WorkloadKind::Pod,
            namespace: "shop".into(),
            name: name.into(),
            cluster: "Kubernetes".into(),
        },
        addresses: Arc::from([]),
        ports: Arc::default(),
        labels,
        locality: Locality::default(),
        network: "".into(),
        weight: 0,
        service_account: "".into(),
        identity: None,
        tls_mode: pilotfish_model::TlsMode::Disabled,
        node: "".into(),
        node_addresses: Arc::default(),
        workload_name: "".into(),
        hostname: "".into(),
        sub_domain: "".into(),
        host_network: false,
        ready: true,
        terminating: false,
        created: 0,
        provenance: Origin::object(ObjectKey::new(pilotfish_model::Kind::Pod, "shop", name), "Kubernetes"),
    }))
}

#[test]
fn a_change_is_reported_to_who_read_the_resource() {
    let mut plane = Plane::new();
    let client = plane.translator.connect(sidecar("a", "shop"));
    let view = plane.view(&client);
    assert!(plane.apply([endpoints(&["10.0.0.2"])]).changes.is_empty(), "no client read it");
    assert!(plane.has(view));
    let changes = plane.apply([endpoints(&["10.0.0.3"])]).changes;
    let change = Change { view, resource_type: ResourceType::Endpoint, name: WEB.into(), removed: false };
    assert_eq!(changes, [change]);
}

#[test]
fn one_name_of_a_type_that_is_listed_is_reported_too() {
    let mut plane = Plane::new();
    let client = plane.translator.connect(sidecar("a", "shop"));
    let view = plane.translator.snapshot().view(&client, ResourceType::Cluster).unwrap();
    let name = "outbound|80||new.shop.svc.cluster.local";
    assert!(plane.translator.snapshot().get(view, name).is_none(), "it is not there yet");
    let changes = plane.apply([service("new", "shop").update()]).changes;
    // It is of the part that most proxies of the namespace share.
    let view_of = |part: &ViewId| Change {
        view: *part,
        resource_type: ResourceType::Cluster,
        name: name.into(),
        removed: false,
    };
    let parts = plane.translator.snapshot().parts(view);
    assert!(parts.last().is_some_and(|part| changes.contains(&view_of(part))), "{changes:?}");
    assert!(plane.translator.snapshot().get(view, name).is_some());
}

#[test]
fn a_large_view_is_computed_in_parts_when_the_next_world_waits() {
    const SERVICES: usize = 40;
    let mut plane = Plane::new();
    plane.apply((0..SERVICES).map(|n| service(&format!("s{n}"), "shop").update()));
    let client = plane.translator.connect(sidecar("a", "shop"));
    let Plane { mut writer, translator } = plane;
    writer.apply(endpoints(&["10.0.0.9"]));
    let (world, changes) = writer.publish().unwrap();
    let snapshot = translator.snapshot();
    let view = snapshot.view(&client, ResourceType::Cluster).unwrap();
    assert!(!snapshot.is_waited_for());
    std::thread::scope(|scope| {
        let publishing = scope.spawn(|| translator.publish(world, &changes));
        while !snapshot.is_waited_for() {
            std::thread::yield_now();
        }
        let before = translator.results();
        assert!(!snapshot.prepare(view), "another thread waits, and there is more to compute");
        assert!(translator.results() < before + SERVICES, "the whole view was computed");
        drop(snapshot);
        assert_eq!(publishing.join().unwrap().revision, 3);
    });
    let snapshot = translator.snapshot();
    assert!(snapshot.prepare(view), "nobody waits any more");
    assert!(snapshot.names(view).len() > SERVICES);
}

#[test]
fn resources_without_subscribers_are_dropped() {
    let mut plane = Plane::new();
    let client = plane.translator.connect(sidecar("a", "shop"));
    let view = plane.view(&client);
    assert!(plane.has(view));
    plane.translator.retain_named(|_, _, name| name == WEB);
    assert_eq!(plane.apply([endpoints(&["10.0.0.2"])]).changes.len(), 1);
    plane.translator.retain_named(|_, _, _| false);
    assert_eq!(plane.apply([endpoints(&["10.0.0.3"])]).changes.len(), 0);
    assert!(plane.has(view));
    assert_eq!(plane.apply([endpoints(&["10.0.0.4"])]).changes.len(), 1);
}

#[test]
fn names_that_nobody_subscribes_to_any_more_are_let_go_in_a_quiet_mesh() {
    const NAMES: usize = 12_000;
    let plane = Plane::new();
    let client = plane.translator.connect(sidecar("a", "shop"));
    let view = plane.view(&client);
    for round in 0..3 {
        let names: Vec<Arc<str>> = (0..NAMES).map(|n| format!("{round}-{n}").into()).collect();
        for name in &names {
            drop(plane.translator.snapshot().get(view, name));
        }
        plane.translator.unsubscribed(view, &names, &|_| false);
    }
    assert!(plane.translator.results() < NAMES, "{} results are kept", plane.translator.results());
}

#[test]
fn a_name_that_a_stream_subscribes_to_meanwhile_is_kept() {
    let mut plane = Plane::new();
    let client = plane.translator.connect(sidecar("a", "shop"));
    let view = plane.view(&client);
    assert!(plane.has(view));
    plane.translator.unsubscribed(view, &[WEB.into()], &|name| name == WEB);
    assert_eq!(plane.apply([endpoints(&["10.0.0.2"])]).changes.len(), 1);
    plane.translator.unsubscribed(view, &[WEB.into()], &|_| false);
    assert_eq!(plane.apply([endpoints(&["10.0.0.3"])]).changes.len(), 0);
}

#[test]
fn large_nodes_go_with_their_connections_in_a_quiet_mesh() {
    let plane = Plane::new();
    let mut proxies = Vec::new();
    for n in 0..400 {
        let mut proxy = sidecar(&format!("a-{n}"), "shop");
        proxy.metadata = [("MESH_ID", "x".repeat(200 << 10))].into();
        proxies.push(Arc::downgrade(plane.translator.connect(proxy).proxy()));
    }
    let kept = proxies.iter().filter(|proxy| proxy.strong_count() > 0).count();
    assert!(kept < 100, "{kept} of 400 are kept: 16 MiB of nodes are a reason to sweep");
}

#[test]
fn connections_of_equal_proxies_share_one() {
    let plane = Plane::new();
    let [one, same, other] = ["a", "a", "b"].map(|name| plane.translator.connect(sidecar(name, "shop")));
    assert!(Arc::ptr_eq(one.proxy(), same.proxy()) && !Arc::ptr_eq(one.proxy(), other.proxy()));
    drop(one);
    assert!(Arc::ptr_eq(plane.translator.connect(sidecar("a", "shop")).proxy(), same.proxy()));
}

#[test]
fn delegates_whose_routes_would_be_too_many_are_refused_and_named() {
    use crate::testing::{line, yaml};
    const API: &str = "networking.istio.io/v1";
    let mut plane = Plane::new();
    let routes = |count: usize, end: &str| {
        let route = |n| format!("{{name: r{n}, match: [{{uri: {{prefix: /{n}}}}}], {end}}}");
        (0..count).map(route).collect::<Vec<_>>().join(", ")
    };
    let root = |count| format!("{{hosts: [web], http: [{}]}}", routes(count, "delegate: {name: leaf}"));
    let leaf = |count| {
        let leaves = (0..count).map(|n| format!("{{name: l{n}, route: [{{destination: {{host: web}}}}]}}"));
        format!("{{http: [{}]}}", leaves.collect::<Vec<_>>().join(", "))
    };
    let text = line(API, "VirtualService", "shop", "root", &root(200))
        + &line(API, "VirtualService", "shop", "leaf", &leaf(200));
    plane.apply(yaml(&text));
    let refused = plane.translator.refused_delegates();
    let names: Vec<_> = refused.iter().map(|it| format!("{} {}", it.root, it.delegate)).collect();
    assert_eq!(names, ["VirtualService shop/root VirtualService shop/leaf"]);
    let client = plane.translator.connect(sidecar("a", "shop"));
    let view = plane.translator.snapshot().view(&client, ResourceType::Route).unwrap();
    let size = plane.translator.snapshot().get(view, "80").unwrap().body.len();
    assert!(size < 16 << 20, "{size} bytes");
    plane.apply([service("other", "shop").update()]);
    assert!(Arc::ptr_eq(&refused, &plane.translator.refused_delegates()), "nothing was computed again");
    plane.apply(yaml(&line(API, "VirtualService", "shop", "leaf", &leaf(80))));
    assert!(plane.translator.refused_delegates().is_empty());
}

#[test]
fn a_view_that_comes_back_before_it_is_forgotten_is_still_reported() {
    let mut plane = Plane::new();
    let client = plane.translator.connect(sidecar("a", "shop"));
    assert!(plane.has(plane.view(&client)));
    drop(client);
    let again = plane.translator.connect(sidecar("a", "shop"));
    let view = plane.view(&again);
    assert_eq!(plane.apply([endpoints(&["10.0.0.2"])]).changes[0].view, view);
}

#[test]
fn nothing_stays_of_clients_that_left() {
    let mut plane = Plane::new();
    let clients: Vec<_> =
        (0..20).map(|n| plane.translator.connect(sidecar("a", &format!("namespace-{n}")))).collect();
    for client in &clients {
        assert!(plane.has(plane.view(client)));
    }
    assert!(plane.translator.results() > 20);
    drop(clients);
    assert_eq!(plane.apply([endpoints(&["10.0.0.2"])]).changes.len(), 0);
    plane.translator.memo.sweep();
    assert_eq!(plane.translator.results(), 0);
}

#[test]
fn clients_that_come_and_go_between_worlds_are_forgotten() {
    let plane = Plane::new();
    for n in 0..1000 {
        let client = plane.translator.connect(sidecar("a", &format!("namespace-{n}")));
        assert!(plane.has(plane.view(&client)));
    }
    plane.translator.memo.sweep();
    let few = plane.translator.results();
    assert!(few < 256 * 12, "{few} results are kept");
}

#[test]
fn a_client_reads_its_old_view_until_it_has_switched() {
    let mut plane = Plane::new();
    let failover = pilotfish_config::networking::DestinationRule {
        host: "web".into(),
        traffic_policy: Some(pilotfish_config::networking::TrafficPolicy {
            outlier_detection: Some(Default::default()),
            ..Default::default()
        }),
        ..Default::default()
    };
    let rule = Update::Object(crate::testing::object("shop", "web", failover));
    plane.apply([rule, pod("a", "eu")]);
    let client = plane.translator.connect(sidecar("a", "shop"));
    let old = plane.view(&client);
    assert!(plane.has(old));
    let view_changed = plane.apply([pod("a", "us")]).view_changed;
    assert_eq!(view_changed, [client.id()]);
    assert!(plane.has(old));
    let new = plane.view(&client);
    assert_ne!(new, old);
    plane.apply([endpoints(&["10.0.0.9"])]);
    assert!(!plane.has(old));
    assert!(plane.has(new));
}

/// What a client has of a type: its resources, the ones that are subscribed by name being these.
fn resources(plane: &Plane, client: &Client, ty: ResourceType, named: &[&str]) -> Vec<EncodedResource> {
    let snapshot = plane.translator.snapshot();
    let view = snapshot.view(client, ty).unwrap();
    let listed = snapshot.names(view);
    let names = listed.iter().map(|name| &**name).chain(named.iter().copied());
    names.filter_map(|name| snapshot.get(view, name)).collect()
}

#[test]
fn the_mesh_wide_settings_are_among_the_origins_of_what_they_decide() {
    use pilotfish_config::mesh::MeshConfig;
    let types = [
        (ResourceType::Cluster, &[][..]),
        (ResourceType::Listener, &[]),
        (ResourceType::Endpoint, &[WEB]),
        (ResourceType::Route, &["80"]),
    ];
    let mut plane = Plane::new();
    let client = plane.translator.connect(sidecar("a", "shop"));
    let is_mesh = |origin: &Origin| {
        origin.as_object().is_some_and(|origin| origin.object.kind == pilotfish_model::Kind::MeshConfig)
    };
    let count = |plane: &Plane, ty, named| {
        let all = resources(plane, &client, ty, named);
        let from_mesh = all.iter().filter(|resource| resource.provenance.iter().any(is_mesh)).count();
        assert!(all.iter().all(|resource| resource.provenance.is_sorted()));
        (all.len(), from_mesh)
    };
    let before = types.map(|(ty, named)| count(&plane, ty, named));
    assert!(before.iter().all(|(all, from_mesh)| *all > 0 && *from_mesh == 0), "{before:?}");
    plane.apply([Update::Object(crate::testing::mesh(MeshConfig::default()))]);
    for (ty, named) in types {
        let (all, from_mesh) = count(&plane, ty, named);
        assert!(all > 0 && all == from_mesh, "{ty:?}: {from_mesh} of {all}");
    }
}

#[test]
fn patches_that_are_left_out_of_what_clients_have_are_told() {
    let filter = crate::testing::line(
        "networking.istio.io/v1alpha3",
        "EnvoyFilter",
        "shop",
        "hosts",
        "{configPatches: [{applyTo: VIRTUAL_HOST, patch: {operation: ADD, value: {name: x, domains: [x]}}}, \
          {applyTo: VIRTUAL_HOST, patch: {operation: ADD, value: {name: y, domains: [web.shop.svc.cluster.local]}}}]}",
    );
    let mut plane = Plane::new();
    plane.apply(crate::testing::yaml(&filter));
    let client = plane.translator.connect(sidecar("a", "shop"));
    let refused = |plane: &Plane| {
        let all = plane.translator.snapshot().refusals();
        all.into_iter().map(|it| (it.object.to_string(), it.field, it.fault)).collect::<Vec<_>>()
    };
    assert!(refused(&plane).is_empty(), "nobody has the route");
    assert_eq!(resources(&plane, &client, ResourceType::Route, &["80"]).len(), 1);
    let fault = "makes what Envoy refuses, it is left out there: \
        the domain \"web.shop.svc.cluster.local\" of virtual host \"y\" is there twice";
    let patch = ("EnvoyFilter shop/hosts".to_owned(), "spec.configPatches[1]".to_owned(), fault.to_owned());
    assert_eq!(refused(&plane), [patch]);
}

/// What is told of what is left out, as object and field.
fn refused(plane: &Plane) -> Vec<String> {
    let all = plane.translator.snapshot().refusals();
    let mut texts: Vec<String> =
        all.into_iter().map(|it| format!("{} {}", it.object, it.field).trim_end().to_owned()).collect();
    texts.sort();
    texts
}

const NETWORKING: &str = "networking.istio.io/v1";

#[test]
fn routes_for_many_hosts_that_would_be_too_large_are_refused_and_named() {
    use crate::testing::{line, yaml};
    let rule = |hosts: usize| {
        let hosts: Vec<String> = (0..hosts).map(|n| format!("h{n}.example.com")).collect();
        let body = "x".repeat(1_000_000);
        let route = format!("directResponse: {{status: 200, body: {{string: {body}}}}}");
        let spec = format!("{{hosts: [{}], http: [{{{route}}}]}}", hosts.join(", "));
        yaml(&line(NETWORKING, "VirtualService", "shop", "rule", &spec))
    };
    let mut plane = Plane::new();
    let client = plane.translator.connect(sidecar("a", "shop"));
    plane.apply(rule(100));
    let routes = resources(&plane, &client, ResourceType::Route, &["80"]);
    let size = routes[0].body.len();
    assert!((60 << 20..65 << 20).contains(&size), "{size} bytes");
    assert_eq!(refused(&plane), ["VirtualService shop/rule spec.http"]);
    plane.apply(rule(60));
    assert_eq!(resources(&plane, &client, ResourceType::Route, &["80"]).len(), 1);
    assert!(refused(&plane).is_empty());
}

#[test]
fn one_route_with_many_conditions_is_refused_where_all_of_them_would_be_too_large() {
    use crate::testing::{line, yaml};
    let conditions: Vec<String> = (0..100).map(|n| format!("{{uri: {{prefix: /{n}/}}}}")).collect();
    let body = "x".repeat(1_000_000);
    let spec = format!(
        "{{hosts: [h.example.com], http: [{{match: [{}], directResponse: {{status: 200, body: {{string: {body}}}}}}}]}}",
        conditions.join(", ")
    );
    let mut plane = Plane::new();
    plane.apply(yaml(&line(NETWORKING, "VirtualService", "shop", "rule", &spec)));
    let client = plane.translator.connect(sidecar("a", "shop"));
    let routes = resources(&plane, &client, ResourceType::Route, &["80"]);
    assert!(routes[0].body.len() < 1 << 20);
    assert_eq!(refused(&plane), ["VirtualService shop/rule spec.http"]);
}

#[test]
fn subsets_by_ports_are_cut_and_every_port_keeps_its_cluster() {
    use crate::testing::{line, yaml};
    const PORTS: u32 = 100;
    let mut plane = Plane::new();
    let many = service("many", "shop").with(|service| {
        let port = |number| Port { number, name: format!("p{number}").into(), ..service.ports[0].clone() };
        service.ports = (1_000..1_000 + PORTS).map(port).collect();
    });
    let subsets: Vec<String> = (0..200).map(|n| format!("{{name: s{n}, labels: {{v: v{n}}}}}")).collect();
    let rule = format!("{{host: many, subsets: [{}]}}", subsets.join(", "));
    plane.apply([many.update()]);
    plane.apply(yaml(&line(NETWORKING, "DestinationRule", "shop", "rule", &rule)));
    let client = plane.translator.connect(sidecar("a", "shop"));
    let all = resources(&plane, &client, ResourceType::Cluster, &[]);
    let of_service: Vec<&str> = all
        .iter()
        .map(|resource| &*resource.name)
        .filter(|name| name.ends_with("|many.shop.svc.cluster.local"))
        .collect();
    assert_eq!(of_service.len(), 10_000);
    assert_eq!(of_service.iter().filter(|name| name.contains("||")).count(), 100);
    assert_eq!(refused(&plane), ["DestinationRule shop/rule", "Service shop/many"]);
}

#[test]
fn patches_beyond_a_number_are_left_out_and_named() {
    use crate::testing::{line, yaml};
    let patch = "{applyTo: CLUSTER, match: {cluster: {name: none}}, patch: {operation: MERGE, value: {alt_stat_name: x}}}";
    let filter = |n: usize| {
        let spec = format!("{{configPatches: [{}]}}", vec![patch; 1_024].join(", "));
        line("networking.istio.io/v1alpha3", "EnvoyFilter", "shop", &format!("f{n}"), &spec)
    };
    let mut plane = Plane::new();
    plane.apply(yaml(&(0..5).map(filter).collect::<String>()));
    let client = plane.translator.connect(sidecar("a", "shop"));
    assert!(!resources(&plane, &client, ResourceType::Cluster, &[]).is_empty());
    assert_eq!(refused(&plane), ["EnvoyFilter shop/f4 spec.configPatches[0]"]);
}

#[test]
fn names_that_no_resource_has_cost_no_result() {
    let mut plane = Plane::new();
    let client = plane.translator.connect(sidecar("a", "shop"));
    let view = plane.view(&client);
    let routes = plane.translator.snapshot().view(&client, ResourceType::Route).unwrap();
    assert!(plane.has(view));
    let body = |view, name: &str| plane.translator.snapshot().get(view, name).unwrap().body;
    let (first, route) = (body(view, "outbound|80||x.shop"), body(routes, "x"));
    let before = plane.translator.results();
    for n in 0..100 {
        for name in [format!("{n}"), format!("outbound|80||x{n}.shop"), format!("outbound|0{n}||web.shop")] {
            assert!(body(view, &name).len() < first.len() + 20, "{name}: empty, but there");
        }
        assert!(body(routes, &format!("x{n}")).len() < route.len() + 20);
    }
    assert_eq!(plane.translator.results(), before);
    // They are forgotten with their subscriptions, and a service that comes is no news of them.
    let names: Vec<Arc<str>> = (0..100).map(|n| format!("outbound|80||x{n}.shop").into()).collect();
    plane.translator.unsubscribed(view, &names, &|_| false);
    plane.translator.retain_named(|_, _, name| name == WEB);
    let changes = plane.apply([service("x", "shop").update()]).changes;
    assert!(changes.iter().all(|change| change.view != view), "{changes:?}");
}

#[test]
fn a_service_that_comes_is_reported_to_who_asked_before() {
    let mut plane = Plane::new();
    let client = plane.translator.connect(sidecar("a", "shop"));
    let view = plane.view(&client);
    let name = "outbound|80||new.shop.svc.cluster.local";
    let empty = plane.translator.snapshot().get(view, name).unwrap();
    let changes = plane.apply([service("new", "shop").update()]).changes;
    let names: Vec<&str> =
        changes.iter().filter(|change| change.view == view).map(|change| &*change.name).collect();
    assert_eq!(names, [name]);
    let known = plane.translator.snapshot().get(view, name).unwrap();
    assert_eq!((empty.stands_in, known.stands_in, &known.body), (true, false, &empty.body));
    assert_ne!(known.version, empty.version, "a client that was told that there is none is sent it");
    let key: ServiceKey = service("new", "shop").key();
    let shard = ShardKey::new(crate::testing::KUBERNETES, "Kubernetes");
    let list = [Arc::new(endpoint("10.0.0.9", 8080, "http"))];
    let changes = plane.apply([Update::Endpoints(key, shard, list.into_iter().collect())]).changes;
    assert!(changes.iter().any(|change| change.view == view && &*change.name == name), "{changes:?}");
    assert_ne!(plane.translator.snapshot().get(view, name).unwrap().version, known.version);
}

#[test]
fn routes_stand_in_where_no_host_is_on_the_port() {
    let mut plane = Plane::new();
    let client = plane.translator.connect(sidecar("a", "shop"));
    let view = plane.translator.snapshot().view(&client, ResourceType::Route).unwrap();
    let stands_in =
        |plane: &Plane, name: &str| plane.translator.snapshot().get(view, name).unwrap().stands_in;
    assert!(stands_in(&plane, "9999") && stands_in(&plane, "nonsense"));
    plane.apply([service("new", "shop").update()]);
    assert!(!stands_in(&plane, "80") && stands_in(&plane, "9999"));
}

#[test]
fn a_subset_that_no_rule_has_has_no_endpoints() {
    let plane = Plane::new();
    let client = plane.translator.connect(sidecar("a", "shop"));
    let view = plane.view(&client);
    let size = |name: &str| plane.translator.snapshot().get(view, name).unwrap().body.len();
    let invented = WEB.replace("||", "|invented|");
    assert!(size(&invented) < size(WEB) - 10, "{} bytes", size(&invented));
}

#[test]
fn clusters_in_which_no_service_has_addresses_are_alike_to_routes() {
    let mut plane = Plane::new();
    let [one, other] = ["one", "other"]
        .map(|name| plane.translator.connect(Proxy { cluster: name.into(), ..sidecar(name, "shop") }));
    let routes =
        |plane: &Plane, client: &Client| plane.translator.snapshot().view(client, ResourceType::Route);
    assert_eq!(routes(&plane, &one), routes(&plane, &other));
    let service = service("web", "shop").with(|service| {
        service.addresses.insert("one".into(), Arc::from(["10.9.0.1".into()]));
    });
    let changes = plane.apply([service.update()]);
    assert_eq!(changes.view_changed, [one.id()]);
    assert_ne!(routes(&plane, &one), routes(&plane, &other));
}
