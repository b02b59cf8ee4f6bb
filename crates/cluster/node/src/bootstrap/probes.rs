//! Listener and clusters of a Pod's Envoy for the probes of its containers.
//!
//! An HTTP probe is a route to the program's port. Envoy accepts connections before it knows that the program
//! does, so TCP and gRPC probes are answered from active health checks of a cluster.
//!
//! Only the requests of probes are served, GET of their paths without a query: the listener needs no
//! certificate.

use super::{CONNECTION_MANAGER, ROUTER, address, pod_listener, stats};
use pilotfish_webhook::inject::{Check, Probe, Workload};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const PROTOCOL_OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
const TLS: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";
const HEALTH_CHECK: &str = "type.googleapis.com/envoy.extensions.filters.http.health_check.v3.HealthCheck";
/// Addresses of Envoy's own connections to programs, which REDIRECT rules leave alone.
const SOURCES: [&str; 2] = ["127.0.0.6", "::6"];
/// Mark of Envoy's own connections to programs, which TPROXY rules leave alone.
const MARK: u32 = 1337;
/// Limit of the interval of health checks in milliseconds.
const LONGEST_INTERVAL: u64 = 5_000;

/// Listener for the probes; `None` if there are none.
pub(super) fn listener(workload: &Workload<'_>) -> Option<Value> {
    let Workload { probes, status_port, .. } = *workload;
    if probes.is_empty() {
        return None;
    }
    let routes: Vec<Value> = probes.iter().flat_map(routes).collect();
    let mut filters: Vec<Value> = probes.iter().filter_map(health_filter).collect();
    filters.push(json!({
        "name": "envoy.filters.http.router",
        "typed_config": {"@type": ROUTER, "suppress_envoy_headers": true},
    }));
    let manager = json!({
        "@type": CONNECTION_MANAGER,
        "stat_prefix": "probes",
        // The program gets the request and the kubelet the response as without Envoy.
        "generate_request_id": false,
        "server_header_transformation": "PASS_THROUGH",
        "route_config": {"virtual_hosts": [{"name": "probes", "domains": ["*"], "routes": routes}]},
        "http_filters": filters,
    });
    Some(pod_listener("probes", status_port, &manager))
}

/// Clusters of the probes: one for each port with HTTP or HTTPS, and one for each other probe.
pub(super) fn clusters(workload: &Workload<'_>) -> impl Iterator<Item = Value> {
    let of = |probe: &Probe| (cluster_name(probe), cluster(probe, workload.interception));
    workload.probes.iter().map(of).collect::<BTreeMap<_, _>>().into_values()
}

fn cluster_name(probe: &Probe) -> String {
    match &probe.check {
        Check::Http { is_tls: false, .. } => format!("probe-http-{}", probe.port),
        Check::Http { is_tls: true, .. } => format!("probe-https-{}", probe.port),
        Check::Tcp | Check::Grpc { .. } => format!("probe-{}-{}", probe.container, probe.kind),
    }
}

/// Routes of an HTTP probe. Unless the probe has a header `Host`, the program gets its own address in it, as
/// from a kubelet; the family of that address is known from the request. Kubelets would follow a `Location`
/// of the program to Envoy's port; a redirect without one counts as success.
fn routes(probe: &Probe) -> Vec<Value> {
    let Check::Http { path, headers, .. } = &probe.check else { return Vec::new() };
    let has = |name: &str| headers.iter().any(|header| header == name);
    let own = probe.path();
    let exact = |name: &str, value: &str| json!({"name": name, "string_match": {"exact": value}});
    let mut route = json!({
        "match": {"path": own, "headers": [exact(":method", "GET"), exact(":path", &own)]},
        "route": {
            "cluster": cluster_name(probe), "prefix_rewrite": literal(path),
            "timeout": format!("{}s", probe.timeout),
        },
        "response_headers_to_remove": ["location"],
    });
    if !has("x-forwarded-proto") {
        route["request_headers_to_remove"] = json!(["x-forwarded-proto"]);
    }
    if has("host") {
        return vec![route];
    }
    let mut ipv6 = route.clone();
    if let Some(headers) = ipv6["match"]["headers"].as_array_mut() {
        headers.push(json!({"name": ":authority", "string_match": {"prefix": "["}}));
    }
    ipv6["route"]["host_rewrite_literal"] = json!(format!("[$(POD_IP)]:{}", probe.port));
    route["route"]["host_rewrite_literal"] = json!(format!("$(POD_IP):{}", probe.port));
    vec![ipv6, route]
}

