use super::{EgressOf, ListenerServicesOf, Scope, ServicesOf};
use crate::engine::{Cx, Query};
use crate::proxy::{Proxy, ProxyKind};
use crate::testing::{TestService, evaluate, labels, line, service, sidecar, world, yaml};
use pilotfish_model::{ExportTo, Hostname, Port, Protocol, Resolution, Service, Update, World};
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

#[test]
fn services_are_seen_only_where_they_are_exported_to() {
    let exported =
        |host: &str, to: ExportTo| external(host, "pay", &[80]).with(|s| s.export_to = to).update();
    let world = world([
        exported("public.com", ExportTo::Public),
        exported("own.com", ExportTo::Namespaces(["pay".into()].into())),
        exported("shop.com", ExportTo::Namespaces(["shop".into()].into())),
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
