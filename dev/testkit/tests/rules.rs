//! Rules by which istiod 1.31 differs from 1.29, by their numbers in its specification: for each a value that
//! shows it in a recorded case. Rules that no recording shows, and edges of the others, have tests beside the
//! code, which name the number, too.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pilotfish_testkit::cases::Case;
use pilotfish_testkit::oracle::{cases_folder, dumps_of_files};
use serde_json::Value;
use std::collections::BTreeMap;

/// Number of the rule, proxy of a case, place of a value (`/` in names is `~1`), and the value; `null` for
/// none.
const RULES: &[(&str, &str, &str, &str)] = &[
    // Unhealthy endpoints are sent, and clusters do not panic.
    (
        "1",
        UNHEALTHY,
        "/clusters/outbound|80||plain.shop.svc.cluster.local/common_lb_config/healthy_panic_threshold",
        "{}",
    ),
    (
        "1",
        UNHEALTHY,
        "/endpoints/outbound|80||guarded.shop.svc.cluster.local/endpoints/0/lb_endpoints/1/health_status",
        "\"UNHEALTHY\"",
    ),
    // Retry budgets: defaults, inheritance by subsets, replacement as a whole.
    (
        "2",
        BUDGET,
        "/clusters/outbound|80||bank.shop.svc.cluster.local/circuit_breakers/thresholds/0/retry_budget/budget_percent/value",
        "20.0",
    ),
    (
        "2",
        BUDGET,
        "/clusters/outbound|80|other-fields|till.shop.svc.cluster.local/circuit_breakers/thresholds/0/retry_budget/min_retry_concurrency",
        "7",
    ),
    (
        "2",
        BUDGET,
        "/clusters/outbound|80|own|till.shop.svc.cluster.local/circuit_breakers/thresholds/0/retry_budget/min_retry_concurrency",
        "3",
    ),
    // Gateways of another network, of the proxy's IP family.
    (
        "4",
        "net-gateway-of-other-ip-family-skipped/six",
        "/endpoints/outbound|80||ship.port.internal/endpoints/0/lb_endpoints/1/endpoint/address/socket_address/address",
        "\"2001:db8::2\"",
    ),
    (
        "4",
        "net-gateway-of-other-ip-family-skipped/four",
        "/endpoints/outbound|80||ship.port.internal/endpoints/0/lb_endpoints/1/endpoint/address/socket_address/address",
        "\"198.51.100.2\"",
    ),
    // Priorities by labels in clusters that look up hosts.
    (
        "7",
        "se-dns-failover-priority/gold",
        "/clusters/outbound|80||maps.example.com/load_assignment/endpoints/2/priority",
        "2",
    ),
    (
        "7",
        "se-dns-failover-priority/gold",
        "/clusters/outbound|80||maps.example.com/common_lb_config/locality_weighted_lb_config",
        "{}",
    ),
    // Endpoints of a subset without a TLS mode, behind a gateway.
    (
        "8",
        SUBSET_TLS,
        "/endpoints/outbound|80|mutual|lock.safe.svc.cluster.local/endpoints/0/lb_endpoints/1/endpoint/address/socket_address/address",
        "\"198.51.100.2\"",
    ),
    (
        "8",
        SUBSET_TLS,
        "/endpoints/outbound|80|pool|lock.safe.svc.cluster.local/endpoints/0/lb_endpoints/1",
        "null",
    ),
    // Names in the default export of services.
    (
        "11",
        "mesh-default-service-export-to-names/two",
        "/clusters/outbound|80||a.one.svc.cluster.local/name",
        "\"outbound|80||a.one.svc.cluster.local\"",
    ),
    (
        "11",
        "mesh-default-service-export-to-names/one",
        "/clusters/outbound|80||c.three.svc.cluster.local",
        "null",
    ),
    // A user's rule over a policy for TLS.
    (
        "12",
        UNDER_RULE,
        "/clusters/outbound|443||spare.edge.svc.cluster.local/transport_socket/typed_config/sni",
        "\"rule.example.com\"",
    ),
    (
        "12",
        UNDER_RULE,
        "/clusters/outbound|443|v1|store.edge.svc.cluster.local/transport_socket/typed_config/sni",
        "\"store.example.com\"",
    ),
    (
        "12",
        UNDER_RULE,
        "/clusters/outbound|443|v1|store.edge.svc.cluster.local/circuit_breakers/thresholds/0/max_connections",
        "21",
    ),
    // Traffic distribution of a namespace.
    (
        "13",
        "k8s-traffic-distribution-of-namespace/client",
        "/endpoints/outbound|80||inherits.shop.svc.cluster.local/endpoints/2/priority",
        "2",
    ),
    (
        "13",
        "k8s-traffic-distribution-of-namespace/client",
        "/endpoints/outbound|80||entry.shop.internal/endpoints/1/priority",
        "1",
    ),
    // Policies of an external authorizer have its name.
    (
        "15",
        "sec-authz-custom-provider-in-names/web-0",
        "/listeners/virtualInbound/filter_chains/1/filters/1/typed_config/http_filters/1/typed_config/shadow_rules/policies/istio-ext-authz-first-ns[shop]-policy[one]-rule[0]/permissions/0/and_rules/rules/0/or_rules/rules/0/url_path/path/exact",
        "\"/admin\"",
    ),
    // WasmPlugins are TrafficExtensions.
    (
        "16",
        "tel-traffic-extension-lua-and-wasm/web-0",
        "/listeners/0.0.0.0_80/filter_chains/0/filters/1/typed_config/http_filters/3/name",
        "\"extensions.istio.io/trafficextension/shop.old~istio-translated-wasmplugin\"",
    ),
    (
        "34",
        "tel-traffic-extension-lua-and-wasm/web-0",
        "/listeners/0.0.0.0_80/filter_chains/0/filters/1/typed_config/http_filters/2/name",
        "\"extensions.istio.io/trafficextension/shop.wasm\"",
    ),
    // Timeout of handshakes at gateways.
    (
        "17",
        "mesh-tls-defaults-min-version/front",
        "/listeners/0.0.0.0_8443/filter_chains/0/transport_socket_connect_timeout",
        "\"15s\"",
    ),
    (
        "23",
        "dr-http2-keep-alive/client",
        "/clusters/outbound|80|upgrade|api.shop.svc.cluster.local/typed_extension_protocol_options/envoy.extensions.upstreams.http.v3.HttpProtocolOptions/explicit_http_config/http2_protocol_options/connection_keepalive/timeout",
        "\"2s\"",
    ),
    (
        "25",
        "se-connect-strategy-race/six",
        "/clusters/outbound|443||race.example.com/dns_lookup_family",
        "\"ALL\"",
    ),
    (
        "25",
        "se-connect-strategy-race/six",
        "/clusters/outbound|80||usual.example.com/dns_lookup_family",
        "\"V6_ONLY\"",
    ),
    (
        "26",
        "vs-redirect-prefix-rewrite/client",
        "/routes/80/virtual_hosts/1/routes/0/redirect/prefix_rewrite",
        "\"/\"",
    ),
    // Hosts that a Sidecar takes out.
    (
        "28",
        "sc-egress-hosts-excluded/client",
        "/clusters/outbound|80||app.bank.svc.cluster.local/name",
        "\"outbound|80||app.bank.svc.cluster.local\"",
    ),
    ("28", "sc-egress-hosts-excluded/client", "/clusters/outbound|5432||db.bank.svc.cluster.local", "null"),
    (
        "29",
        "gw-insecure-skip-verify/front",
        "/listeners/0.0.0.0_8443/filter_chains/0/transport_socket/typed_config/common_tls_context/combined_validation_context/default_validation_context/trust_chain_verification",
        "\"ACCEPT_UNTRUSTED\"",
    ),
    (
        "30",
        "sec-authz-trust-domains/web-0",
        "/listeners/virtualInbound/filter_chains/1/filters/1/typed_config/http_filters/1/typed_config/rules/policies/ns[shop]-policy[domains]-rule[0]/principals/0/and_ids/ids/0/or_ids/ids/0/authenticated/principal_name/prefix",
        "\"spiffe://partner.example/\"",
    ),
    (
        "32",
        "mesh-tls-defaults-min-version/front",
        "/listeners/0.0.0.0_8443/filter_chains/0/transport_socket/typed_config/common_tls_context/tls_params/tls_minimum_protocol_version",
        "\"TLSv1_3\"",
    ),
    // TCPRoutes of version v1 need no switch.
    ("35", "gwapi-tcproute-v1/quay", "/listeners/0.0.0.0_9000/name", "\"0.0.0.0_9000\""),
    // Rules of both kinds of one host, by precedence.
    (
        "38",
        "gwapi-grpcroute-and-httproute-one-host/quay",
        "/routes/http.8080/virtual_hosts/0/routes/1/match/path",
        "\"/shop.Cart/Add\"",
    ),
    (
        "38",
        "gwapi-grpcroute-and-httproute-one-host/quay",
        "/routes/http.8080/virtual_hosts/0/routes/2/route/cluster",
        "\"outbound|9000||g.edge.svc.cluster.local\"",
    ),
    // The older policy, and one for a section beside it.
    (
        "40",
        "gwapi-backend-tls-policy-conflict-and-ignored/client",
        "/clusters/outbound|80||store.edge.svc.cluster.local/transport_socket/typed_config/sni",
        "\"first.example.com\"",
    ),
    (
        "40",
        "gwapi-backend-tls-policy-conflict-and-ignored/client",
        "/clusters/outbound|443||store.edge.svc.cluster.local/transport_socket/typed_config/sni",
        "\"port.example.com\"",
    ),
    // Each entry of a grant counts.
    (
        "43",
        "gwapi-reference-grant-several-and-listener-without-tls/quay",
        "/listeners/0.0.0.0_8443/name",
        "\"0.0.0.0_8443\"",
    ),
    // Addresses of the proxy's families only.
    ("45", "k8s-cluster-ip-of-other-family/four", "/routes/80/virtual_hosts/0/domains/5", "\"10.96.80.2\""),
    ("45", "k8s-cluster-ip-of-other-family/six", "/routes/80/virtual_hosts/2/domains/5", "null"),
    // The inbound side of a proxy without a Pod.
    (
        "46",
        "k8s-proxy-without-pod-by-its-labels/web-1",
        "/clusters/inbound|8080||/name",
        "\"inbound|8080||\"",
    ),
];

