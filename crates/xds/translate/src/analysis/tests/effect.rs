//! Rules and parts of rules without effect, and mutual TLS about which two sides disagree.

use super::{NETWORKING, found_in, messages_in, object, shop, virtual_service, with_streams};
use crate::analysis::Known;
use crate::testing::{KUBERNETES, endpoint, labels, line, pod, service};
use pilotfish_model::{KubernetesAttributes, Resolution, ShardKey, TlsMode, Update};
use std::sync::Arc;

const SECURITY: &str = "security.istio.io/v1";

fn check(cases: &[(String, &[&str])]) {
    for (text, wanted) in cases {
        assert_eq!(found_in(with_streams(), text, Known::default()), *wanted, "{text}");
    }
}

#[test]
fn routes_for_traffic_that_no_host_has() {
    let http = "http: [{route: [{destination: {host: cart, port: {number: 80}}}]}]";
    let tcp = "tcp: [{route: [{destination: {host: cart}}]}]";
    let tls = "tls: [{match: [{sniHosts: [lock]}], route: [{destination: {host: lock}}]}]";
    let rule =
        |hosts: &str, lists: &[&str]| virtual_service(&format!("{{hosts: [{hosts}], {}}}", lists.join(", ")));
    check(&[
        (rule("cart", &[http]), &[]),
        (rule("db", &[http]), &["PLF0003 rule spec.hosts[0]"]),
        (rule("lock", &[http]), &["PLF0003 rule spec.hosts[0]"]),
        (rule("cart, db", &[http]), &["PLF0003 rule spec.hosts[1]"]),
        (rule("cart, db", &[http, tcp]), &[]),
        (rule("cart", &[tcp]), &["PLF0003 rule spec.hosts[0]"]),
        (rule("cart", &[http, tcp]), &["PLF0003 rule spec.tcp"]),
        (rule("db", &[tcp]), &[]),
        (rule("db", &[tls]), &["PLF0003 rule spec.hosts[0]"]),
        (rule("lock", &[tls]), &[]),
        (rule("\"*.shop.svc.cluster.local\"", &[http, tcp, tls]), &[]),
        (rule("a.com", &[http]), &[]),
        (rule("a.com", &[tcp]), &["PLF0003 rule spec.hosts[0]"]),
    ]);
}

#[test]
fn conditions_on_ports_that_no_host_has() {
    let rule = |port: u32| {
        virtual_service(&format!(
            "{{hosts: [cart], http: [{{match: [{{port: {port}}}], route: [{{destination: {{host: cart}}}}]}}]}}"
        ))
    };
    check(&[(rule(80), &[]), (rule(81), &["IST0131 rule spec.http[0].match[0].port"])]);
}

#[test]
fn rules_that_nobody_gets() {
    let gateway = object(
        "Gateway",
        "front",
        "{selector: {istio: ingress}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [\"*\"]}]}",
    );
    let rule = |exported: &str| {
        gateway.clone()
            + &virtual_service(&format!(
                "{{hosts: [a.com], gateways: [front], exportTo: [{exported}], http: [{{route: [{{destination: {{host: cart}}}}]}}]}}"
            ))
    };
    let leaf = object("VirtualService", "leaf", "{http: [{route: [{destination: {host: cart}}]}]}");
    let root = virtual_service("{hosts: [cart], http: [{delegate: {name: leaf}}]}");
    check(&[
        (rule("\"*\""), &[]),
        (rule("edge"), &[]),
        (rule("\".\""), &["PLF0003 rule spec.exportTo"]),
        (leaf.clone(), &["PLF0003 leaf spec.hosts"]),
        (leaf + &root, &[]),
    ]);
}

