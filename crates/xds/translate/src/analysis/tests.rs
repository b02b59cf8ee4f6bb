//! A table of what each analyzer finds and what it leaves alone, and that following changes finds what
//! looking at everything does.

#![allow(clippy::too_many_lines, reason = "tables of tests")]

mod clusters;
mod effect;
mod redirects;

use super::*;
use crate::testing::{credentials, endpoint, line, pod, service, world, yaml};
use pilotfish_model::{ShardKey, Update};
use proptest::prelude::*;

const NETWORKING: &str = "networking.istio.io/v1";
const SECURITY: &str = "security.istio.io/v1";

fn analyzer(known: Known) -> Analyzer {
    Analyzer::new(TranslationSettings::default(), "Kubernetes".into(), Controllers::Both, known)
}

fn object(kind: &str, name: &str, spec: &str) -> String {
    let api = match kind {
        "AuthorizationPolicy" | "RequestAuthentication" | "PeerAuthentication" => SECURITY,
        "Telemetry" => "telemetry.istio.io/v1",
        "EnvoyFilter" => "networking.istio.io/v1alpha3",
        "HTTPRoute" => "gateway.networking.k8s.io/v1",
        _ => NETWORKING,
    };
    line(api, kind, "shop", name, spec)
}

fn virtual_service(spec: &str) -> String {
    object("VirtualService", "rule", spec)
}

/// Services `web` (ports 80 and 443) and `cart` in namespace `shop`, `pay` in `bank`; Pods of `web` with
/// labels `app: web` and `version: v1`, and one of a gateway with `istio: ingress` in `edge`.
fn shop() -> Vec<Update> {
    let second = |service: &mut pilotfish_model::Service| {
        let port = pilotfish_model::Port {
            number: 443,
            name: "https".into(),
            protocol: pilotfish_model::Protocol::Https,
            ..service.ports[0].clone()
        };
        service.ports = [service.ports[0].clone(), port].into();
    };
    let web = service("web", "shop").with(second);
    let shard = ShardKey::new(crate::testing::KUBERNETES, "Kubernetes");
    let mut backend = endpoint("10.0.0.1", 8080, "http");
    let labels = crate::testing::labels(&[("app", "web"), ("version", "v1")]);
    Arc::make_mut(&mut backend.attributes).labels = labels;
    let ingress = service("ingress", "edge").with(|service| {
        service.selector = crate::testing::labels(&[("istio", "ingress")]);
    });
    vec![
        web.update(),
        service("cart", "shop").update(),
        service("pay", "bank").update(),
        ingress.update(),
        Update::Endpoints(web.key(), shard, [Arc::new(backend)].into()),
        Update::Workload(Arc::new(pod("web-1", "shop", "10.0.0.1", &[("app", "web"), ("version", "v1")]))),
        Update::Workload(Arc::new(pod("in-1", "edge", "10.0.0.9", &[("istio", "ingress")]))),
    ]
}

/// The same with a service `db` for TCP on port 5432, and `lock` for TLS on port 443.
fn with_streams() -> Vec<Update> {
    let of = |name: &str, number, protocol| {
        let made = service(name, "shop").with(|service| {
            let port = pilotfish_model::Port { number, name: "p".into(), protocol, target_port: None };
            service.ports = [port].into();
        });
        made.update()
    };
    let more =
        [of("db", 5432, pilotfish_model::Protocol::Tcp), of("lock", 443, pilotfish_model::Protocol::Https)];
    shop().into_iter().chain(more).collect()
}

/// `CODE object path` of each finding of these objects beside the shop.
fn found(text: &str) -> Vec<String> {
    found_in(shop(), text, Known::default())
}

fn found_in(mut updates: Vec<Update>, text: &str, known: Known) -> Vec<String> {
    updates.extend(yaml(text));
    let mut analyzer = analyzer(known);
    analyzer.advance(&world(updates), &ChangeSet::default());
    let all = analyzer.findings();
    all.map(|finding| format!("{} {} {}", finding.code, finding.object.name, finding.path)).collect()
}

fn messages(text: &str) -> Vec<String> {
    messages_in(shop(), text)
}

fn messages_in(mut updates: Vec<Update>, text: &str) -> Vec<String> {
    updates.extend(yaml(text));
    let mut analyzer = analyzer(Known::default());
    analyzer.advance(&world(updates), &ChangeSet::default());
    let all = analyzer.findings();
    all.map(|finding| format!("{} ({})", finding.message, finding.hint.as_deref().unwrap_or_default()))
        .collect()
}

fn check(cases: &[(&str, &[&str])]) {
    for (text, wanted) in cases {
        assert_eq!(found(text), *wanted, "{text}");
    }
}

