use super::{EgressOf, ListenerServicesOf, Scope, ServicesOf};
use crate::engine::{Cx, Query};
use crate::proxy::{Proxy, ProxyKind};
use crate::testing::{
    TestService, evaluate, evaluate_with, labels, line, mesh, service, sidecar, world, yaml,
};
use pilotfish_config::mesh::MeshConfig;
use pilotfish_model::{
    ExportTo, Hostname, Kind, ObjectKey, Origin, Port, Protocol, Resolution, Service, Switches, Update, World,
};
use std::sync::Arc;

/// The scope of a proxy, as a question.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ScopeOf(Proxy);

impl Query for ScopeOf {
    type Output = Scope;

    fn compute(&self, cx: &Cx<'_>) -> Scope {
        Scope::of(cx, &self.0)
    }
}

fn sidecar_object(namespace: &str, name: &str, spec: &str) -> Vec<Update> {
    yaml(&line("networking.istio.io/v1", "Sidecar", namespace, name, spec))
}

fn virtual_service(namespace: &str, name: &str, spec: &str) -> Vec<Update> {
    yaml(&line("networking.istio.io/v1", "VirtualService", namespace, name, spec))
}

fn port(number: u32, name: &str) -> Port {
    Port { number, name: name.into(), protocol: Protocol::Http, target_port: None }
}

/// A service of a ServiceEntry.
fn external(host: &str, namespace: &str, ports: &[u32]) -> TestService {
    service("any", namespace).with(|service| {
        service.hostname = Hostname::parse(host).unwrap();
        service.name = host.into();
        crate::testing::of_service_entry(service);
        service.ports = ports.iter().map(|number| port(*number, "http")).collect();
    })
}

#[test]
fn the_sidecar_that_selects_a_proxy_comes_before_those_for_all() {
    let all = [
        sidecar_object("shop", "b-default", "{}"),
        sidecar_object("shop", "a-selecting", "{workloadSelector: {labels: {app: web}}}"),
        sidecar_object("shop", "c-selecting", "{workloadSelector: {labels: {app: web, version: v1}}}"),
        sidecar_object("istio-system", "root", "{}"),
        sidecar_object("istio-system", "root-selecting", "{workloadSelector: {labels: {app: web}}}"),
    ];
    let world = world(all.into_iter().flatten());
    let chosen = |namespace: &str, kind: ProxyKind, pairs: &[(&str, &str)]| {
        let proxy = Proxy { labels: labels(pairs), kind, ..sidecar("web-0", namespace) };
        evaluate(&world, &ScopeOf(proxy)).sidecar.as_ref().map(|(_, name)| name.to_string())
    };
    let sidecar = ProxyKind::Sidecar;
    assert_eq!(chosen("shop", sidecar, &[("app", "web"), ("version", "v1")]).as_deref(), Some("a-selecting"));
    assert_eq!(chosen("shop", sidecar, &[("app", "db")]).as_deref(), Some("b-default"));
    assert_eq!(chosen("pay", sidecar, &[("app", "web")]).as_deref(), Some("root"));
    assert_eq!(chosen("shop", ProxyKind::Router, &[("app", "web")]), None);
}

fn shop(sidecar: Option<&str>) -> Scope {
    let sidecar = sidecar.map(|name| ("shop".into(), name.into()));
    Scope { kind: ProxyKind::Sidecar, namespace: "shop".into(), sidecar }
}

/// `host/namespace:ports` of services.
fn shown<'a>(services: impl IntoIterator<Item = &'a Arc<Service>>) -> Vec<String> {
    let show = |service: &Arc<Service>| {
        let ports: Vec<String> = service.ports.iter().map(|port| port.number.to_string()).collect();
        format!("{}/{}:{}", service.hostname, service.namespace, ports.join(","))
    };
    services.into_iter().map(show).collect()
}

fn of_listener(world: &Arc<World>, scope: &Scope, index: usize) -> Vec<String> {
    shown(evaluate(world, &ListenerServicesOf(scope.clone(), index)).iter())
}

fn of_scope(world: &Arc<World>, scope: &Scope) -> Vec<String> {
    shown(evaluate(world, &ServicesOf(scope.clone())).list.iter())
}