/// HTTP filter that answers a TCP or gRPC probe.
fn health_filter(probe: &Probe) -> Option<Value> {
    if matches!(probe.check, Check::Http { .. }) {
        return None;
    }
    Some(json!({
        "name": cluster_name(probe),
        "typed_config": {
            "@type": HEALTH_CHECK,
            "pass_through_mode": false,
            "headers": [{"name": ":path", "string_match": {"exact": probe.path()}}],
            "cluster_min_healthy_percentages": {cluster_name(probe): {"value": 100}},
        },
    }))
}

fn cluster(probe: &Probe, interception: &str) -> Value {
    let name = cluster_name(probe);
    let mut cluster = json!({
        "name": name, "alt_stat_name": stats::cluster(&name),
        // Requests have timeouts of their own.
        "type": "STATIC", "connect_timeout": "30s",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address("$(POD_IP)", probe.port)}}]}],
        },
    });
    match interception {
        "REDIRECT" => {
            let source = |address: &str| json!({"address": address, "port_value": 0});
            cluster["upstream_bind_config"] = json!({
                "source_address": source(SOURCES[0]),
                "extra_source_addresses": [{"address": source(SOURCES[1])}],
            });
        }
        "TPROXY" => {
            cluster["upstream_bind_config"] = json!({"socket_options": [{
                "description": "SO_MARK", "level": 1, "name": 36, "int_value": MARK, "state": "STATE_PREBIND",
            }]});
        }
        _ => {}
    }
    match &probe.check {
        Check::Http { is_tls, .. } => {
            // A connection that is already open does not show that the program still accepts others.
            cluster["typed_extension_protocol_options"] = protocol(&json!({
                "common_http_protocol_options": {"max_requests_per_connection": 1},
                "explicit_http_config": {"http_protocol_options": {}},
            }));
            if *is_tls {
                // Kubelets verify no certificate either. Envoy's clients speak TLS 1.2 at most by default.
                let context = json!({"tls_params": {"tls_maximum_protocol_version": "TLSv1_3"}});
                cluster["transport_socket"] = json!({
                    "name": "envoy.transport_sockets.tls",
                    "typed_config": {"@type": TLS, "common_tls_context": context},
                });
            }
        }
        Check::Tcp => cluster["health_checks"] = json!([health_check(probe, "tcp_health_check", &json!({}))]),
        Check::Grpc { service } => {
            cluster["typed_extension_protocol_options"] =
                protocol(&json!({"explicit_http_config": {"http2_protocol_options": {}}}));
            let check = json!({"service_name": literal(service), "authority": "localhost"});
            cluster["health_checks"] = json!([health_check(probe, "grpc_health_check", &check)]);
        }
    }
    cluster
}

fn protocol(options: &Value) -> Value {
    let mut options = options.clone();
    options["@type"] = json!(format!("type.googleapis.com/{PROTOCOL_OPTIONS}"));
    json!({PROTOCOL_OPTIONS: options})
}

/// Active health check, twice in the interval of the probe. The thresholds are the kubelet's.
fn health_check(probe: &Probe, kind: &str, check: &Value) -> Value {
    let interval = (u64::from(probe.period) * 500).min(LONGEST_INTERVAL);
    let interval = format!("{}.{:03}s", interval / 1000, interval % 1000);
    let timeout = format!("{}s", probe.timeout);
    json!({
        "timeout": timeout, "interval": interval, "no_traffic_interval": interval, "reuse_connection": false,
        "unhealthy_threshold": 1, "healthy_threshold": 1, kind: check,
    })
}

/// Text that Kubernetes does not expand in an argument of a container.
fn literal(text: &str) -> String {
    text.replace('$', "$$")
}

#[cfg(test)]
mod tests;