#[test]
fn destinations_of_routes() {
    let route =
        |to: &str| virtual_service(&format!("{{hosts: [web], http: [{{route: [{{destination: {to}}}]}}]}}"));
    let http = "spec.http[0].route[0].destination";
    for (to, wanted) in [
        ("{host: cart}", vec![]),
        ("{host: cart.shop.svc.cluster.local}", vec![]),
        ("{host: web, port: {number: 443}}", vec![]),
        ("{host: crat}", vec![format!("IST0101 rule {http}.host")]),
        ("{host: cart.shop}", vec![format!("IST0101 rule {http}.host")]),
        ("{host: example.com}", vec![format!("IST0101 rule {http}.host")]),
        ("{host: web}", vec![format!("IST0112 rule {http}")]),
        ("{host: cart, port: {number: 81}}", vec![format!("IST0101 rule {http}.port.number")]),
        ("{host: cart, subset: v2}", vec![format!("IST0101 rule {http}.subset")]),
    ] {
        assert_eq!(found(&route(to)), wanted, "{to}");
    }
    let streams = "{hosts: [web, db], tls: [{match: [{sniHosts: [web]}], route: [{destination: {host: a}}]}], \
                   tcp: [{route: [{destination: {host: b}}]}]}";
    assert_eq!(
        found_in(with_streams(), &virtual_service(streams), Known::default()),
        [
            "IST0101 rule spec.tls[0].route[0].destination.host",
            "IST0101 rule spec.tcp[0].route[0].destination.host"
        ]
    );
    let mirrors = "{hosts: [web], http: [{route: [{destination: {host: cart}}], mirror: {host: a}}, \
                   {match: [{port: 1}], delegate: {name: gone}}]}";
    assert_eq!(
        found(&virtual_service(mirrors)),
        [
            "IST0101 rule spec.http[1].delegate",
            "IST0101 rule spec.http[0].mirror.host",
            "IST0131 rule spec.http[1].match[0].port",
            "IST0130 rule spec.http[1]"
        ],
        "all mistakes of an object are told"
    );
}

#[test]
fn what_was_meant_is_offered() {
    let route =
        |to: &str| virtual_service(&format!("{{hosts: [web], http: [{{route: [{{destination: {to}}}]}}]}}"));
    for (to, hint) in [
        ("{host: crat}", "did you mean \"cart\"?"),
        ("{host: pay}", "there is a \"pay\" in namespace bank"),
        ("{host: pay.banc.svc.cluster.local}", "did you mean \"pay.bank\"?"),
        ("{host: cart.shop}", "write the Service cart of namespace shop as its full host name"),
    ] {
        let told = messages(&route(to));
        assert!(told.iter().any(|message| message.contains(hint)), "{to}: {told:?}");
    }
}

#[test]
fn subsets_and_who_sees_them() {
    let rule = |exported: &str| {
        object(
            "DestinationRule",
            "web",
            &format!("{{host: web, subsets: [{{name: v1, labels: {{version: v1}}}}]{exported}}}"),
        )
    };
    let route = |subset: &str| {
        virtual_service(&format!(
            "{{hosts: [cart], http: [{{route: [{{destination: {{host: web, subset: {subset}, port: {{number: 80}}}}}}]}}]}}"
        ))
    };
    assert!(found(&(rule("") + &route("v1"))).is_empty());
    let wrong = "IST0101 rule spec.http[0].route[0].destination.subset";
    assert_eq!(found(&(rule("") + &route("v2"))), [wrong]);
    assert_eq!(found(&(rule(", exportTo: [bank]") + &route("v1"))), [wrong], "it is for others");
}

#[test]
fn services_that_are_not_exported() {
    let hidden =
        service("hidden", "bank").with(|service| service.export_to = pilotfish_model::ExportTo::Nobody);
    let mut updates = shop();
    updates.push(hidden.update());
    let text = virtual_service(
        "{hosts: [web], http: [{route: [{destination: {host: hidden.bank.svc.cluster.local}}]}]}",
    );
    assert_eq!(
        found_in(updates, &text, Known::default()),
        ["IST0101 rule spec.http[0].route[0].destination.host"]
    );
}

#[test]
fn gateways_of_virtual_services() {
    let gateway = object(
        "Gateway",
        "front",
        "{selector: {istio: ingress}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [a.com, \"./b.com\", \"bank/c.com\"]}]}",
    );
    let rule = |hosts: &str, gateways: &str| {
        virtual_service(&format!(
            "{{hosts: [{hosts}], gateways: [{gateways}], http: [{{route: [{{destination: {{host: cart}}}}]}}]}}"
        ))
    };
    for (hosts, gateways, wanted) in [
        ("a.com, b.com", "front", vec![]),
        ("a.com", "shop/front, mesh", vec![]),
        ("\"*.com\"", "front", vec![]),
        ("a.com", "fornt", vec!["IST0101 rule spec.gateways[0]"]),
        ("a.com", "bank/front", vec!["IST0101 rule spec.gateways[0]"]),
        ("a.com", "gw-istio-autogenerated-k8s-gateway", vec!["IST0165 rule spec.gateways[0]"]),
        ("a.com, x.com", "front", vec!["IST0132 rule spec.gateways[0]"]),
        ("c.com", "front", vec!["IST0132 rule spec.gateways[0]"]),
    ] {
        assert_eq!(found(&(gateway.clone() + &rule(hosts, gateways))), wanted, "{hosts} {gateways}");
    }
    let text = virtual_service(
        "{hosts: [cart], http: [{match: [{gateways: [front]}], route: [{destination: {host: cart}}]}]}",
    );
    assert_eq!(found(&text), ["IST0131 rule spec.http[0].match[0].gateways"]);
}