#[test]
fn of_several_namespaces_the_own_one_has_a_host_then_one_of_kubernetes_then_the_oldest() {
    let aged =
        |service: TestService, created: i64| service.with(|service| service.created = created).update();
    let kubernetes = |namespace: &str| {
        service("x", namespace).with(|service| service.hostname = Hostname::parse("b.com").unwrap())
    };
    let world = world([
        aged(external("a.com", "one", &[80]), 1),
        aged(external("a.com", "shop", &[81]), 2),
        aged(external("b.com", "one", &[80]), 1),
        aged(kubernetes("two"), 2),
        aged(external("c.com", "two", &[80]), 2),
        aged(external("c.com", "one", &[81]), 3),
    ]);
    let want = ["a.com/shop:81", "b.com/two:80", "c.com/two:80"];
    let mut found = of_scope(&world, &shop(None));
    found.sort();
    assert_eq!(found, want);
}

/// Rule 3 of Istio 1.31, and its switch.
#[test]
fn a_destination_of_several_namespaces_is_the_best_or_the_first_by_name() {
    let external = |namespace: &str, created: i64| {
        external("a.com", namespace, &[80]).with(|service| service.created = created).update()
    };
    let kubernetes =
        service("x", "three").with(|service| service.hostname = Hostname::parse("a.com").unwrap());
    let narrow = sidecar_object("shop", "s", "{egress: [{hosts: [./x.com]}]}");
    let route =
        virtual_service("shop", "x", "{hosts: [x.com], http: [{route: [{destination: {host: a.com}}]}]}");
    for (more, best, first) in [
        (vec![], "a.com/two:80", "a.com/one:80"),
        (vec![kubernetes.update()], "a.com/three:80", "a.com/one:80"),
        (vec![kubernetes.update(), external("shop", 9)], "a.com/shop:80", "a.com/shop:80"),
    ] {
        let updates = narrow.iter().chain(&route).cloned().chain(more);
        let world = world(updates.chain([external("one", 2), external("two", 1)]));
        let query = ServicesOf(shop(Some("s")));
        let off = Switches { best_service_namespace: false, ..Switches::default() };
        assert_eq!(shown(evaluate(&world, &query).list.iter()), [best]);
        assert_eq!(shown(evaluate_with(off, &world, &query).list.iter()), [first]);
    }
}

#[test]
fn services_are_seen_only_where_they_are_exported_to() {
    let exported =
        |host: &str, to: ExportTo| external(host, "pay", &[80]).with(|s| s.export_to = to).update();
    let world = world([
        exported("public.com", ExportTo::Public),
        exported("own.com", ExportTo::namespaces(["pay"])),
        exported("shop.com", ExportTo::namespaces(["shop"])),
        exported("nobody.com", ExportTo::Nobody),
        exported("unset.com", ExportTo::Unset),
    ]);
    // Those exported by name come first.
    assert_eq!(of_scope(&world, &shop(None)), ["shop.com/pay:80", "public.com/pay:80", "unset.com/pay:80"]);
}

#[test]
fn entries_of_one_host_unite_their_ports_but_kubernetes_keeps_its_own() {
    let entries = |list: Vec<TestService>| {
        let key = list.first().unwrap().key();
        Update::Services(key, list.into_iter().map(|service| Arc::new(service.0)).collect())
    };
    let kubernetes = service("x", "pay").with(|s| s.hostname = Hostname::parse("c.com").unwrap());
    let other = external("b.com", "pay", &[81]).with(|s| s.resolution = Resolution::DNSLB);
    let world = world([
        entries(vec![external("a.com", "pay", &[80]), external("a.com", "pay", &[80, 81])]),
        entries(vec![external("b.com", "pay", &[80]), other]),
        entries(vec![external("c.com", "pay", &[81]), kubernetes]),
    ]);
    let mut found = of_scope(&world, &shop(None));
    found.sort();
    assert_eq!(found, ["a.com/pay:80,81", "b.com/pay:80", "c.com/pay:80"]);
    assert_eq!(of_listener(&world, &shop(None), 0).len(), 6);
}

#[test]
fn listeners_with_a_port_import_that_port_only() {
    let egress =
        "{egress: [{port: {number: 81, protocol: HTTP, name: h}, hosts: ['*/*']}, {hosts: [pay/a.com]}]}";
    let mut updates = sidecar_object("shop", "s", egress);
    updates.extend([external("a.com", "pay", &[80, 81]).update(), external("b.com", "pay", &[80]).update()]);
    let world = world(updates);
    let scope = shop(Some("s"));
    assert_eq!(evaluate(&world, &EgressOf(scope.clone())).len(), 2);
    assert_eq!(of_listener(&world, &scope, 0), ["a.com/pay:81"]);
    assert_eq!(of_listener(&world, &scope, 1), ["a.com/pay:80,81"]);
    assert_eq!(of_scope(&world, &scope), ["a.com/pay:81,80"]);
}

