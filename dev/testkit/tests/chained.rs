//! Two Pilotfishes one after the other, the second of which has everything over MCP from the first: proxies
//! get from it what they get from the first.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pilotfish_mcp::McpKind;
use pilotfish_mcp::testing::relayed;
use pilotfish_model::Object;
use pilotfish_registry::testing::world_from_objects;
use pilotfish_testkit::cases::{Case, translator};
use pilotfish_testkit::oracle::{cases_folder, dumps};
use serde_json::Value;
use std::collections::BTreeMap;

type Dumps = BTreeMap<String, Value>;

/// What the proxies of a case get from the first, and from the second.
fn both(case: &Case, objects: Vec<Object>) -> (Dumps, Dumps) {
    let over_mcp = relayed(&world_from_objects(objects.iter().cloned()));
    let first = dumps(case, &translator(objects), false).unwrap();
    (first, dumps(case, &translator(over_mcp), false).unwrap())
}

/// Where two dumps differ first.
fn difference(first: &Value, second: &Value, at: &str) -> Option<String> {
    match (first, second) {
        (Value::Object(a), Value::Object(b)) => a.keys().chain(b.keys()).find_map(|key| {
            difference(
                a.get(key).unwrap_or(&Value::Null),
                b.get(key).unwrap_or(&Value::Null),
                &format!("{at}.{key}"),
            )
        }),
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let mut items = a.iter().zip(b).enumerate();
            items.find_map(|(index, (a, b))| difference(a, b, &format!("{at}[{index}]")))
        }
        (a, b) if a == b => None,
        (a, b) => Some(format!("{at}: {:.200} / {:.200}", a.to_string(), b.to_string())),
    }
}

/// Where the second one's proxies get something else.
fn differences((first, second): (&Dumps, &Dumps)) -> Vec<String> {
    let of_proxy =
        |(proxy, a): (&String, &Value)| difference(a, second.get(proxy).unwrap_or(&Value::Null), proxy);
    first.iter().filter_map(of_proxy).collect()
}

#[test]
fn what_goes_over_mcp_as_it_is_comes_out_the_same() {
    let mut cases = 0;
    for case in Case::all(&cases_folder()).unwrap() {
        let objects = case.objects().unwrap().objects;
        if objects.iter().any(|object| McpKind::of(object.key().kind).is_none()) {
            continue;
        }
        let (first, second) = both(&case, objects);
        assert_eq!(differences((&first, &second)), Vec::<String>::new(), "{}", case.name);
        cases += 1;
    }
    assert!(cases >= 25, "only {cases} cases have nothing but such objects");
}

/// What a ServiceEntry cannot say of a Service of Kubernetes: its short name in telemetry, that an endpoint
/// was found to be healthy, and endpoints that are not.
fn without_names_and_health(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if fields.get("health_status").is_some_and(|status| status == "HEALTHY") {
                fields.remove("health_status");
            }
            if let Some(Value::Array(endpoints)) = fields.get_mut("lb_endpoints") {
                let health = |endpoint: &Value| endpoint.get("health_status").cloned();
                endpoints.retain(|endpoint| health(endpoint).is_none_or(|status| status != "UNHEALTHY"));
                // It counts them.
                fields.remove("load_balancing_weight");
            }
            if let Some(Value::String(workload)) = fields.get_mut("workload") {
                // NAME;NAMESPACE;CANONICAL-NAME;REVISION;CLUSTER
                let mut parts: Vec<&str> = workload.split(';').collect();
                parts.iter_mut().take(2).for_each(|part| *part = "");
                *workload = if parts.iter().take(4).all(|part| part.is_empty()) {
                    String::new()
                } else {
                    parts.join(";")
                };
            }
            if fields.contains_key("host") && fields.contains_key("namespace") {
                fields.remove("name");
            }
            fields.values_mut().for_each(without_names_and_health);
        }
        Value::Array(items) => items.iter_mut().for_each(without_names_and_health),
        _ => {}
    }
}

/// Cases with Services of Kubernetes: readiness, visibility, identities, subsets, gateways, gRPC.
const WITH_SERVICES: &[&str] = &[
    "dr-connection-pool",
    "dr-outlier-detection",
    "dr-subsets-own-policies",
    "grpc-client-subsets",
    "gw-http-virtual-services",
    "gw-tls-passthrough-sni-routes",
    "k8s-endpoint-readiness",
    "k8s-export-to",
    "k8s-same-name-two-namespaces",
    "k8s-tls-mode-label",
    "mesh-h2-upgrade",
];

#[test]
fn services_of_kubernetes_come_out_the_same_but_for_what_entries_cannot_say() {
    let mut other = Vec::new();
    for name in WITH_SERVICES {
        let case = Case::read(&cases_folder().join(name)).unwrap();
        let (mut first, mut second) = both(&case, case.objects().unwrap().objects);
        first.values_mut().chain(second.values_mut()).for_each(without_names_and_health);
        other.extend(
            differences((&first, &second)).into_iter().map(|difference| format!("{name}: {difference}")),
        );
    }
    assert!(other.is_empty(), "{}", other.join("\n"));
}