#[test]
fn hosts_that_two_have() {
    let rule = |name: &str, more: &str| {
        object(
            "VirtualService",
            name,
            &format!("{{hosts: [web]{more}, http: [{{route: [{{destination: {{host: cart}}}}]}}]}}"),
        )
    };
    let both = ["IST0109 a spec.hosts", "IST0109 b spec.hosts"];
    assert_eq!(found(&(rule("a", "") + &rule("b", ""))), both);
    assert_eq!(found(&(rule("a", ", exportTo: [\".\"]") + &rule("b", ", exportTo: [\".\"]"))), both);
    assert!(
        found(&(rule("a", "") + &rule("b", ", exportTo: [\".\"]"))).is_empty(),
        "one is for its own namespace"
    );
    let told = messages(&(rule("a", "") + &rule("b", "")));
    assert!(told[0].contains("this one is used") && told[1].contains("the other is used"), "{told:?}");
}

#[test]
fn routes_that_are_never_used() {
    let rule = |routes: &[&str]| {
        let routes: Vec<_> = routes
            .iter()
            .map(|conditions| format!("{{{conditions}route: [{{destination: {{host: cart}}}}]}}"))
            .collect();
        virtual_service(&format!("{{hosts: [web], http: [{}]}}", routes.join(", ")))
    };
    for (routes, wanted) in [
        (&["match: [{uri: {prefix: /a}}], ", ""][..], vec![]),
        (&["", "match: [{uri: {prefix: /a}}], "], vec!["IST0130 rule spec.http[1]"]),
        (&["match: [{uri: {prefix: /}}], ", ""], vec!["IST0130 rule spec.http[1]"]),
        (
            &["match: [{uri: {prefix: /a}}], ", "match: [{uri: {exact: /a/b}}], "],
            vec!["IST0130 rule spec.http[1]"],
        ),
        (&["match: [{uri: {exact: /a/b}}], ", "match: [{uri: {prefix: /a}}], "], vec![]),
        (
            &["match: [{uri: {prefix: /a}}], ", "match: [{uri: {prefix: /a}}, {uri: {prefix: /b}}], "],
            vec!["IST0131 rule spec.http[1].match[0]"],
        ),
        (
            &["match: [{uri: {prefix: /a}, headers: {x: {exact: y}}}], ", "match: [{uri: {prefix: /a}}], "],
            vec![],
        ),
        (
            &[
                "match: [{headers: {x: {exact: y}}}], ",
                "match: [{uri: {prefix: /a}, headers: {x: {exact: y}}}], ",
            ],
            vec!["IST0130 rule spec.http[1]"],
        ),
        (&["match: [{method: {exact: GET}}], ", "match: [{method: {exact: PUT}}], "], vec![]),
        (&["match: [{uri: {regex: .*}}], ", ""], vec!["IST0130 rule spec.http[1]"]),
        (&["match: [{uri: {regex: /a.*}}], ", "match: [{uri: {prefix: /a}}], "], vec![]),
        (
            &["match: [{uri: {prefix: /A}, ignoreUriCase: true}], ", "match: [{uri: {prefix: /A/b}}], "],
            vec![],
        ),
        (
            &["match: [{port: 80}], ", "match: [{port: 81}], "],
            vec!["IST0131 rule spec.http[1].match[0].port"],
        ),
        (&["match: [{sourceNamespace: bank}], ", ""], vec![]),
        (&["match: [{withoutHeaders: {x: {}}}], ", ""], vec![]),
    ] {
        assert_eq!(found(&rule(routes)), wanted, "{routes:?}");
    }
    let tls = "{hosts: [a.com], tls: [{match: [{sniHosts: [a.com]}], route: [{destination: {host: cart}}]}, \
               {match: [{sniHosts: [a.com]}], route: [{destination: {host: cart}}]}]}";
    assert_eq!(
        found(&virtual_service(&tls.replace("hosts: [a.com]", "hosts: [web]"))),
        ["IST0130 rule spec.tls[1]"]
    );
    assert_eq!(
        found(&virtual_service(tls)),
        ["PLF0003 rule spec.hosts[0]", "IST0130 rule spec.tls[1]"],
        "no service has the host"
    );
    let tcp = "{hosts: [db], tcp: [{match: [{port: 5432}], route: [{destination: {host: cart}}]}, {route: [{destination: {host: cart}}]}, \
               {match: [{port: 5432}], route: [{destination: {host: cart}}]}]}";
    assert_eq!(
        found_in(with_streams(), &virtual_service(tcp), Known::default()),
        ["IST0130 rule spec.tcp[2]"]
    );
}

#[test]
fn a_delegate_takes_what_its_routes_take() {
    let leaf = object(
        "VirtualService",
        "leaf",
        "{http: [{match: [{uri: {prefix: /a}}], route: [{destination: {host: cart}}]}]}",
    );
    let root = virtual_service(
        "{hosts: [web], http: [{delegate: {name: leaf}}, {match: [{uri: {prefix: /b}}], route: [{destination: {host: cart}}]}]}",
    );
    assert!(found(&(leaf + &root)).is_empty());
}