#[test]
fn destinations_of_imported_routes_are_seen_with_the_ports_that_are_used() {
    let route =
        |host: &str, port: u32| format!("{{destination: {{host: {host}, port: {{number: {port}}}}}}}");
    let mut updates = sidecar_object("shop", "s", "{egress: [{hosts: [pay/front.com]}]}");
    updates.extend(virtual_service(
        "pay",
        "front",
        &format!(
            "{{hosts: [front.com], http: [{{match: [{{sourceNamespace: other}}], route: [{}]}}, {{route: [{}], mirrors: [{}]}}], tls: [{{match: [{{sniHosts: [front.com]}}], route: [{{destination: {{host: tls.com}}}}]}}]}}",
            route("not-for-shop.com", 80),
            route("back.com", 81),
            route("mirror.com", 99),
        ),
    ));
    let ports = &[80, 81];
    let hosts = ["front.com", "not-for-shop.com", "back.com", "mirror.com", "tls.com", "unused.com"];
    updates.extend(hosts.map(|host| external(host, "pay", ports).update()));
    let world = world(updates);
    // No service has the mirror's port.
    assert_eq!(
        of_scope(&world, &shop(Some("s"))),
        ["front.com/pay:80,81", "back.com/pay:81", "tls.com/pay:80,81"]
    );
    // They have clusters, but no listeners and no routes of their own.
    assert_eq!(of_listener(&world, &shop(Some("s")), 0), ["front.com/pay:80,81"]);
}

/// A service that is exported to the namespace `else` alone, or to nobody.
fn hidden(host: &str, namespace: &str, to: ExportTo) -> TestService {
    external(host, namespace, &[80, 81]).with(|service| service.export_to = to)
}

#[test]
#[allow(clippy::too_many_lines, reason = "one table")]
fn routes_lead_to_services_that_their_own_namespace_hides_from_itself() {
    let elsewhere = || ExportTo::namespaces(["else"]);
    let services = || {
        let mut list = vec![external("front.com", "shop", &[80]).update()];
        list.extend(
            ["a.com", "b.com", "c.com", "d.com", "e.com"]
                .map(|host| hidden(host, "shop", elsewhere()).update()),
        );
        list.push(hidden("nobody.com", "shop", ExportTo::Nobody).update());
        list.push(hidden("far.com", "pay", elsewhere()).update());
        list
    };
    let to = |host: &str, port: &str| format!("{{destination: {{host: {host}{port}}}}}");
    for (spec, expected) in [
        (
            format!("hosts: [x.com], http: [{{route: [{}]}}]", to("a.com", ", port: {number: 81}")),
            vec!["a.com/shop:81"],
        ),
        (
            format!("hosts: [x.com], http: [{{route: [{}]}}]", to("nobody.com", "")),
            vec!["nobody.com/shop:80,81"],
        ),
        (format!("hosts: [x.com], http: [{{route: [{}]}}]", to("far.com", "")), vec![]),
        (format!("hosts: [x.com], http: [{{route: [{}]}}]", to("a.com", ", port: {number: 99}")), vec![]),
        (
            format!(
                "hosts: [x.com], http: [{{route: [{}], mirror: {{host: b.com}}, mirrors: [{}]}}]",
                to("front.com", ""),
                to("c.com", ", subset: v1")
            ),
            vec!["b.com/shop:80,81", "c.com/shop:80,81"],
        ),
        (
            format!(
                "hosts: [x.com], tls: [{{match: [{{sniHosts: [x.com]}}], route: [{}]}}], tcp: [{{route: [{}]}}]",
                to("d.com", ", port: {number: 80}"),
                to("e.com", ", port: {number: 81}")
            ),
            vec!["d.com/shop:80", "e.com/shop:81"],
        ),
        (
            format!(
                "hosts: [x.com], http: [{{match: [{{sourceNamespace: pay}}], route: [{}]}}]",
                to("a.com", "")
            ),
            vec![],
        ),
        (format!("hosts: [x.com], gateways: [shop/gw], http: [{{route: [{}]}}]", to("a.com", "")), vec![]),
        (
            format!(
                "hosts: [x.com], http: [{{route: [{}]}}, {{route: [{}]}}]",
                to("a.com", ", port: {number: 80}"),
                to("a.com", ", port: {number: 81}")
            ),
            vec!["a.com/shop:80,81"],
        ),
    ] {
        let rule = virtual_service("shop", "x", &format!("{{{spec}}}"));
        let world = world(services().into_iter().chain(rule));
        let mut found = of_scope(&world, &shop(None));
        found.sort();
        let mut all = vec!["front.com/shop:80"];
        all.extend(&expected);
        all.sort_unstable();
        assert_eq!(found, all, "{spec}");
        // They have clusters, but no listeners and no virtual hosts.
        assert_eq!(of_listener(&world, &shop(None), 0), ["front.com/shop:80"], "{spec}");
        // Gateways do not see them, and clients of another namespace only what is hidden in theirs.
        let router = Scope { kind: ProxyKind::Router, ..shop(None) };
        let pay = Scope { namespace: "pay".into(), ..shop(None) };
        let in_pay = if spec.contains("far.com") {
            vec!["front.com/shop:80", "far.com/pay:80,81"]
        } else {
            vec!["front.com/shop:80"]
        };
        assert_eq!(of_scope(&world, &router), ["front.com/shop:80"], "{spec}");
        assert_eq!(of_scope(&world, &pay), in_pay, "{spec}");
    }
}

