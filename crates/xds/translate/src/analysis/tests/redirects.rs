//! Redirects that lead back to themselves.

use super::{found, line, messages, object, virtual_service};

const LOOP: &str = "PLF0006 rule spec.http[0].redirect";

/// Gateway `front` with plain HTTP on port 80 and TLS on port 443.
fn front() -> String {
    object(
        "Gateway",
        "front",
        "{selector: {istio: ingress}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [\"*\"]}, {port: {number: 443, name: https, protocol: HTTPS}, hosts: [\"*\"], tls: {mode: SIMPLE, credentialName: cert}}]}",
    )
}

fn loops(text: &str) -> Vec<String> {
    found(text).into_iter().filter(|finding| finding.starts_with("PLF0006")).collect()
}

#[test]
fn redirects_of_sidecars() {
    let to = "route: [{destination: {host: cart}}]";
    for (routes, looping) in [
        ("{redirect: {uri: /a}}", true),
        ("{match: [{uri: {prefix: /a}}], redirect: {uri: /a}}", true),
        ("{match: [{uri: {prefix: /a}}], redirect: {uri: /b}}", false),
        ("{match: [{uri: {exact: /a}}], redirect: {uri: /a, authority: cart}}", true),
        ("{redirect: {authority: cart.shop.svc.cluster.local, port: 80}}", true),
        ("{redirect: {authority: pay.bank.svc.cluster.local}}", false),
        ("{redirect: {scheme: http, derivePort: FROM_REQUEST_PORT}}", true),
        ("{redirect: {derivePort: FROM_PROTOCOL_DEFAULT}}", true),
        ("{redirect: {scheme: https}}", false),
        ("{redirect: {port: 81}}", false),
        ("{match: [{uri: {prefix: /a}}], redirect: {prefixRewrite: /a/b}}", true),
        ("{match: [{sourceLabels: {a: b}}], redirect: {uri: /a}}", true),
        ("{match: [{headers: {x-forwarded-proto: {exact: http}}}], redirect: {port: 80}}", false),
    ] {
        let wanted: &[&str] = if looping { &[LOOP] } else { &[] };
        let text = virtual_service(&format!("{{hosts: [cart], http: [{routes}]}}"));
        assert_eq!(loops(&text), wanted, "{routes}");
    }
    let text = virtual_service(&format!(
        "{{hosts: [cart], http: [{{match: [{{uri: {{exact: /a}}}}], {to}}}, {{redirect: {{uri: /a}}}}]}}"
    ));
    assert!(loops(&text).is_empty(), "an earlier route takes the path");
}

#[test]
fn redirects_at_gateways() {
    let rule = |http: &str| {
        front() + &virtual_service(&format!("{{hosts: [a.com, b.com], gateways: [front], http: [{http}]}}"))
    };
    for (http, looping) in [
        ("{redirect: {scheme: https}}", true),
        ("{match: [{port: 80}], redirect: {scheme: https}}", false),
        ("{match: [{port: 443}], redirect: {scheme: https}}", true),
        ("{match: [{scheme: {exact: http}}], redirect: {scheme: https}}", false),
        ("{match: [{port: 80}], redirect: {authority: a.com}}", true),
        ("{match: [{port: 80}], redirect: {authority: c.com}}", false),
        ("{match: [{port: 80}], redirect: {scheme: https, port: 443}}", false),
        ("{match: [{port: 443}], redirect: {scheme: https, port: 443}}", true),
        ("{match: [{authority: {exact: b.com}, port: 80}], redirect: {authority: a.com}}", false),
    ] {
        let wanted: &[&str] = if looping { &[LOOP] } else { &[] };
        assert_eq!(loops(&rule(http)), wanted, "{http}");
    }
    let told = messages(&rule("{redirect: {scheme: https}}"));
    let wanted = "the redirect leads back to itself for requests on port 443 (https), so clients give up";
    assert!(told.iter().any(|message| message.starts_with(wanted)), "{told:?}");
}

#[test]
fn redirects_of_delegates() {
    let root =
        virtual_service("{hosts: [cart], http: [{match: [{uri: {prefix: /a}}], delegate: {name: leaf}}]}");
    let leaf =
        |uri: &str| object("VirtualService", "leaf", &format!("{{http: [{{redirect: {{uri: {uri}}}}}]}}"));
    assert_eq!(loops(&(root.clone() + &leaf("/a/b"))), ["PLF0006 leaf spec.http[0].redirect"]);
    assert!(loops(&(root + &leaf("/b"))).is_empty());
}

#[test]
fn redirects_of_http_routes_at_some_listeners() {
    let gateway = line(
        "gateway.networking.k8s.io/v1",
        "Gateway",
        "shop",
        "gw",
        "{gatewayClassName: istio, listeners: [{name: a, port: 80, protocol: HTTP}, {name: b, port: 8080, protocol: HTTP}]}",
    );
    let route = |hosts: &str, parent: &str, to: &str| {
        gateway.clone()
            + &object(
                "HTTPRoute",
                "route",
                &format!(
                    "{{parentRefs: [{{name: gw{parent}}}], hostnames: [{hosts}], rules: [{{filters: [{{type: RequestRedirect, requestRedirect: {{{to}}}}}]}}]}}"
                ),
            )
    };
    let partly = ["PLF0006 route spec.rules[0].filters"];
    assert_eq!(found(&route("a.com", "", "port: 8080")), partly);
    assert!(found(&route("a.com", ", sectionName: a", "port: 8080")).is_empty());
    assert_eq!(
        found(&route("a.com", ", sectionName: b", "port: 8080")),
        ["IST0171 route spec.parentRefs[0]"]
    );
    assert_eq!(found(&route("a.com, www.a.com", "", "hostname: a.com")), partly);
    assert!(found(&route("www.a.com", "", "hostname: a.com")).is_empty());
}