#[test]
fn a_large_rule_is_looked_at_within_a_limit() {
    let routes: Vec<_> = (0..3_000)
        .map(|n| format!("{{match: [{{uri: {{exact: /{n}}}}}], route: [{{destination: {{host: gone}}}}]}}"))
        .collect();
    let text = virtual_service(&format!("{{hosts: [web], http: [{}]}}", routes.join(", ")));
    let told = messages(&text);
    assert_eq!(told.len(), finding::MOST_FINDINGS);
    assert!(told.last().unwrap().contains("and 2950 more findings"), "{:?}", told.last());
}

/// Each of the conditions is compared with each of the ports on which a client takes the list of routes.
#[test]
fn a_rule_with_many_conditions_for_many_ports_is_looked_at_within_a_limit() {
    use pilotfish_model::{Port, Protocol};
    let many = |protocol| {
        let ports = (1..=1_000)
            .map(|number| Port { number, name: "p".into(), protocol, target_port: None })
            .collect();
        service("many", "shop").with(|service| service.ports = ports).update()
    };
    let rule = |list: &str, conditions: usize, condition: &dyn Fn(usize) -> String| {
        let some = |n| {
            format!(
                "{{match: [{}], route: [{{destination: {{host: many, port: {{number: 1}}}}}}]}}",
                condition(n)
            )
        };
        let routes: Vec<_> = (0..conditions).map(some).collect();
        let last =
            format!("{{match: [{}], route: [{{destination: {{host: gone}}}}]}}", condition(conditions));
        virtual_service(&format!("{{hosts: [many], {list}: [{}, {last}]}}", routes.join(", ")))
    };
    let http = |n: usize| format!("{{port: 1, uri: {{exact: /{n}}}}}");
    let tls = |n: usize| {
        format!("{{port: 1, sniHosts: [many.shop.svc.cluster.local], sourceLabels: {{n: \"{n}\"}}}}")
    };
    let lists: [(_, _, &dyn Fn(usize) -> String); 2] =
        [("http", Protocol::Http, &http), ("tls", Protocol::Https, &tls)];
    for (list, protocol, condition) in lists {
        let found = |conditions| {
            let updates = shop().into_iter().chain([many(protocol)]).collect();
            found_in(updates, &rule(list, conditions, condition), Known::default())
        };
        assert_eq!(found(10), [format!("IST0101 rule spec.{list}[10].route[0].destination.host")]);
        assert_eq!(found(1_100), Vec::<String>::new(), "{list}: the last one was looked at");
    }
}

#[test]
fn destination_rules() {
    let rule = |spec: &str| object("DestinationRule", "dr", spec);
    for (spec, wanted) in [
        ("{host: web, subsets: [{name: v1, labels: {version: v1}}]}", vec![]),
        ("{host: \"*.shop.svc.cluster.local\"}", vec![]),
        ("{host: wbe}", vec!["IST0174 dr spec.host"]),
        ("{host: \"*.example.com\"}", vec!["IST0174 dr spec.host"]),
        (
            "{host: web, subsets: [{name: v2, labels: {version: v2}}]}",
            vec!["IST0173 dr spec.subsets[0].labels"],
        ),
        ("{host: cart, subsets: [{name: v2, labels: {version: v2}}]}", vec![]),
        (
            "{host: web, trafficPolicy: {portLevelSettings: [{port: {number: 81}}]}}",
            vec!["IST0101 dr spec.trafficPolicy.portLevelSettings[0].port.number"],
        ),
        ("{host: web, workloadSelector: {matchLabels: {app: web}}}", vec![]),
        (
            "{host: web, workloadSelector: {matchLabels: {app: wbe}}}",
            vec!["IST0127 dr spec.workloadSelector.matchLabels"],
        ),
    ] {
        assert_eq!(found(&rule(spec)), wanted, "{spec}");
    }
    let twice = object(
        "DestinationRule",
        "a",
        "{host: cart, subsets: [{name: x, labels: {a: b}}], trafficPolicy: {tls: {mode: DISABLE}}}",
    ) + &object(
        "DestinationRule",
        "b",
        "{host: cart, subsets: [{name: x, labels: {a: c}}], trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}}",
    );
    assert_eq!(found(&twice), ["PLF0001 b spec.subsets[0]", "PLF0001 b spec.trafficPolicy"]);
}

fn front(name: &str, selector: &str, port: u32, host: &str, tls: &str) -> String {
    let protocol = if tls.is_empty() { "HTTP" } else { "HTTPS" };
    object(
        "Gateway",
        name,
        &format!(
            "{{selector: {selector}, servers: [{{port: {{number: {port}, name: p, protocol: {protocol}}}, hosts: [{host}]{tls}}}]}}"
        ),
    )
}

#[test]
fn gateways() {
    let ingress = "{istio: ingress}";
    assert!(found(&front("a", ingress, 80, "a.com", "")).is_empty());
    assert_eq!(found(&front("a", "{istio: egress}", 80, "a.com", "")), ["IST0101 a spec.selector"]);
    assert_eq!(found(&front("a", ingress, 81, "a.com", "")), ["IST0162 a spec.servers[0].port.number"]);
    let tls = ", tls: {mode: SIMPLE, credentialName: gone}";
    assert_eq!(
        found(&front("a", ingress, 80, "a.com", tls)),
        ["IST0101 a spec.servers[0].tls.credentialName"]
    );
    let both = front("a", ingress, 80, "a.com", "") + &front("b", ingress, 80, "a.com", "");
    assert_eq!(found(&both), ["IST0145 b spec.servers[0].hosts"]);
    let apart = front("a", ingress, 80, "a.com", "") + &front("b", ingress, 80, "b.com", "");
    assert!(found(&apart).is_empty());
}

