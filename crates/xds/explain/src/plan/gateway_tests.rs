//! Plans for workloads that a gateway selects, and for workloads whose selection changes.

use super::*;
use crate::subject::subjects_of_change;
use pilotfish_registry::testing::{SHOP, Scene as Registries};

/// Subjects of a change from some objects to others, and its plan.
fn of(before: &[&str], after: &[&str]) -> (Vec<String>, Plan) {
    let mut scene = Registries::new();
    before.iter().for_each(|text| scene.apply(text).unwrap());
    let before = scene.world();
    after.iter().for_each(|text| scene.apply(text).unwrap());
    let changes = scene.settle();
    let after = scene.world();
    let empty = Translator::new();
    let subjects = subjects_of_change(&empty, &before, &after);
    let names = subjects.iter().map(|subject| subject.name.clone()).collect();
    (names, plan(&empty, &Planned { before, after, changes, objects: 1 }, &subjects))
}

fn pod(labels: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: front, namespace: edge, labels: {{{labels}}}}}\n\
         spec: {{serviceAccountName: front, containers: [{{name: proxy, image: x}}]}}\n\
         status: {{phase: Running, podIP: 10.0.0.20, podIPs: [{{ip: 10.0.0.20}}], \
         conditions: [{{type: Ready, status: \"True\"}}]}}\n"
    )
}

const GATEWAY: &str = "apiVersion: networking.istio.io/v1\nkind: Gateway\n\
    metadata: {name: front, namespace: shop}\nspec:\n  selector: {istio: front}\n  \
    servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [a.example.com]}]\n";

fn route(timeout: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\n\
         metadata: {{name: front, namespace: shop}}\nspec:\n  hosts: [a.example.com]\n  gateways: [front]\n  \
         http: [{{timeout: {timeout}, route: [{{destination: {{host: web}}}}]}}]\n"
    )
}

/// Changed resources of each group of proxies.
fn changes(plan: &Plan) -> Vec<(String, Vec<String>)> {
    let change = |at: &usize| {
        let change = &plan.changes[*at];
        format!("{} {} {}", change.what, change.section, change.name)
    };
    plan.impact
        .iter()
        .map(|impact| (impact.names.join(" "), impact.changes.iter().map(change).collect()))
        .collect()
}

fn only(name: &str, resource: &str) -> Vec<(String, Vec<String>)> {
    vec![(name.to_owned(), vec![resource.to_owned()])]
}

#[test]
fn a_route_of_a_gateway_is_planned_for_the_pod_that_the_gateway_selects() {
    let (names, plan) = of(&[SHOP, &pod("istio: front"), GATEWAY, &route("1s")], &[&route("2s")]);
    assert_eq!(names, ["front.edge", "web-0.shop"]);
    assert_eq!(changes(&plan), only("front.edge", "changed routes http.80"), "{plan:#?}");
}

#[test]
fn a_gateway_that_begins_to_select_a_pod_is_planned_with_its_listener() {
    let typo = GATEWAY.replace("istio: front", "istio: fornt");
    let (names, plan) = of(&[SHOP, &pod("istio: front"), &typo, &route("1s")], &[GATEWAY]);
    assert_eq!(names, ["front.edge", "web-0.shop"]);
    let (who, what) = &changes(&plan)[0];
    assert_eq!(who, "front.edge", "{plan:#?}");
    assert!(what.contains(&"added listeners 0.0.0.0_80".to_owned()), "{what:?}");
}

#[test]
fn a_pod_whose_labels_change_is_planned_with_both() {
    // The gateway loses the Pod.
    let (names, plan) = of(&[SHOP, &pod("istio: front"), GATEWAY, &route("1s")], &[&pod("istio: other")]);
    assert_eq!(names, ["front.edge", "web-0.shop"]);
    let dangers: Vec<&str> = plan.dangers.iter().map(|danger| danger.what.as_str()).collect();
    assert!(dangers.contains(&"listener 0.0.0.0_80 goes"), "{plan:#?}");
    // A policy selects a sidecar by a label that its Pod gets.
    let strict = "apiVersion: security.istio.io/v1\nkind: PeerAuthentication\n\
        metadata: {name: strict, namespace: shop}\nspec:\n  selector: {matchLabels: {tier: secret}}\n  \
        mtls: {mode: STRICT}\n";
    let (_, plan) = of(
        &[SHOP, strict],
        &[&SHOP.replace(
            "labels: {app: web}}\nspec: {serviceAccountName",
            "labels: {app: web, tier: secret}}\nspec: {serviceAccountName",
        )],
    );
    let listener = plan.changes.iter().find(|change| change.name == "virtualInbound");
    assert!(
        listener.is_some_and(|change| change.made_by.iter().any(|by| by == "PeerAuthentication shop/strict")),
        "{plan:#?}"
    );
}

#[test]
fn without_a_pod_a_router_with_the_labels_of_the_selector_stands_in() {
    let (names, plan) = of(&[SHOP, GATEWAY, &route("1s")], &[&route("2s")]);
    assert_eq!(names, ["gateway istio=front.shop", "web-0.shop"]);
    assert_eq!(changes(&plan), only("gateway istio=front.shop", "changed routes http.80"), "{plan:#?}");
}

#[test]
fn a_gateway_without_selector_makes_no_gateway_of_each_pod() {
    let any = GATEWAY.replace("selector: {istio: front}", "selector: {}");
    let (names, plan) = of(&[SHOP, &any, &route("1s")], &[&route("2s")]);
    assert_eq!(names, ["gateway any.shop", "web-0.shop"]);
    assert_eq!(changes(&plan), only("gateway any.shop", "changed routes http.80"), "{plan:#?}");
}

#[test]
fn a_selected_pod_that_is_labelled_for_a_sidecar_is_planned_as_both() {
    let both = pod("istio: front, security.istio.io/tlsMode: istio");
    let (names, plan) = of(&[SHOP, &both, GATEWAY, &route("1s")], &[&route("2s")]);
    assert_eq!(names, ["front.edge", "front.edge (gateway)", "web-0.shop"]);
    assert_eq!(changes(&plan), only("front.edge (gateway)", "changed routes http.80"), "{plan:#?}");
}

#[test]
fn a_route_of_the_gateway_api_is_planned_for_the_pod_behind_its_service() {
    let gateway = "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\n\
        metadata: {name: front, namespace: edge}\nspec:\n  gatewayClassName: istio\n  \
        listeners: [{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}]\n---\n\
        apiVersion: v1\nkind: Service\nmetadata: {name: front-istio, namespace: edge}\n\
        spec: {clusterIP: 10.1.0.9, selector: {app: front}, ports: [{name: http, port: 80}]}\n";
    let route = |prefix: &str| {
        format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\n\
             metadata: {{name: front, namespace: shop}}\nspec:\n  \
             parentRefs: [{{name: front, namespace: edge}}]\n  hostnames: [a.example.com]\n  \
             rules: [{{matches: [{{path: {{type: PathPrefix, value: {prefix}}}}}], \
             backendRefs: [{{name: web, port: 80}}]}}]\n"
        )
    };
    let (names, plan) = of(&[SHOP, &pod("app: front"), gateway, &route("/a")], &[&route("/b")]);
    assert_eq!(names, ["front.edge", "web-0.shop"]);
    assert_eq!(changes(&plan), only("front.edge", "changed routes http.80"), "{plan:#?}");
}