#[test]
fn delegates_lead_to_hidden_services_too() {
    let mut updates =
        virtual_service("shop", "x", "{hosts: [x.com], http: [{delegate: {name: leaf, namespace: shop}}]}");
    let leaf =
        "{http: [{match: [{uri: {prefix: /a}}], route: [{destination: {host: a.com, port: {number: 80}}}]}]}";
    updates.extend(virtual_service("shop", "leaf", leaf));
    updates.push(hidden("a.com", "shop", ExportTo::Nobody).update());
    assert_eq!(of_scope(&world(updates), &shop(None)), ["a.com/shop:80"]);
}

#[test]
fn a_sidecar_sees_hidden_services_of_the_routes_that_it_imports() {
    let mut updates = sidecar_object("shop", "s", "{egress: [{hosts: [./x.com, ./front.com]}]}");
    updates.extend(sidecar_object(
        "shop",
        "by-port",
        "{egress: [{port: {number: 81, protocol: HTTP, name: h}, hosts: [./x.com]}, {hosts: [./front.com]}]}",
    ));
    for (host, to) in [("x.com", "a.com"), ("y.com", "b.com")] {
        let spec = format!("{{hosts: [{host}], http: [{{route: [{{destination: {{host: {to}}}}}]}}]}}");
        updates.extend(virtual_service("shop", host, &spec));
    }
    updates.push(external("front.com", "shop", &[80]).update());
    updates.extend(["a.com", "b.com"].map(|host| hidden(host, "shop", ExportTo::Nobody).update()));
    let world = world(updates);
    assert_eq!(of_scope(&world, &shop(Some("s"))), ["front.com/shop:80", "a.com/shop:80,81"]);
    assert_eq!(of_scope(&world, &shop(Some("by-port"))), ["a.com/shop:81", "front.com/shop:80"]);
}

#[test]
fn of_several_services_of_a_host_a_hidden_one_gives_way_as_any_other_does() {
    let route = "{hosts: [x.com], http: [{route: [{destination: {host: a.com}}]}]}";
    let with = |services: Vec<TestService>| {
        let world = world(
            virtual_service("shop", "x", route).into_iter().chain(services.iter().map(TestService::update)),
        );
        of_scope(&world, &shop(None))
    };
    let own = || hidden("a.com", "shop", ExportTo::Nobody);
    // What is imported already stays.
    assert_eq!(with(vec![own(), external("a.com", "pay", &[90])]), ["a.com/pay:90"]);
    // Nothing is seen of what another namespace hides.
    assert_eq!(with(vec![hidden("a.com", "pay", ExportTo::Nobody), own()]), ["a.com/shop:80,81"]);
    let narrow = "{egress: [{hosts: [./x.com]}]}";
    let imported = world(
        virtual_service("shop", "x", route)
            .into_iter()
            .chain(sidecar_object("shop", "s", narrow))
            .chain([own().update(), external("a.com", "pay", &[90]).update()]),
    );
    // Among destinations, the own namespace comes first.
    assert_eq!(of_scope(&imported, &shop(Some("s"))), ["a.com/shop:80,81"]);
}