#[test]
fn credentials_of_gateways() {
    let mut updates = shop();
    updates.extend(credentials());
    let secrets: Vec<String> = world(credentials())
        .objects(Kind::Secret)
        .filter(|secret| secret.key().namespace == *"edge")
        .map(|secret| secret.key().name.to_string())
        .collect();
    let of = |name: &str| {
        let tls = format!(", tls: {{mode: SIMPLE, credentialName: {name}}}");
        let text = front("a", "{istio: ingress}", 80, "a.com", &tls);
        found_in(updates.clone(), &text, Known::default())
    };
    let outcomes: BTreeSet<String> = secrets.iter().flat_map(|name| of(name)).collect();
    assert_eq!(of("gone"), ["IST0101 a spec.servers[0].tls.credentialName"]);
    assert!(
        outcomes.iter().all(|finding| finding.starts_with("IST0161") || finding.starts_with("IST0101")),
        "{outcomes:?}"
    );
    assert!(outcomes.iter().any(|finding| finding.starts_with("IST0161")), "{secrets:?}: {outcomes:?}");
    assert!(secrets.iter().any(|name| of(name).is_empty()), "some can be used");
    let tls = ", tls: {mode: SIMPLE, credentialName: same}";
    let twice =
        front("a", "{istio: ingress}", 80, "a.com", tls) + &front("b", "{istio: ingress}", 80, "b.com", tls);
    let shared = found_in(updates.clone(), &twice, Known::default());
    assert!(shared.contains(&"IST0138 a spec.servers[0].tls".to_owned()), "{shared:?}");
    let partly = Known { secrets: Completeness::Partly, ..Known::default() };
    let text = front("a", "{istio: ingress}", 80, "a.com", ", tls: {mode: SIMPLE, credentialName: gone}");
    assert!(found_in(shop(), &text, partly).is_empty(), "no Secret is known");
}

#[test]
fn policies_and_their_targets() {
    check(&[
        (&object("AuthorizationPolicy", "p", "{selector: {matchLabels: {app: web}}}"), &[]),
        (
            &object("AuthorizationPolicy", "p", "{selector: {matchLabels: {app: wbe}}}"),
            &["IST0127 p spec.selector.matchLabels"],
        ),
        (
            &object("PeerAuthentication", "p", "{selector: {matchLabels: {app: wbe}}, mtls: {mode: STRICT}}"),
            &["IST0127 p spec.selector.matchLabels"],
        ),
        (
            &object("AuthorizationPolicy", "p", "{action: CUSTOM, provider: {name: gone}, rules: [{}]}"),
            &["IST0101 p spec.provider.name"],
        ),
        (
            &object("AuthorizationPolicy", "p", "{rules: [{from: [{source: {namespaces: [shpo, bank]}}]}]}"),
            &["IST0101 p spec.rules[0].from[0].source.namespaces[0]"],
        ),
        (
            &object(
                "AuthorizationPolicy",
                "p",
                "{targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: gone}]}",
            ),
            &["IST0101 p spec.targetRefs"],
        ),
        (
            &object("Telemetry", "t", "{accessLogging: [{providers: [{name: gone}]}]}"),
            &["IST0101 t spec.accessLogging[0].providers[0].name"],
        ),
        (&object("Telemetry", "t", "{accessLogging: [{providers: [{name: envoy}]}]}"), &[]),
        (
            &object("Telemetry", "t", "{tracing: [{randomSamplingPercentage: 1}]}"),
            &["IST0157 t spec.tracing[0]"],
        ),
        (
            &(object("Telemetry", "a", "{metrics: [{}]}") + &object("Telemetry", "b", "{metrics: [{}]}")),
            &["IST0160 a ", "IST0160 b "],
        ),
        (
            &(object("Telemetry", "a", "{selector: {matchLabels: {app: web}}}")
                + &object("Telemetry", "b", "{selector: {matchLabels: {version: v1}}}")),
            &["IST0159 a ", "IST0159 b "],
        ),
    ]);
}

#[test]
fn sidecars() {
    let egress = "egress: [{hosts: [\"*/*\"]}]";
    check(&[
        (&object("Sidecar", "s", &format!("{{{egress}}}")), &[]),
        (
            &object("Sidecar", "s", &format!("{{workloadSelector: {{labels: {{app: wbe}}}}, {egress}}}")),
            &["IST0101 s spec.workloadSelector.labels"],
        ),
        (
            &(object("Sidecar", "a", &format!("{{{egress}}}"))
                + &object("Sidecar", "b", &format!("{{{egress}}}"))),
            &["IST0111 a ", "IST0111 b "],
        ),
        (
            &(object("Sidecar", "a", &format!("{{workloadSelector: {{labels: {{app: web}}}}, {egress}}}"))
                + &object(
                    "Sidecar",
                    "b",
                    &format!("{{workloadSelector: {{labels: {{version: v1}}}}, {egress}}}"),
                )),
            &["IST0110 a ", "IST0110 b "],
        ),
        (
            &object("Sidecar", "s", "{egress: [{hosts: [\"shpo/*\"]}]}"),
            &["IST0101 s spec.egress[0].hosts[0]"],
        ),
        (
            &object("Sidecar", "s", "{egress: [{hosts: [\"shop/pay.bank.svc.cluster.local\"]}]}"),
            &["IST0101 s spec.egress[0].hosts[0]"],
        ),
    ]);
}

