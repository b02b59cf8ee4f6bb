//! Cross-origin rules.

use super::convert::{string_matcher, whole_percent};
use pilotfish_config::StringMatch;
use pilotfish_config::networking::{CorsPolicy as Policy, UnmatchedPreflights};
use pilotfish_proto::envoy::config::core::v3::RuntimeFractionalPercent;
use pilotfish_proto::envoy::extensions::filters::http::cors::v3::CorsPolicy;
use pilotfish_proto::{Any, any};

/// The name of the filter.
pub(super) const FILTER: &str = "envoy.filters.http.cors";

/// The filter's settings for a route.
pub(super) fn cors(policy: &Policy) -> Any {
    let exact = policy.allow_origin.iter().map(|origin| StringMatch::Exact(origin.clone()));
    let origins: Vec<StringMatch> = match policy.allow_origins.as_slice() {
        [] => exact.collect(),
        origins => origins.to_vec(),
    };
    any(&CorsPolicy {
        allow_origin_string_match: origins.iter().filter_map(string_matcher).collect(),
        allow_methods: policy.allow_methods.join(","),
        allow_headers: policy.allow_headers.join(","),
        expose_headers: policy.expose_headers.join(","),
        // Fractions are dropped: `Access-Control-Max-Age` is in whole seconds.
        max_age: policy.max_age.map_or_else(String::new, |age| age.0.as_secs().to_string()),
        allow_credentials: policy.allow_credentials,
        filter_enabled: Some(RuntimeFractionalPercent {
            default_value: Some(whole_percent(100)),
            ..Default::default()
        }),
        forward_not_matching_preflights: Some(policy.unmatched_preflights != UnmatchedPreflights::Ignore),
        ..Default::default()
    })
}