const UNHEALTHY: &str = "dr-unhealthy-endpoints-sent/client";
const BUDGET: &str = "dr-retry-budget-interval-and-subsets/client";
const SUBSET_TLS: &str = "dr-subset-falls-back-to-tls-of-rule/client";
const UNDER_RULE: &str = "gwapi-backend-tls-policy-under-destination-rule/client";

#[test]
fn each_rule_shows_in_a_recorded_case() {
    let mut dumps: BTreeMap<&str, BTreeMap<String, Value>> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (rule, of, place, expected) in RULES {
        let (name, proxy) = of.split_once('/').unwrap();
        let case = Case::read(&cases_folder().join(name)).unwrap();
        let dumps = dumps.entry(name).or_insert_with(|| dumps_of_files(&case, false).unwrap().dumps);
        let expected: Value = serde_json::from_str(expected).unwrap();
        let entry = case.proxies.iter().find(|entry| entry.name == proxy).unwrap();
        let golden = case.golden(entry).unwrap();
        for (sender, dump) in [("Pilotfish", &dumps[proxy]), ("istiod", &golden)] {
            let found = dump.pointer(place).unwrap_or(&Value::Null);
            if *found != expected {
                wrong.push(format!("rule {rule}: {of} {place}: {sender} sends {found}, not {expected}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