#[test]
fn envoy_filters() {
    let patch = |apply: &str, patch: &str, more: &str| {
        object(
            "EnvoyFilter",
            "e",
            &format!("{{configPatches: [{{applyTo: {apply}, patch: {{{patch}}}{more}}}]}}"),
        )
    };
    let value = ", value: {name: envoy.filters.http.cors}";
    check(&[
        (&patch("HTTP_FILTER", &format!("operation: INSERT_FIRST{value}"), ""), &[]),
        (
            &patch("HTTP_FILTER", &format!("operation: INSERT_BEFORE{value}"), ""),
            &["IST0151 e spec.configPatches[0].patch.operation"],
        ),
        (
            &patch(
                "HTTP_FILTER",
                &format!("operation: INSERT_BEFORE{value}"),
                ", match: {proxy: {proxyVersion: \"1.2.*\"}}",
            ),
            &["IST0155 e spec.configPatches[0].patch.operation"],
        ),
        (
            &patch("CLUSTER", "operation: REPLACE, value: {}", ""),
            &["IST0152 e spec.configPatches[0].patch.operation"],
        ),
        (
            &patch("ROUTE_CONFIGURATION", "operation: ADD, value: {}", ""),
            &["IST0153 e spec.configPatches[0].patch.operation"],
        ),
        (
            &patch("ROUTE_CONFIGURATION", "operation: REMOVE", ""),
            &["IST0154 e spec.configPatches[0].patch.operation"],
        ),
        (
            &object("EnvoyFilter", "e", "{workloadSelector: {labels: {app: wbe}}}"),
            &["IST0127 e spec.workloadSelector.labels"],
        ),
    ]);
}

#[test]
fn services_and_entries() {
    let mut updates = shop();
    updates.push(
        service("odd", "shop")
            .with(|service| {
                let port = pilotfish_model::Port {
                    name: "foo".into(),
                    protocol: pilotfish_model::Protocol::Unsupported,
                    ..service.ports[0].clone()
                };
                service.ports = [port].into();
                service.kubernetes = Some(Arc::default());
            })
            .update(),
    );
    updates.push(
        service("alias", "shop")
            .with(|service| {
                let port = pilotfish_model::Port {
                    name: "tcp".into(),
                    protocol: pilotfish_model::Protocol::Tcp,
                    ..service.ports[0].clone()
                };
                service.ports = [port].into();
                service.resolution = pilotfish_model::Resolution::Alias;
                let attributes = pilotfish_model::KubernetesAttributes {
                    external_name: Some("a.com".into()),
                    ..Default::default()
                };
                service.kubernetes = Some(Arc::new(attributes));
            })
            .update(),
    );
    assert_eq!(
        found_in(updates, "", Known::default()),
        ["IST0118 odd spec.ports[0].name"],
        "the ports of an alias mean nothing"
    );
    let entry = |more: &str| {
        object(
            "ServiceEntry",
            "se",
            &format!("{{hosts: [db.com], ports: [{{number: 5432, name: tcp, protocol: TCP}}]{more}}}"),
        )
    };
    check(&[
        (&entry(", addresses: [10.1.1.1], resolution: STATIC"), &[]),
        (&entry(", resolution: NONE"), &["IST0134 se spec.ports[0]"]),
        (
            &entry(
                ", addresses: [10.1.1.1], resolution: STATIC, location: MESH_INTERNAL, workloadSelector: {labels: {app: db}}",
            ),
            &["IST0127 se spec.workloadSelector.labels"],
        ),
        (&entry(", addresses: [10.1.1.1], exportTo: [shpo]"), &["PLF0002 se spec.exportTo[0]"]),
    ]);
}

#[test]
fn claims_of_tokens() {
    let gateway = front("front", "{istio: ingress}", 80, "a.com", "");
    let rule = virtual_service(
        "{hosts: [a.com], gateways: [front], http: [{match: [{headers: {\"@request.auth.claims.sub\": {exact: a}}}], route: [{destination: {host: cart}}]}]}",
    );
    assert_eq!(found(&(gateway.clone() + &rule)), ["IST0149 rule spec.http[0].match[0].headers"]);
    let policy = |namespace: &str| {
        line(
            SECURITY,
            "RequestAuthentication",
            namespace,
            "r",
            "{jwtRules: [{issuer: a, jwksUri: \"https://a.com/keys\"}]}",
        )
    };
    assert!(found(&(gateway.clone() + &rule + &policy("edge"))).is_empty());
    assert_eq!(found(&(gateway + &rule + &policy("bank"))).len(), 1);
}