#[test]
fn destination_rules_where_nobody_looks() {
    let rule = |namespace: &str, host: &str| {
        line("networking.istio.io/v1", "DestinationRule", namespace, "dr", &format!("{{host: {host}}}"))
    };
    let host = "cart.shop.svc.cluster.local";
    check(&[
        (rule("shop", host), &[]),
        (rule("istio-system", host), &[]),
        // It has a workload, which is a client that follows it.
        (rule("edge", host), &[]),
        // It has a service, so that it may have clients that no registry knows.
        (rule("bank", host), &[]),
        (rule("third", host), &["PLF0003 dr spec.host"]),
    ]);
    let alias = service("nick", "shop").with(|service| {
        service.resolution = Resolution::Alias;
        service.ports = [].into();
        let to = Some(host.into());
        service.kubernetes =
            Some(Arc::new(KubernetesAttributes { external_name: to, ..KubernetesAttributes::default() }));
    });
    let updates = || shop().into_iter().chain([alias.update()]).collect();
    let found = found_in(updates(), &rule("shop", "nick.shop.svc.cluster.local"), Known::default());
    assert_eq!(found, ["PLF0003 dr spec.host"]);
    let http = "http: [{route: [{destination: {host: cart, port: {number: 80}}}]}]";
    assert_eq!(
        messages_in(updates(), &virtual_service(&format!("{{hosts: [nick], {http}}}"))),
        ["nick.shop.svc.cluster.local is an alias: routes are used for its full name on port 80 alone \
              (write the rule for cart.shop.svc.cluster.local)"]
    );
    let subset = object("DestinationRule", "dr", "{host: cart, subsets: [{name: v1, labels: {a: b}}]}");
    let route =
        |to: &str| virtual_service(&format!("{{hosts: [web], http: [{{route: [{{destination: {to}}}]}}]}}"));
    for (to, wanted) in [
        ("{host: nick}", vec![]),
        ("{host: nick, subset: v1}", vec![]),
        ("{host: nick, port: {number: 80}}", vec![]),
        (
            "{host: nick, port: {number: 81}}",
            vec!["IST0101 rule spec.http[0].route[0].destination.port.number"],
        ),
        ("{host: nick, subset: v2}", vec!["IST0101 rule spec.http[0].route[0].destination.subset"]),
    ] {
        assert_eq!(found_in(updates(), &(subset.clone() + &route(to)), Known::default()), wanted, "{to}");
    }
}

#[test]
fn weights_that_look_like_percentages() {
    let rule = |a: u32, b: u32| {
        virtual_service(&format!(
            "{{hosts: [cart], http: [{{route: [{{destination: {{host: cart}}, weight: {a}}}, {{destination: {{host: pay.bank.svc.cluster.local}}, weight: {b}}}]}}]}}"
        ))
    };
    let wrong: &[&str] = &["PLF0004 rule spec.http[0].route"];
    check(&[
        (rule(80, 20), &[]),
        (rule(1, 1), &[]),
        (rule(900, 100), &[]),
        (rule(80, 40), wrong),
        (rule(50, 25), wrong),
    ]);
}

/// The shop with a proxy in front of `cart`.
fn with_proxy() -> Vec<Update> {
    let mut backend = endpoint("10.0.0.2", 8080, "http");
    let attributes = Arc::make_mut(&mut backend.attributes);
    attributes.labels = labels(&[("app", "cart")]);
    attributes.tls_mode = TlsMode::Istio;
    attributes.namespace = "shop".into();
    let shard = ShardKey::new(KUBERNETES, "Kubernetes");
    let more = [
        Update::Endpoints(service("cart", "shop").key(), shard, [Arc::new(backend)].into()),
        Update::Workload(Arc::new(pod("cart-1", "shop", "10.0.0.2", &[("app", "cart")]))),
    ];
    shop().into_iter().chain(more).collect()
}

#[test]
fn clients_and_workloads_that_disagree_about_mutual_tls() {
    let policy =
        |namespace: &str, name: &str, spec: &str| line(SECURITY, "PeerAuthentication", namespace, name, spec);
    let mesh = |mode: &str| policy("istio-system", "mesh", &format!("{{mtls: {{mode: {mode}}}}}"));
    let cart =
        |more: &str| policy("shop", "cart", &format!("{{selector: {{matchLabels: {{app: cart}}}}, {more}}}"));
    let rule = |mode: &str| {
        object("DestinationRule", "dr", &format!("{{host: cart, trafficPolicy: {{tls: {{mode: {mode}}}}}}}"))
    };
    let for_all = |namespace: &str, mode: &str| {
        let spec =
            format!("{{host: \"*.shop.svc.cluster.local\", trafficPolicy: {{tls: {{mode: {mode}}}}}}}");
        line(NETWORKING, "DestinationRule", namespace, "dr", &spec)
    };
    let plain: &[&str] = &["PLF0005 cart spec"];
    let by_rule: &[&str] = &["PLF0005 dr spec.trafficPolicy.tls.mode"];
    for (text, wanted) in [
        (mesh("DISABLE") + &cart("mtls: {mode: STRICT}"), plain),
        (mesh("DISABLE") + &cart("portLevelMtls: {8080: {mode: STRICT}}"), plain),
        (mesh("DISABLE") + &cart("portLevelMtls: {9090: {mode: STRICT}}"), &[]),
        (mesh("DISABLE") + &cart("mtls: {mode: PERMISSIVE}"), &[]),
        (mesh("DISABLE") + &cart("mtls: {mode: STRICT}") + &rule("ISTIO_MUTUAL"), &[]),
        (mesh("PERMISSIVE") + &cart("mtls: {mode: STRICT}"), &[]),
        (cart("mtls: {mode: STRICT}") + &rule("DISABLE"), by_rule),
        (mesh("STRICT") + &rule("DISABLE"), by_rule),
        (mesh("STRICT") + &rule("ISTIO_MUTUAL"), &[]),
        (cart("mtls: {mode: DISABLE}") + &rule("ISTIO_MUTUAL"), by_rule),
        (mesh("PERMISSIVE") + &rule("DISABLE"), &[]),
        (mesh("STRICT") + &for_all("shop", "DISABLE"), by_rule),
        (mesh("STRICT") + &for_all("istio-system", "SIMPLE"), by_rule),
        (mesh("STRICT") + &for_all("shop", "ISTIO_MUTUAL"), &[]),
        // Another rule decides.
        (
            mesh("STRICT") + &for_all("istio-system", "DISABLE") + &rule("ISTIO_MUTUAL").replace("dr", "own"),
            &[],
        ),
    ] {
        assert_eq!(found_in(with_proxy(), &text, Known::default()), wanted, "{text}");
    }
}

