//! Delegates: the routes of a VirtualService without hosts, put under a route of another.
//!
//! Conditions are united: each of the delegate's must be a part of one of the root's, or the whole route is left out. What
//! the delegate leaves open comes from the root.

use pilotfish_config::StringMatch;
use pilotfish_config::networking::{HttpMatchRequest, HttpRoute};
use std::collections::BTreeMap;

/// The routes of a delegate under a route of the root, without those that contradict it.
pub(super) fn merge_routes<'a>(
    root: &'a HttpRoute,
    leaves: impl Iterator<Item = HttpRoute> + 'a,
) -> impl Iterator<Item = HttpRoute> + 'a {
    leaves.filter_map(|leaf| merge_route(root, leaf))
}

fn merge_route(root: &HttpRoute, leaf: HttpRoute) -> Option<HttpRoute> {
    let r#match = merge_matches(&root.r#match, &leaf.r#match)?;
    Some(HttpRoute {
        r#match,
        name: join_names(&root.name, &leaf.name),
        rewrite: leaf.rewrite.or_else(|| root.rewrite.clone()),
        direct_response: leaf.direct_response.or_else(|| root.direct_response.clone()),
        timeout: leaf.timeout.or(root.timeout),
        retries: leaf.retries.or_else(|| root.retries.clone()),
        fault: leaf.fault.or_else(|| root.fault.clone()),
        mirror: leaf.mirror.or_else(|| root.mirror.clone()),
        mirror_percent: leaf.mirror_percent.or(root.mirror_percent),
        mirror_percentage: leaf.mirror_percentage.or(root.mirror_percentage),
        mirrors: if leaf.mirrors.is_empty() { root.mirrors.clone() } else { leaf.mirrors },
        cors_policy: leaf.cors_policy.or_else(|| root.cors_policy.clone()),
        headers: leaf.headers.or_else(|| root.headers.clone()),
        redirect: leaf.redirect,
        route: leaf.route,
        delegate: None,
    })
}

fn join_names(root: &str, leaf: &str) -> String {
    match (root, leaf) {
        (name, "") | ("", name) => name.to_owned(),
        (root, leaf) => format!("{root}-{leaf}"),
    }
}

/// `None` when some condition of the leaf is no part of any of the root's.
fn merge_matches(root: &[HttpMatchRequest], leaf: &[HttpMatchRequest]) -> Option<Vec<HttpMatchRequest>> {
    match (root, leaf) {
        ([], matches) | (matches, []) => return Some(matches.to_vec()),
        _ => {}
    }
    let mut out = Vec::new();
    for leaf in leaf {
        let before = out.len();
        let fitting = root.iter().filter(|root| !conflict(root, leaf));
        out.extend(fitting.map(|root| merge_match(root, leaf)));
        if out.len() == before {
            return None;
        }
    }
    Some(out)
}

fn merge_match(root: &HttpMatchRequest, leaf: &HttpMatchRequest) -> HttpMatchRequest {
    let either = |leaf: &Option<StringMatch>, root: &Option<StringMatch>| leaf.clone().or(root.clone());
    HttpMatchRequest {
        name: join_names(&root.name, &leaf.name),
        uri: either(&leaf.uri, &root.uri),
        scheme: either(&leaf.scheme, &root.scheme),
        method: either(&leaf.method, &root.method),
        authority: either(&leaf.authority, &root.authority),
        headers: union(&root.headers, &leaf.headers),
        port: if leaf.port == 0 { root.port } else { leaf.port },
        source_labels: union(&root.source_labels, &leaf.source_labels),
        gateways: if leaf.gateways.is_empty() { root.gateways.clone() } else { leaf.gateways.clone() },
        query_params: union(&root.query_params, &leaf.query_params),
        ignore_uri_case: leaf.ignore_uri_case,
        without_headers: union(&root.without_headers, &leaf.without_headers),
        source_namespace: match leaf.source_namespace.as_str() {
            "" => root.source_namespace.clone(),
            namespace => namespace.to_owned(),
        },
        stat_prefix: match leaf.stat_prefix.as_str() {
            "" => root.stat_prefix.clone(),
            prefix => prefix.to_owned(),
        },
    }
}

fn union<V: Clone>(root: &BTreeMap<String, V>, leaf: &BTreeMap<String, V>) -> BTreeMap<String, V> {
    let both = root.iter().chain(leaf);
    both.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Whether a condition of the leaf cannot be a part of one of the root.
fn conflict(root: &HttpMatchRequest, leaf: &HttpMatchRequest) -> bool {
    let texts = [
        (&root.uri, &leaf.uri),
        (&root.scheme, &leaf.scheme),
        (&root.method, &leaf.method),
        (&root.authority, &leaf.authority),
    ];
    let maps = [
        (&root.headers, &leaf.headers),
        (&root.without_headers, &leaf.without_headers),
        (&root.query_params, &leaf.query_params),
    ];
    let labels_differ = || {
        leaf.source_labels.iter().any(|(key, value)| root.source_labels.get(key).is_some_and(|v| v != value))
    };
    let gateways_differ = || {
        !root.gateways.is_empty()
            && (leaf.gateways.len() > root.gateways.len()
                || leaf.gateways.iter().any(|gateway| !root.gateways.contains(gateway)))
    };
    texts.iter().any(|(root, leaf)| texts_conflict(root.as_ref(), leaf.as_ref()))
        || maps
            .iter()
            .any(|(root, leaf)| leaf.iter().any(|(key, leaf)| texts_conflict(root.get(key), Some(leaf))))
        || root.ignore_uri_case != leaf.ignore_uri_case
        || root.port > 0 && leaf.port > 0 && root.port != leaf.port
        || !root.source_namespace.is_empty() && leaf.source_namespace != root.source_namespace
        || labels_differ()
        || gateways_differ()
}

/// Whether the texts that the leaf takes are not all texts that the root takes. Of regular expressions this is not known,
/// so beside one there must be nothing else.
fn texts_conflict(root: Option<&StringMatch>, leaf: Option<&StringMatch>) -> bool {
    let (Some(root), Some(leaf)) = (root, leaf) else { return false };
    match (root, leaf) {
        (StringMatch::Exact(root), StringMatch::Exact(leaf)) => root != leaf,
        (StringMatch::Prefix(root), StringMatch::Exact(leaf) | StringMatch::Prefix(leaf)) => {
            !leaf.starts_with(root.as_str())
        }
        _ => true,
    }
}