#[test]
fn conditions_of_the_gateway_api() {
    let gateway = line(
        "gateway.networking.k8s.io/v1",
        "Gateway",
        "shop",
        "gw",
        "{gatewayClassName: istio, listeners: [{name: http, port: 80, protocol: HTTP}]}",
    );
    let route = |backend: &str| {
        object(
            "HTTPRoute",
            "route",
            &format!(
                "{{parentRefs: [{{name: gw}}], rules: [{{backendRefs: [{{name: {backend}, port: 80}}]}}]}}"
            ),
        )
    };
    assert!(found(&(gateway.clone() + &route("cart"))).is_empty());
    assert_eq!(found(&(gateway + &route("gone"))), ["IST0171 route spec.parentRefs[0]"]);
}

#[test]
fn providers_of_the_mesh() {
    let mesh = "---\n{apiVersion: mesh.istio.io/v1alpha1, kind: MeshConfig, metadata: {name: default}, extensionProviders: [{name: a, \
                envoyExtAuthzGrpc: {service: gone.shop.svc.cluster.local, port: 1}}]}\n";
    let settings = pilotfish_config::read_mesh_file(
        pilotfish_config::MeshFile::Config,
        "mesh.yaml",
        b"extensionProviders: [{name: a, envoyExtAuthzGrpc: {service: gone.shop.svc.cluster.local, port: 1}}]",
        &pilotfish_config::Limits::default(),
    );
    let mut updates = shop();
    updates.extend(settings.objects.into_iter().map(|read| Update::Object(read.object)));
    let found = found_in(updates, "", Known::default());
    assert_eq!(found, ["IST0101 default extensionProviders[0].envoyExtAuthzGrpc.service"], "{mesh}");
}

#[test]
fn a_part_of_the_configuration_is_not_blamed_for_the_rest() {
    let partly = Known { services: Completeness::Partly, secrets: Completeness::Partly };
    let route = |host: &str| {
        virtual_service(&format!("{{hosts: [a], http: [{{route: [{{destination: {{host: {host}}}}}]}}]}}"))
    };
    for (host, is_found) in
        [("gone.other.svc.cluster.local", false), ("crat", true), ("example.com", false), ("gone", true)]
    {
        assert_eq!(!found_in(shop(), &route(host), partly).is_empty(), is_found, "{host}");
    }
    assert!(found_in(Vec::new(), &route("gone"), partly).is_empty(), "without services nothing is missed");
    assert_eq!(found_in(Vec::new(), &route("gone"), Known::default()).len(), 1);
}

#[test]
fn what_is_tried_leaves_nothing() {
    let mut writer = WorldWriter::new();
    shop()
        .into_iter()
        .chain(yaml(&virtual_service("{hosts: [web], http: [{route: [{destination: {host: gone}}]}]}")))
        .for_each(|update| writer.apply(update));
    let (world, _) = writer.publish().unwrap();
    let mut analyzer = analyzer(Known::default());
    analyzer.advance(&world, &ChangeSet::default());
    let before: Vec<Finding> = analyzer.findings().cloned().collect();
    let tried = pilotfish_config::read(
        "a.yaml",
        object("VirtualService", "new", "{hosts: [web], http: [{route: [{destination: {host: crat}}]}]}")
            .as_bytes(),
        &pilotfish_config::Limits::default(),
    );
    let tried = tried.objects.into_iter().next().unwrap().object;
    let found = analyzer.findings_of(&world, tried);
    let codes: Vec<_> = found.iter().map(|finding| finding.code.id()).collect();
    assert_eq!(codes, ["IST0101", "IST0109"], "{found:?}");
    assert_eq!(analyzer.findings().cloned().collect::<Vec<_>>(), before);
    // What comes next is seen as if nothing had been tried.
    writer.apply(service("gone", "shop").update());
    let (world, changes) = writer.publish().unwrap();
    assert!(analyzer.advance(&world, &changes));
    assert_eq!(analyzer.findings().count(), 0);
}

#[test]
fn a_change_visits_what_read_it() {
    let mut writer = WorldWriter::new();
    shop().into_iter().for_each(|update| writer.apply(update));
    for n in 0..500 {
        let spec = format!("{{hosts: [web{n}], http: [{{route: [{{destination: {{host: cart}}}}]}}]}}");
        yaml(&object("VirtualService", &format!("rule-{n}"), &spec))
            .into_iter()
            .for_each(|update| writer.apply(update));
    }
    let (world, _) = writer.publish().unwrap();
    let mut analyzer = analyzer(Known::default());
    analyzer.advance(&world, &ChangeSet::default());
    let mut step = |update: Update| {
        writer.apply(update);
        let (world, changes) = writer.publish().unwrap();
        let before = analyzer.computed();
        analyzer.advance(&world, &changes);
        analyzer.computed() - before
    };
    let shard = ShardKey::new(crate::testing::KUBERNETES, "Kubernetes");
    let update = Update::Endpoints(
        service("cart", "shop").key(),
        shard,
        [Arc::new(endpoint("10.0.0.7", 80, "http"))].into(),
    );
    assert_eq!(step(update), 0, "nobody asks for the endpoints of this service");
    let rule = yaml(&object(
        "VirtualService",
        "rule-7",
        "{hosts: [web7], http: [{route: [{destination: {host: gone}}]}]}",
    ));
    let computed = step(rule.into_iter().next().unwrap());
    assert!(computed < 20, "{computed}");
}