#[test]
fn sidecars_narrow_what_rules_reach() {
    let pay = "pay.bank.svc.cluster.local";
    let sidecar = |more: &str, hosts: &str| {
        object("Sidecar", "s", &format!("{{{more}egress: [{{hosts: [{hosts}]}}]}}"))
    };
    let route = |to: &str| format!("http: [{{route: [{{destination: {{{to}}}}}]}}]");
    let rule = |host: &str, more: &str, to: &str| {
        virtual_service(&format!("{{hosts: [{host}], {more}{}}}", route(to)))
    };
    let (own, some) = ("exportTo: [\".\"], ", "workloadSelector: {labels: {app: web}}, ");
    let cart = "\"./cart.shop.svc.cluster.local\"";
    let local = object("DestinationRule", "dr", &format!("{{host: {pay}}}"));
    let private = object("DestinationRule", "dr", "{host: web, exportTo: [\".\"]}");
    let hidden: &[&str] = &["PLF0003 rule spec.hosts"];
    let unused: &[&str] = &["PLF0003 dr spec.host"];
    check(&[
        (sidecar("", cart) + &rule("cart", own, "host: cart"), &[]),
        (sidecar("", "\"./*\"") + &rule("cart", own, "host: cart"), &[]),
        // A destination of an imported rule is imported, too.
        (sidecar("", "\"./*\"") + &rule("cart", own, &format!("host: {pay}")), &[]),
        (sidecar("", cart) + &rule("db", own, "host: cart"), hidden),
        (sidecar("", cart) + &rule("web", "", "host: cart"), &[]),
        (sidecar(some, cart) + &rule("web", own, "host: cart"), hidden),
        (
            sidecar("workloadSelector: {labels: {app: other}}, ", cart) + &rule("web", own, "host: cart"),
            &["IST0101 s spec.workloadSelector.labels"],
        ),
        (sidecar("", "\"*/*\"") + &local, &[]),
        (sidecar("", "\"./*\"") + &local, unused),
        (sidecar("", "\"./*\", \"bank/*\"") + &local, &[]),
        (sidecar("", "\"./*\"") + &local + &rule("cart", "", &format!("host: {pay}")), &[]),
        (sidecar("", cart) + &private, unused),
        (sidecar("", cart) + &private.replace(", exportTo: [\".\"]", ""), &[]),
    ]);
    let narrow = object(
        "Sidecar",
        "s",
        "{egress: [{port: {number: 80, protocol: HTTP, name: http}, hosts: [\"./*\"]}]}",
    );
    let to_web = rule("cart", own, "host: web, port: {number: 443}");
    let found = found_in(with_streams(), &(narrow + &to_web), Known::default());
    assert_eq!(found, ["IST0101 rule spec.http[0].route[0].destination.port.number"]);
}

#[test]
fn clients_of_public_rules_may_be_elsewhere() {
    let for_edge = service("vault", "bank").with(|service| {
        service.export_to = pilotfish_model::ExportTo::namespaces(["edge"]);
    });
    let updates = || with_streams().into_iter().chain([for_edge.update()]).collect::<Vec<_>>();
    let rule = |namespace: &str, more: &str, to: &str| {
        let spec = format!(
            "{{hosts: [vault.bank.svc.cluster.local], {more}http: [{{route: [{{destination: {{host: {to}}}}}]}}]}}"
        );
        line(NETWORKING, "VirtualService", namespace, "rule", &spec)
    };
    let vault = "vault.bank.svc.cluster.local";
    let wrong: &[&str] = &["IST0101 rule spec.http[0].route[0].destination.host"];
    for (text, wanted) in [
        // Nobody runs in the namespaces `rules` and `bank`: clients in `edge` see the host.
        (rule("rules", "", vault), &[][..]),
        (rule("bank", "", vault), &[]),
        (rule("rules", "", "gone.bank.svc.cluster.local"), wrong),
        (rule("rules", "exportTo: [shop], ", vault), wrong),
        (rule("shop", "", vault), wrong),
    ] {
        assert_eq!(found_in(updates(), &text, Known::default()), wanted, "{text}");
    }
}
