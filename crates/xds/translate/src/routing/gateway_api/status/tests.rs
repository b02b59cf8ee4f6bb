//! Statuses of objects, by tables.

use super::{ApiStatus, StatusView};
use crate::testing::{endpoint, evaluate, line, service, tls_secret, world, yaml};
use pilotfish_config::status::{CONTROLLERS, Condition, Controllers, Status};
use pilotfish_model::{
    ClusterAddresses, Kind, KubernetesAttributes, ObjectKey, Port, Protocol, ShardKey, Update, World,
};
use std::sync::Arc;

const API: &str = "gateway.networking.k8s.io/v1";
const GRANT: &str = "gateway.networking.k8s.io/v1beta1";
const LISTENERS: &str = "{name: http, port: 80, protocol: HTTP}";

fn gateway(listeners: &str) -> String {
    line(API, "Gateway", "shop", "gw", &format!("{{gatewayClassName: istio, listeners: [{listeners}]}}"))
}

fn route(kind: &str, parents: &str, rest: &str) -> String {
    let version = match kind {
        "HTTPRoute" | "GRPCRoute" => API,
        _ => "gateway.networking.k8s.io/v1alpha2",
    };
    line(version, kind, "shop", "r", &format!("{{parentRefs: [{parents}], {rest}}}"))
}

/// A world of a text and the services `web` of two namespaces.
fn with(text: &str) -> Arc<World> {
    let services = ["shop", "far"].map(|namespace| service("web", namespace).update());
    world(yaml(text).into_iter().chain(services))
}

fn status(world: &Arc<World>, kind: Kind) -> Option<Arc<Status>> {
    status_of(world, kind, Controllers::Both)
}

fn status_of(world: &Arc<World>, kind: Kind, controllers: Controllers) -> Option<Arc<Status>> {
    let (namespace, name) = match kind {
        Kind::GatewayClass => ("", "c"),
        Kind::KubernetesGateway => ("shop", "gw"),
        _ => ("shop", "r"),
    };
    let key = ObjectKey::new(kind, namespace, name);
    (*evaluate(world, &ApiStatus { key, of: view(controllers) })).clone()
}

fn view(controllers: Controllers) -> StatusView {
    StatusView { cluster: "Kubernetes".into(), controllers, deploys: true }
}