/// A change of a small mesh.
fn change() -> impl Strategy<Value = Vec<Update>> {
    let services = (0..4_u32, any::<bool>()).prop_map(|(n, there)| {
        let service = service(&format!("s{n}"), "shop");
        vec![if there { service.update() } else { Update::Services(service.key(), [].into()) }]
    });
    let endpoints = (0..4_u32, 0..3_u32).prop_map(|(n, version)| {
        let mut one = endpoint("10.0.0.1", 80, "http");
        Arc::make_mut(&mut one.attributes).labels =
            crate::testing::labels(&[("version", &format!("v{version}"))]);
        let shard = ShardKey::new(crate::testing::KUBERNETES, "Kubernetes");
        vec![Update::Endpoints(service(&format!("s{n}"), "shop").key(), shard, [Arc::new(one)].into())]
    });
    let pods = (0..3_u32, 0..3_u32).prop_map(|(n, app)| {
        vec![Update::Workload(Arc::new(pod(
            &format!("p{n}"),
            "shop",
            &format!("10.0.0.{n}"),
            &[("app", &format!("a{app}"))],
        )))]
    });
    let rules = (0..3_u32, 0..5_u32, 0..4_u32, 0..3_u32).prop_map(|(name, host, to, subset)| {
        let spec = format!("{{hosts: [s{host}], gateways: [mesh, g{subset}], http: [{{route: [{{destination: {{host: s{to}, subset: v{subset}}}}}]}}]}}");
        yaml(&object("VirtualService", &format!("rule-{name}"), &spec))
    });
    let subsets = (0..2_u32, 0..4_u32, 0..3_u32).prop_map(|(name, host, version)| {
        let spec = format!("{{host: s{host}, subsets: [{{name: v1, labels: {{version: v{version}}}}}]}}");
        yaml(&object("DestinationRule", &format!("dr-{name}"), &spec))
    });
    let gateways = (0..3_u32, 0..3_u32, 0..3_u32).prop_map(|(name, app, host)| {
        yaml(&front(&format!("g{name}"), &format!("{{app: a{app}}}"), 80, &format!("s{host}"), ""))
    });
    let policies = (0..2_u32, 0..4_u32).prop_map(|(name, app)| {
        let selector = format!("{{selector: {{matchLabels: {{app: a{app}}}}}}}");
        let sidecar =
            format!("{{workloadSelector: {{labels: {{app: a{app}}}}}, egress: [{{hosts: [\"*/*\"]}}]}}");
        let both = object("AuthorizationPolicy", &format!("p{name}"), &selector)
            + &object("Sidecar", &format!("s{name}"), &sidecar);
        yaml(&both)
    });
    let gone = (
        prop_oneof![
            Just(Kind::VirtualService),
            Just(Kind::DestinationRule),
            Just(Kind::Gateway),
            Just(Kind::Sidecar)
        ],
        0..3_u32,
    )
        .prop_map(|(kind, n)| {
            let prefix = match kind {
                Kind::VirtualService => "rule-",
                Kind::DestinationRule => "dr-",
                Kind::Gateway => "g",
                _ => "s",
            };
            vec![Update::RemoveObject(ObjectKey::new(kind, "shop", format!("{prefix}{n}")))]
        });
    prop_oneof![services, endpoints, pods, rules, subsets, gateways, policies, gone]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn following_changes_finds_what_looking_at_everything_finds(history in proptest::collection::vec(change(), 1..30)) {
        let mut writer = WorldWriter::new();
        let mut follower = analyzer(Known::default());
        let mut seen = Vec::new();
        for updates in history {
            updates.into_iter().for_each(|update| writer.apply(update));
            let Some((world, changes)) = writer.publish() else { continue };
            let differs = follower.advance(&world, &changes);
            let mut anew = analyzer(Known::default());
            anew.advance(&world, &ChangeSet::default());
            let followed: Vec<Finding> = follower.findings().cloned().collect();
            prop_assert_eq!(&followed, &anew.findings().cloned().collect::<Vec<_>>());
            prop_assert!(differs || followed == seen, "a difference is told");
            seen = followed;
        }
    }
}

#[test]
fn capital_letters_of_hosts_are_compared_with_those_of_the_gateway() {
    let gateway = |host: &str| {
        let spec = format!(
            "{{selector: {{istio: ingress}}, servers: [{{port: {{number: 80, name: http, protocol: HTTP}}, hosts: [\"{host}\"]}}]}}"
        );
        object("Gateway", "wild", &spec)
    };
    let rule = virtual_service(
        "{hosts: [Upper.Example.NET], gateways: [wild], http: [{route: [{destination: {host: cart}}]}]}",
    );
    let of = |host: &str| messages(&[gateway(host), rule.clone()].concat()).join("\n");
    let differs = of("*.example.net");
    assert!(differs.contains("capital letters of both are compared"), "{differs}");
    assert!(!of("*.example.org").contains("capital letters"));
    assert!(!of("*.Example.NET").contains("serves no host"));
}