/// True where a ServiceEntry of namespace `pay` is seen: from namespace `shop`, and from its own.
fn sees_entry(settings: &str, export: &ExportTo) -> [bool; 2] {
    let config: MeshConfig = serde_json::from_str(settings).unwrap();
    let namespace = yaml("{apiVersion: v1, kind: Namespace, metadata: {name: pay, labels: {team: money}}}");
    let entry = external("a.com", "pay", &[80]).with(|service| {
        service.export_to = export.clone();
        let key = ObjectKey::new(Kind::ServiceEntry, "pay", "entry");
        service.provenance = Origin::object(key, "Kubernetes");
    });
    let kubernetes = service("web", "pay").update();
    let updates = [Update::Object(mesh(config)), entry.update(), kubernetes];
    let world = world(namespace.into_iter().chain(updates));
    let sees = |namespace: &str| {
        let scope = Scope { namespace: namespace.into(), ..shop(None) };
        let services = of_scope(&world, &scope);
        assert!(
            services.iter().any(|name| name.starts_with("web.pay")),
            "Kubernetes Services are not capped"
        );
        services.iter().any(|name| name.starts_with("a.com"))
    };
    [sees("shop"), sees("pay")]
}

/// Rule 21 of Istio 1.31: the mesh caps who may see the ServiceEntries of a namespace.
#[test]
fn visibility_of_service_entries_is_capped_by_the_first_policy_that_matches_their_namespace() {
    let policy = |visibility: &str, rules: &str| {
        format!(r#"{{"visibility": "{visibility}", "matchingRules": [{rules}]}}"#)
    };
    let selects =
        |label: &str| format!(r#"{{"namespaceSelector": {{"matchLabels": {{"team": "{label}"}}}}}}"#);
    let named = |name: &str| {
        format!(r#"{{"namespaceSelector": {{"matchLabels": {{"kubernetes.io/metadata.name": "{name}"}}}}}}"#)
    };
    let settings = |applies: bool, default: &str, policies: &[String]| {
        format!(
            r#"{{"serviceEntryVisibility": {{"applyToSidecars": {applies}, "defaultVisibility": "{default}", "policies": [{}]}}}}"#,
            policies.join(",")
        )
    };
    let own = || ExportTo::namespaces(["pay"]);
    let shop_alone = || ExportTo::namespaces(["shop"]);
    let both = || ExportTo::namespaces(["pay", "shop"]);
    // Seen from another namespace, and from its own.
    for (settings, export, seen) in [
        (settings(false, "NONE", &[]), ExportTo::Unset, [true, true]),
        (settings(true, "UNSPECIFIED", &[]), ExportTo::Unset, [true, true]),
        (settings(true, "PUBLIC", &[]), ExportTo::Unset, [true, true]),
        (settings(true, "NAMESPACE", &[]), ExportTo::Unset, [false, true]),
        (settings(true, "NAMESPACE", &[]), own(), [false, true]),
        (settings(true, "NAMESPACE", &[]), both(), [false, true]),
        (settings(true, "NAMESPACE", &[]), shop_alone(), [false, false]),
        (settings(true, "NAMESPACE", &[]), ExportTo::Nobody, [false, false]),
        (settings(true, "NONE", &[]), ExportTo::Public, [false, false]),
        (settings(true, "NONE", &[policy("PUBLIC", &selects("money"))]), ExportTo::Unset, [true, true]),
        (settings(true, "NONE", &[policy("PUBLIC", &selects("other"))]), ExportTo::Unset, [false, false]),
        (settings(true, "NONE", &[policy("PUBLIC", &named("pay"))]), ExportTo::Unset, [true, true]),
        (
            settings(true, "NONE", &[policy("PUBLIC", &format!("{},{}", selects("money"), named("shop")))]),
            ExportTo::Unset,
            [false, false],
        ),
        (
            settings(true, "NONE", &[policy("NAMESPACE", ""), policy("PUBLIC", &named("pay"))]),
            ExportTo::Unset,
            [false, true],
        ),
        (settings(true, "NONE", &[policy("PUBLIC", "{}")]), ExportTo::Unset, [false, false]),
    ] {
        assert_eq!(sees_entry(&settings, &export), seen, "{settings} {export:?}");
    }
}