fn word(condition: &Condition) -> String {
    let sign = if condition.status { "" } else { "!" };
    format!("{sign}{}:{}", condition.r#type, condition.reason)
}

/// The conditions of a route at each of its parents.
fn of_route(world: &Arc<World>, kind: Kind) -> Vec<String> {
    let Some(Status::Route { parents, .. }) = status(world, kind).as_deref().cloned() else {
        panic!("no status")
    };
    let words = |conditions: &[Condition]| conditions.iter().map(word).collect::<Vec<_>>().join(" ");
    parents.iter().map(|parent| words(&parent.conditions)).collect()
}

/// The conditions of a Gateway, its addresses, and for each listener its routes and conditions.
fn of_gateway(world: &Arc<World>) -> (Vec<String>, Option<Vec<String>>, Vec<String>) {
    let status = status(world, Kind::KubernetesGateway);
    let Some(Status::Gateway { conditions, addresses, listeners, .. }) = status.as_deref().cloned() else {
        panic!("no status")
    };
    let addresses =
        addresses.map(|list| list.into_iter().map(|a| format!("{} {}", a.r#type, a.value)).collect());
    let listeners = listeners.iter().map(|listener| {
        let words: Vec<String> = listener.conditions.iter().map(word).collect();
        format!("{} {} {}", listener.name, listener.attached_routes, words.join(" "))
    });
    (conditions.iter().map(word).collect(), addresses, listeners.collect())
}

const GOOD: &str = "Accepted:Accepted ResolvedRefs:ResolvedRefs";
const WEB: &str = "rules: [{backendRefs: [{name: web, port: 80}]}]";

#[test]
fn parents_have_an_accepted_condition() {
    let selector = "{name: http, port: 80, protocol: HTTP, hostname: '*.a.com', allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {x: y}}}}}";
    let host = "{name: http, port: 80, protocol: HTTP, hostname: '*.a.com'}";
    let grpc_only = "{name: http, port: 80, protocol: HTTP, allowedRoutes: {kinds: [{kind: GRPCRoute}]}}";
    let two =
        "{name: http, port: 80, protocol: HTTP}, {name: other, port: 81, protocol: HTTP, hostname: b.org}";
    for (listeners, parent, hostnames, expected) in [
        (LISTENERS, "{name: gw}", "[]", "Accepted:Accepted"),
        (LISTENERS, "{name: gw, sectionName: http, port: 80}", "[]", "Accepted:Accepted"),
        (LISTENERS, "{name: gw, sectionName: https}", "[]", "!Accepted:NoMatchingParent"),
        (LISTENERS, "{name: gw, port: 81}", "[]", "!Accepted:NoMatchingParent"),
        (host, "{name: gw}", "[x.a.com]", "Accepted:Accepted"),
        (host, "{name: gw}", "[b.com]", "!Accepted:NoMatchingListenerHostname"),
        (selector, "{name: gw}", "[x.a.com]", "!Accepted:NotAllowedByListeners"),
        (grpc_only, "{name: gw}", "[]", "!Accepted:NotAllowedByListeners"),
        (two, "{name: gw}", "[x.a.com]", "Accepted:Accepted"),
        (two, "{name: gw, sectionName: other}", "[x.a.com]", "!Accepted:NoMatchingListenerHostname"),
        (LISTENERS, "{kind: Service, group: '', name: web}", "[]", "Accepted:Accepted"),
        (LISTENERS, "{kind: Service, group: '', name: none}", "[]", "!Accepted:NoMatchingParent"),
        (
            LISTENERS,
            "{kind: ServiceEntry, group: networking.istio.io, name: none}",
            "[]",
            "!Accepted:NoMatchingParent",
        ),
    ] {
        let route = route("HTTPRoute", parent, &format!("hostnames: {hostnames}, {WEB}"));
        let world = with(&format!("{}{route}", gateway(listeners)));
        let expected = format!("{expected} ResolvedRefs:ResolvedRefs");
        assert_eq!(of_route(&world, Kind::HttpRoute), [expected], "{listeners} {parent} {hostnames}");
    }
}

#[test]
#[allow(clippy::too_many_lines, reason = "one table")]
fn references_are_resolved_or_have_a_reason() {
    let grant = line(
        GRANT,
        "ReferenceGrant",
        "far",
        "g",
        "{from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: shop}], to: [{group: '', kind: Service}]}",
    );
    let gw = "{name: gw}";
    let mesh = "{kind: Service, group: '', name: web}";
    for (parent, grant, rule, expected) in [
        (gw, "", "backendRefs: [{name: web, port: 80}]", "ResolvedRefs:ResolvedRefs"),
        (gw, "", "backendRefs: [{name: none, port: 80}]", "!ResolvedRefs:BackendNotFound"),
        (gw, "", "backendRefs: [{name: none, port: 80, weight: 0}]", "!ResolvedRefs:BackendNotFound"),
        (gw, "", "backendRefs: [{name: web, port: 81}]", "!ResolvedRefs:BackendNotFound"),
        (mesh, "", "backendRefs: [{name: web, port: 81}]", "!ResolvedRefs:BackendNotFound"),
        (gw, "", "backendRefs: [{name: web, namespace: far, port: 80}]", "!ResolvedRefs:RefNotPermitted"),
        (gw, &grant, "backendRefs: [{name: web, namespace: far, port: 80}]", "ResolvedRefs:ResolvedRefs"),
        (
            gw,
            &grant,
            "backendRefs: [{name: none, namespace: far, port: 80}]",
            "!ResolvedRefs:BackendNotFound",
        ),
        (mesh, "", "backendRefs: [{name: web, namespace: far, port: 80}]", "ResolvedRefs:ResolvedRefs"),
        (
            gw,
            "",
            "backendRefs: [{name: none, port: 80}, {kind: Bucket, name: b, port: 80}]",
            "!ResolvedRefs:InvalidKind",
        ),
        (
            gw,
            "",
            "filters: [{type: RequestMirror, requestMirror: {backendRef: {name: none, port: 80}}}]",
            "!ResolvedRefs:BackendNotFound",
        ),
        (
            gw,
            "",
            "filters: [{type: RequestMirror, requestMirror: {backendRef: {name: web}}}]",
            "!ResolvedRefs:InvalidDestination",
        ),
        (
            gw,
            "",
            "filters: [{type: RequestMirror, requestMirror: {backendRef: {name: web, namespace: far, port: 80}}}]",
            "!ResolvedRefs:RefNotPermitted",
        ),
        (
            mesh,
            "",
            "backendRefs: [{kind: ServiceImport, group: multicluster.x-k8s.io, name: web, port: 80}]",
            "ResolvedRefs:ResolvedRefs",
        ),
        (
            mesh,
            "",
            "backendRefs: [{kind: ServiceImport, group: multicluster.x-k8s.io, name: none, port: 80}]",
            "!ResolvedRefs:BackendNotFound",
        ),
    ] {
        let route = route("HTTPRoute", parent, &format!("rules: [{{{rule}}}]"));
        let world = with(&format!("{}{route}{grant}", gateway(LISTENERS)));
        assert_eq!(of_route(&world, Kind::HttpRoute), [format!("Accepted:Accepted {expected}")], "{rule}");
    }
}

#[test]
fn every_kind_of_route_has_its_status() {
    let listeners = "{name: http, port: 80, protocol: HTTP}, {name: tcp, port: 90, protocol: TCP}, {name: tls, port: 91, protocol: TLS, tls: {mode: Passthrough}}";
    for (kind, name, rest) in [
        (Kind::GrpcRoute, "GRPCRoute", ""),
        (Kind::TcpRoute, "TCPRoute", ""),
        (Kind::TlsRoute, "TLSRoute", "hostnames: [a.com], "),
    ] {
        let good = route(name, "{name: gw}", &format!("{rest}{WEB}"));
        assert_eq!(of_route(&with(&format!("{}{good}", gateway(listeners))), kind), [GOOD], "{kind}");
        let bad =
            route(name, "{name: gw}", &format!("{rest}rules: [{{backendRefs: [{{name: none, port: 80}}]}}]"));
        let world = with(&format!("{}{bad}", gateway(listeners)));
        assert_eq!(of_route(&world, kind), ["Accepted:Accepted !ResolvedRefs:BackendNotFound"], "{kind}");
    }
}

#[test]
fn a_grpc_route_that_is_not_served_says_which_mirror_is_at_fault() {
    for (mirror, reason) in [
        ("name: none, port: 80", "BackendNotFound"),
        ("name: web, namespace: far, port: 80", "RefNotPermitted"),
        ("kind: Bucket, name: web, port: 80", "InvalidKind"),
    ] {
        let rules = format!(
            "rules: [{{filters: [{{type: RequestMirror, requestMirror: {{backendRef: {{{mirror}}}}}}}], backendRefs: [{{name: web, port: 80}}]}}]"
        );
        let route = route("GRPCRoute", "{name: gw}", &rules);
        let world = with(&format!("{}{route}", gateway(LISTENERS)));
        assert_eq!(of_route(&world, Kind::GrpcRoute), [format!("Accepted:Accepted !ResolvedRefs:{reason}")]);
    }
}

#[test]
fn what_belongs_to_others_is_left_to_them() {
    let class =
        |controller: &str| line(API, "GatewayClass", "", "c", &format!("{{controllerName: {controller}}}"));
    for (controller, ours) in [
        ("istio.io/gateway-controller", true),
        ("pilotfish.io/gateway-controller", true),
        ("example.com/other", false),
    ] {
        let gateway =
            line(API, "Gateway", "shop", "gw", &format!("{{gatewayClassName: c, listeners: [{LISTENERS}]}}"));
        let route = route("HTTPRoute", "{name: gw}, {name: unknown}", WEB);
        let world = with(&format!("{}{gateway}{route}", class(controller)));
        assert_eq!(status(&world, Kind::GatewayClass).is_some(), ours, "{controller}");
        assert_eq!(status(&world, Kind::KubernetesGateway).is_some(), ours, "{controller}");
        let Some(Status::Route { parents, .. }) = status(&world, Kind::HttpRoute).as_deref().cloned() else {
            panic!()
        };
        let controllers: Vec<&str> = parents.iter().map(|parent| parent.controller).collect();
        assert_eq!(controllers, if ours { vec![controller] } else { vec![] });
    }
}

#[test]
fn beside_istiod_each_writes_its_own_status() {
    let class = line(API, "GatewayClass", "", "c", "{controllerName: pilotfish.io/gateway-controller}");
    let gateway = |class: &str, name: &str| {
        line(
            API,
            "Gateway",
            "shop",
            name,
            &format!("{{gatewayClassName: {class}, listeners: [{LISTENERS}]}}"),
        )
    };
    let parents = "{name: gw}, {name: theirs}, {group: '', kind: Service, name: web}";
    let text = [class, gateway("c", "gw"), gateway("istio", "theirs"), route("HTTPRoute", parents, WEB)];
    let world = with(&text.concat());
    let (istio, own) = (CONTROLLERS[0], CONTROLLERS[1]);
    for (controllers, writes_ours, names_expected) in [
        (Controllers::Both, true, vec![own, istio, istio]),
        (Controllers::Istio, false, vec![istio, istio]),
        (Controllers::Pilotfish, true, vec![own, own]),
    ] {
        assert_eq!(status_of(&world, Kind::GatewayClass, controllers).is_some(), writes_ours);
        assert_eq!(status_of(&world, Kind::KubernetesGateway, controllers).is_some(), writes_ours);
        let status = status_of(&world, Kind::HttpRoute, controllers);
        let Some(Status::Route { ours, parents }) = status.as_deref() else { panic!("no status") };
        let names: Vec<&str> = parents.iter().map(|parent| parent.controller).collect();
        assert_eq!((*ours, names), (controllers, names_expected), "{controllers:?}");
    }
}

#[test]
fn listeners_have_conditions_for_their_problems() {
    let good = "Accepted:Accepted !Conflicted:NoConflicts Programmed:Programmed ResolvedRefs:ResolvedRefs";
    let refs = |reason: &str| {
        format!("Accepted:Accepted !Conflicted:NoConflicts !Programmed:Invalid !ResolvedRefs:{reason}")
    };
    let served = "Accepted:Accepted !Conflicted:NoConflicts Programmed:Programmed";
    let tls = |certificate: &str| {
        format!("{{name: l, port: 443, protocol: HTTPS, tls: {{certificateRefs: [{certificate}]}}}}")
    };
    for (listener, expected) in [
        ("{name: l, port: 80, protocol: HTTP}".to_owned(), good.to_owned()),
        (tls("{name: cert}"), good.to_owned()),
        (tls("{name: none}"), refs("InvalidCertificateRef")),
        (tls("{name: cert, kind: Vault}"), refs("InvalidCertificateRef")),
        (tls("{name: cert, namespace: far}"), refs("RefNotPermitted")),
        (tls("{name: cert}, {name: none}"), format!("{served} !ResolvedRefs:InvalidCertificateRef")),
        (
            "{name: l, port: 53, protocol: UDP}".to_owned(),
            "!Accepted:UnsupportedProtocol !Conflicted:NoConflicts !Programmed:Invalid ResolvedRefs:ResolvedRefs".to_owned(),
        ),
        (
            "{name: l, port: 80, protocol: HTTP, allowedRoutes: {kinds: [{kind: TCPRoute}, {kind: HTTPRoute}]}}".to_owned(),
            "Accepted:Accepted !Conflicted:NoConflicts Programmed:Programmed !ResolvedRefs:InvalidRouteKinds".to_owned(),
        ),
    ] {
        let secret = format!(
            "---\n{{apiVersion: v1, kind: Secret, metadata: {{name: cert, namespace: shop}}, {}}}\n",
            tls_secret()
        );
        let (_, _, listeners) = of_gateway(&with(&format!("{}{secret}", gateway(&listener))));
        assert_eq!(listeners, [format!("l 0 {expected}")], "{listener}");
    }
}

#[test]
fn a_port_is_for_one_protocol() {
    let listeners = "{name: a, port: 80, protocol: HTTP}, {name: b, port: 80, protocol: TCP}, {name: c, port: 80, protocol: HTTP, hostname: c.org}, {name: d, port: 443, protocol: HTTPS, hostname: c.org, tls: {certificateRefs: [{name: x}]}}, {name: e, port: 443, protocol: TLS, hostname: c.org, tls: {mode: Passthrough}}, {name: f, port: 443, protocol: TLS, hostname: d.org, tls: {mode: Passthrough}}";
    let (_, _, found) = of_gateway(&with(&gateway(listeners)));
    let conflicts: Vec<&str> = found.iter().filter_map(|text| text.split(' ').nth(3)).collect();
    assert_eq!(
        conflicts,
        [
            "!Conflicted:NoConflicts",
            "Conflicted:ProtocolConflict",
            "!Conflicted:NoConflicts",
            "!Conflicted:NoConflicts",
            "Conflicted:ProtocolConflict",
            "!Conflicted:NoConflicts",
        ]
    );
}

#[test]
fn attached_routes_are_counted_for_each_listener() {
    let listeners = "{name: a, port: 80, protocol: HTTP}, {name: b, port: 81, protocol: HTTP}";
    let other = line(
        API,
        "HTTPRoute",
        "shop",
        "s",
        &format!("{{parentRefs: [{{name: gw, sectionName: b}}, {{name: gw, port: 81}}], {WEB}}}"),
    );
    let refused = line(
        API,
        "HTTPRoute",
        "far",
        "t",
        &format!("{{parentRefs: [{{name: gw, namespace: shop}}], {WEB}}}"),
    );
    let world =
        with(&format!("{}{}{other}{refused}", gateway(listeners), route("HTTPRoute", "{name: gw}", WEB)));
    let (_, _, found) = of_gateway(&world);
    let counts: Vec<&str> = found.iter().filter_map(|text| text.split(' ').nth(1)).collect();
    assert_eq!(counts, ["1", "2"]);
}

/// The Gateway's own service, changed, with an endpoint where `serves`.
fn reached(service_type: &str, addresses: &[&str], port: u32, serves: bool) -> Vec<Update> {
    let service = service("gw-istio", "shop").with(|service| {
        let list = addresses.iter().map(|address| Arc::from(*address)).collect();
        service.ports = Arc::from([Port {
            number: port,
            name: "http".into(),
            protocol: Protocol::Http,
            target_port: None,
        }]);
        service.kubernetes = Some(Arc::new(KubernetesAttributes {
            service_type: service_type.into(),
            external_addresses: if addresses.is_empty() {
                ClusterAddresses::new()
            } else {
                ClusterAddresses::from([("Kubernetes".into(), list)])
            },
            ..KubernetesAttributes::default()
        }));
    });
    let shard = ShardKey::new(crate::testing::KUBERNETES, "Kubernetes");
    let endpoints: Vec<_> =
        serves.then(|| Arc::new(endpoint("10.0.0.1", 8080, "http"))).into_iter().collect();
    vec![service.update(), Update::Endpoints(service.key(), shard, endpoints.into())]
}

#[test]
fn a_gateway_lists_its_addresses() {
    let inside = "Hostname gw-istio.shop.svc.cluster.local";
    for (updates, programmed, addresses) in [
        (Vec::new(), "!Programmed:AddressNotUsable", None),
        (reached("ClusterIP", &[], 80, true), "Programmed:Programmed", Some(vec![inside])),
        (
            reached("LoadBalancer", &["1.2.3.4", "lb.example.com"], 80, true),
            "Programmed:Programmed",
            Some(vec!["IPAddress 1.2.3.4", "Hostname lb.example.com"]),
        ),
        (reached("LoadBalancer", &["1.2.3.4"], 80, false), "!Programmed:AddressNotUsable", None),
        (reached("LoadBalancer", &[], 80, true), "!Programmed:AddressNotAssigned", None),
        (reached("LoadBalancer", &[], 80, false), "!Programmed:AddressNotUsable", None),
        (reached("LoadBalancer", &["1.2.3.4"], 8080, true), "!Programmed:AddressNotUsable", None),
    ] {
        let world = world(yaml(&gateway(LISTENERS)).into_iter().chain(updates.clone()));
        let (conditions, found, _) = of_gateway(&world);
        assert_eq!(conditions, ["Accepted:Accepted", programmed], "{updates:?}");
        let addresses = addresses.map(|list| list.into_iter().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(found, addresses, "{updates:?}");
    }
}

#[test]
fn each_listener_needs_a_port_that_serves() {
    let two = "{name: http, port: 80, protocol: HTTP}, {name: tcp, port: 90, protocol: TCP}";
    let dns = "{name: http, port: 80, protocol: HTTP}, {name: dns, port: 53, protocol: UDP}";
    let nothing = "{name: dns, port: 53, protocol: UDP}";
    for (listeners, programmed) in [
        (two, "!Programmed:AddressNotUsable"),
        (dns, "Programmed:Programmed"),
        (nothing, "!Programmed:AddressNotUsable"),
    ] {
        let updates = reached("ClusterIP", &[], 80, true);
        let (conditions, _, _) = of_gateway(&world(yaml(&gateway(listeners)).into_iter().chain(updates)));
        assert_eq!(conditions, ["Accepted:Accepted", programmed], "{listeners}");
    }
}

#[test]
fn parameters_that_cannot_be_used_are_a_condition_where_gateways_are_deployed() {
    let spec = format!(
        "{{gatewayClassName: istio, listeners: [{LISTENERS}], infrastructure: {{parametersRef: {{group: '', \
         kind: ConfigMap, name: none}}}}}}"
    );
    let world = with(&line(API, "Gateway", "shop", "gw", &spec));
    let (conditions, _, _) = of_gateway(&world);
    assert_eq!(conditions, ["!Accepted:InvalidParameters", "!Programmed:InvalidParameters"]);
    let key = ObjectKey::new(Kind::KubernetesGateway, "shop", "gw");
    let of = StatusView { deploys: false, ..view(Controllers::Both) };
    let status = evaluate(&world, &ApiStatus { key, of });
    let Some(Status::Gateway { conditions, .. }) = status.as_deref() else { panic!("no status") };
    assert_eq!(word(&conditions[0]), "Accepted:Accepted");
}

#[test]
fn addresses_of_other_types_cannot_be_used() {
    let spec = format!(
        "{{gatewayClassName: istio, addresses: [{{type: example.com/x, value: a}}], listeners: [{LISTENERS}]}}"
    );
    let (conditions, _, _) = of_gateway(&with(&line(API, "Gateway", "shop", "gw", &spec)));
    assert_eq!(conditions, ["!Accepted:UnsupportedAddress", "!Programmed:UnsupportedAddress"]);
}

fn backend_policy(name: &str, targets: &str, validation: &str) -> String {
    let spec = format!("{{targetRefs: [{targets}], validation: {validation}}}");
    line(API, "BackendTLSPolicy", "shop", name, &spec)
}

/// The status of the policy `r` at each ancestor.
fn of_policy(text: &str, controllers: Controllers) -> Vec<String> {
    let web = service("web", "shop").with(|service| service.kubernetes = Some(Arc::default()));
    let world = world(yaml(text).into_iter().chain([web.update()]));
    let status = status_of(&world, Kind::BackendTlsPolicy, controllers);
    let Some(Status::Policy { ancestors, .. }) = status.as_deref() else { panic!("no status: {status:?}") };
    let words = |conditions: &[Condition]| conditions.iter().map(word).collect::<Vec<_>>().join(" ");
    let place = |parent: &pilotfish_config::gateway_api::ParentReference| {
        let section = parent.section_name.as_ref().map(|name| format!("#{name}")).unwrap_or_default();
        format!("{} {}{section}", parent.kind, parent.name)
    };
    let line = |it: &pilotfish_config::status::ParentStatus| {
        format!("{} by {}: {}", place(&it.parent), it.controller, words(&it.conditions))
    };
    ancestors.iter().map(line).collect()
}

#[test]
#[allow(clippy::too_many_lines, reason = "one table")]
fn a_policy_says_for_each_target_whether_it_is_in_force() {
    const SYSTEM: &str = "{hostname: a.b, wellKnownCACertificates: System}";
    let ours = |name: &str| format!("{{hostname: a.b, caCertificateRefs: [{{{name}}}]}}");
    let (web, good) = ("{kind: Service, name: web}", "Accepted:Accepted ResolvedRefs:ResolvedRefs");
    let older = backend_policy("a", web, SYSTEM);
    for (others, targets, validation, expected) in [
        ("", web, SYSTEM.to_owned(), vec![format!("Service web: {good}")]),
        (
            "",
            "{kind: Service, name: web, sectionName: http}, {kind: Service, name: none}",
            SYSTEM.to_owned(),
            vec![
                format!("Service web#http: {good}"),
                "Service none: !Accepted:TargetNotFound ResolvedRefs:ResolvedRefs".to_owned(),
            ],
        ),
        (
            "",
            "{kind: Service, name: web, sectionName: x}",
            SYSTEM.to_owned(),
            vec!["Service web#x: !Accepted:TargetNotFound ResolvedRefs:ResolvedRefs".to_owned()],
        ),
        (
            &*older,
            web,
            SYSTEM.to_owned(),
            vec!["Service web: !Accepted:Conflicted ResolvedRefs:ResolvedRefs".to_owned()],
        ),
        (
            &*older,
            "{kind: Service, name: web, sectionName: http}",
            SYSTEM.to_owned(),
            vec![format!("Service web#http: {good}")],
        ),
        (
            "",
            web,
            ours("kind: ConfigMap, name: none"),
            vec![
                "Service web: !Accepted:NoValidCACertificate !ResolvedRefs:InvalidCACertificateRef"
                    .to_owned(),
            ],
        ),
        (
            "",
            web,
            ours("kind: Secret, name: none"),
            vec!["Service web: !Accepted:NoValidCACertificate !ResolvedRefs:InvalidKind".to_owned()],
        ),
        (
            "",
            web,
            "{hostname: a.b, wellKnownCACertificates: example.com/x}".to_owned(),
            vec!["Service web: !Accepted:Invalid ResolvedRefs:ResolvedRefs".to_owned()],
        ),
    ] {
        let text = format!("{others}{}", backend_policy("r", targets, &validation));
        let found: Vec<_> = of_policy(&text, Controllers::Both)
            .into_iter()
            .map(|line| line.replace(" by istio.io/mesh-controller", ""))
            .collect();
        assert_eq!(found, expected, "{targets} {validation}");
    }
}

#[test]
fn gateways_whose_routes_lead_to_a_target_are_ancestors() {
    let validation = "{hostname: a.b, wellKnownCACertificates: System}";
    let policy = backend_policy("r", "{kind: Service, name: web}", validation);
    let route = route("HTTPRoute", "{name: gw}", "rules: [{backendRefs: [{name: web, port: 80}]}]");
    let text = format!("{policy}{}{route}", gateway(LISTENERS));
    let good = "Accepted:Accepted ResolvedRefs:ResolvedRefs";
    assert_eq!(
        of_policy(&text, Controllers::Both),
        [
            format!("Service web by istio.io/mesh-controller: {good}"),
            format!("Gateway gw by istio.io/gateway-controller: {good}"),
        ]
    );
    assert_eq!(
        of_policy(&text, Controllers::Pilotfish),
        [format!("Service web by pilotfish.io/gateway-controller: {good}")]
    );
    // A route that the Gateway does not take makes it no ancestor.
    let text =
        format!("{policy}{}{}", gateway(LISTENERS), route.replace("name: gw}", "name: gw, sectionName: x}"));
    assert_eq!(of_policy(&text, Controllers::Both).len(), 1);
}

#[test]
fn redirects_that_lead_back_everywhere_are_refused() {
    let certificate = format!(
        "---\n{{apiVersion: v1, kind: Secret, metadata: {{name: cert, namespace: shop}}, {}}}\n",
        tls_secret()
    );
    let tls = |name: &str, port: u16| {
        format!("{{name: {name}, port: {port}, protocol: HTTPS, tls: {{certificateRefs: [{{name: cert}}]}}}}")
    };
    let (http, https) = ("{name: http, port: 80, protocol: HTTP}".to_owned(), tls("https", 443));
    let both = format!("{http}, {https}");
    let for_b = "{name: http, port: 80, protocol: HTTP, hostname: b.com}".to_owned();
    let refused = ["Accepted:Accepted !ResolvedRefs:InvalidFilter"];
    let accepted = ["Accepted:Accepted ResolvedRefs:ResolvedRefs"];
    let a = "matches: [{path: {value: /a}}], ";
    let full = "path: {type: ReplaceFullPath, replaceFullPath: /a}";
    let prefix = |new: &str| format!("path: {{type: ReplacePrefixMatch, replacePrefixMatch: {new}}}");
    let web = "{matches: [{path: {type: Exact, value: /a}}], backendRefs: [{name: web, port: 80}]}";
    for (listeners, hosts, matches, to, beside, wanted) in [
        (&http, "", a, full, "", refused),
        (&http, "", a, full, web, accepted),
        (&http, "", "matches: [{path: {value: /b}}], ", full, "", accepted),
        (&http, "", "", full, "", refused),
        (
            &http,
            "",
            "",
            full,
            "{matches: [{path: {value: /a}}], backendRefs: [{name: web, port: 80}]}",
            accepted,
        ),
        (&http, "", a, &prefix("/a/"), "", refused),
        (&http, "", "matches: [{path: {value: /b}}, {path: {value: /a}}], ", full, "", refused),
        (&http, "", a, &prefix("/a/b"), "", refused),
        (&http, "", a, &prefix("/b"), "", accepted),
        (&http, "", "", "scheme: https", "", accepted),
        (&https, "", "", "scheme: https", "", refused),
        (&both, "", "", "scheme: https", "", accepted),
        (&https, "", "", "scheme: https, port: 443", "", refused),
        (&https, "", "", "scheme: https, port: 8443", "", accepted),
        (&tls("https", 8443), "", "", "port: 8443", "", refused),
        (&tls("https", 8443), "", "", "scheme: https", "", refused),
        (&http, "", "", "port: 80", "", refused),
        (&http, "", "", "port: 8080", "", accepted),
        (&http, "", "", "hostname: a.com", "", accepted),
        (&http, "hostnames: [a.com]", "", "hostname: a.com", "", refused),
        (&http, "hostnames: [a.com]", "", "hostname: a.com, scheme: http, port: 80", "", refused),
        (&http, "hostnames: [a.com]", "", "hostname: b.com", "", accepted),
        (&http, "hostnames: [a.com, www.a.com]", "", "hostname: a.com", "", accepted),
        (&for_b, "", "", "hostname: b.com", "", refused),
        (&http, "", "matches: [{method: POST}], ", "statusCode: 302, port: 80", "", accepted),
        (&http, "", "matches: [{method: GET}], ", "statusCode: 302, port: 80", "", refused),
    ] {
        let redirect =
            format!("{{{matches}filters: [{{type: RequestRedirect, requestRedirect: {{{to}}}}}]}}");
        let hosts = if hosts.is_empty() { String::new() } else { format!("{hosts}, ") };
        let rest = format!("{hosts}rules: [{redirect}, {beside}]").replace(", ]", "]");
        let text = [gateway(listeners), certificate.clone(), route("HTTPRoute", "{name: gw}", &rest)];
        let found = of_route(&with(&text.concat()), Kind::HttpRoute);
        assert_eq!(found, wanted, "{listeners} {rest}");
    }
}

#[test]
fn redirects_whose_target_another_route_takes_are_accepted() {
    let redirect = "rules: [{filters: [{type: RequestRedirect, requestRedirect: {path: {type: ReplaceFullPath, replaceFullPath: /app/start}}}]}]";
    for (hosts, path, wanted) in [
        ("a.com", "/app", "Accepted:Accepted ResolvedRefs:ResolvedRefs"),
        ("a.com", "/app/other", "Accepted:Accepted !ResolvedRefs:InvalidFilter"),
        ("a.com", "/", "Accepted:Accepted !ResolvedRefs:InvalidFilter"),
        ("b.com", "/app", "Accepted:Accepted !ResolvedRefs:InvalidFilter"),
    ] {
        let other = format!(
            "{{parentRefs: [{{name: gw}}], hostnames: [{hosts}], rules: [{{matches: [{{path: {{value: {path}}}}}], backendRefs: [{{name: web, port: 80}}]}}]}}"
        );
        let text = [
            gateway(LISTENERS),
            route("HTTPRoute", "{name: gw}", &format!("hostnames: [a.com], {redirect}")),
            line(API, "HTTPRoute", "shop", "other", &other),
        ];
        assert_eq!(of_route(&with(&text.concat()), Kind::HttpRoute), [wanted], "{hosts} {path}");
    }
}

#[test]
fn redirect_of_a_service_to_its_own_port_is_refused() {
    let parent = "{group: '', kind: Service, name: web}";
    for (to, wanted) in [
        ("port: 80", "Accepted:Accepted !ResolvedRefs:InvalidFilter"),
        ("hostname: web", "Accepted:Accepted !ResolvedRefs:InvalidFilter"),
        ("scheme: https", "Accepted:Accepted ResolvedRefs:ResolvedRefs"),
    ] {
        let rest = format!("rules: [{{filters: [{{type: RequestRedirect, requestRedirect: {{{to}}}}}]}}]");
        let found = of_route(&with(&route("HTTPRoute", parent, &rest)), Kind::HttpRoute);
        assert_eq!(found, [wanted], "{to}");
    }
}

#[test]
fn route_for_a_port_that_its_parent_lacks_is_not_accepted() {
    let rest = "rules: [{backendRefs: [{name: web, port: 80}]}]";
    for (parent, wanted) in [
        ("{group: '', kind: Service, name: web, port: 80}", "Accepted:Accepted"),
        ("{group: '', kind: Service, name: web, port: 81}", "!Accepted:NoMatchingParent"),
        ("{name: gw, port: 80}", "Accepted:Accepted"),
        ("{name: gw, port: 81}", "!Accepted:NoMatchingParent"),
    ] {
        let text = [gateway(LISTENERS), route("HTTPRoute", parent, rest)].concat();
        let found = of_route(&with(&text), Kind::HttpRoute);
        assert_eq!(found, [format!("{wanted} ResolvedRefs:ResolvedRefs")], "{parent}");
    }
}
