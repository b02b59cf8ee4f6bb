//! Tags of Envoy's statistics, as in Istio's bootstrap, so that `/stats/prometheus` has the names and labels
//! of Istio's proxies.

use serde_json::{Value, json};

/// Tags with their expressions: the first group is removed from the name, the last one is the value. Names of
/// clusters and of HTTP connection managers contain dots; they end at the `;` that Istio's control plane
/// appends.
///
/// Source: `stats_config.stats_tags` in the bootstrap of Istio 1.29. Tags of filters that only Istio's build
/// has are harmless here.
const TAGS: [(&str, &str); 16] = [
    ("cluster_name", r"^cluster(\.(.+);)"),
    ("http_conn_manager_prefix", r"^http\.(((?:[_.[:digit:]\w]*|[_\[\]aAbBcCdDeEfF[:digit:]\w\:]*));\.)"),
    ("thread_name", r"^server(\.(.+))\.watchdog"),
    ("tcp_prefix", r"^tcp\.((.*?)\.)\w+?$"),
    ("response_code", r"_rq(_(\d{3}))$"),
    ("response_code_class", r"_rq(_(\dxx))$"),
    (
        "http_conn_manager_listener_prefix",
        r"^listener(?=\.).*?\.http\.(((?:[_.[:digit:]]*|[_\[\]aAbBcCdDeEfF[:digit:]]*))\.)",
    ),
    ("listener_address", r"^listener\.(((?:[_.[:digit:]]*|[_\[\]aAbBcCdDeEfF[:digit:]]*))\.)"),
    ("mongo_prefix", r"^mongo\.(.+?)\.(collection|cmd|cx_|op_|delays_|decoding_)(.*?)$"),
    ("cache", r"(cache\.(.+?)\.)"),
    ("component", r"(component\.(.+?)\.)"),
    ("tag", r"(tag\.(.+?);\.)"),
    ("wasm_filter", r"(wasm_filter\.(.+?)\.)"),
    ("authz_enforce_result", r"rbac(\.(allowed|denied))"),
    ("authz_dry_run_action", r"(\.istio_dry_run_(allow|deny)_)"),
    ("authz_dry_run_result", r"(\.shadow_(allowed|denied))"),
];

/// `stats_config` of the bootstrap. It has no `stats_matcher`: Istio's proxies omit most counters of Envoy
/// since their own filters count requests, and a stock Envoy has no other counters.
pub(super) fn config() -> Value {
    let tags: Vec<Value> =
        TAGS.iter().map(|(tag_name, regex)| json!({"tag_name": tag_name, "regex": regex})).collect();
    json!({"use_all_default_tags": false, "stats_tags": tags})
}

/// Name of a bootstrap cluster in statistics, with the terminator.
pub(super) fn cluster(name: &str) -> String {
    format!("{name};")
}
