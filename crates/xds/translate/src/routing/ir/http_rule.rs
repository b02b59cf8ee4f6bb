//! A route of requests. A route of a delegate is stored as its two parts, root and delegate, and merged only
//! when it is read: a delegate under many routes would otherwise be stored in full under each of them.
//!
//! Conditions are merged: each condition of the delegate must be contained in one of the root's, or the whole
//! route is left out. Fields that the delegate leaves unset come from the root.

use pilotfish_config::StringMatch;
use pilotfish_config::networking::{HttpMatchRequest, HttpRoute};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A route of requests, or one of a delegate under the route that leads to it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HttpRule {
    /// The route, or the delegate's route.
    leaf: Arc<HttpRoute>,
    /// The route that leads to the delegate. Its conditions do not contradict those of the leaf.
    root: Option<Arc<HttpRoute>>,
}

impl From<HttpRoute> for HttpRule {
    fn from(route: HttpRoute) -> Self {
        Self { leaf: Arc::new(route), root: None }
    }
}

impl HttpRule {
    /// Combines a delegate's route with one that leads to it. Returns it with the number of its conditions
    /// (at least one); `None` if they contradict each other.
    pub(crate) fn delegated(root: &Arc<HttpRoute>, leaf: Arc<HttpRoute>) -> Option<(Self, usize)> {
        let conditions = merged_conditions(&root.r#match, &leaf.r#match)?;
        Some((Self { leaf, root: Some(Arc::clone(root)) }, conditions))
    }

    /// Returns the merged route.
    pub(crate) fn whole(&self) -> Cow<'_, HttpRoute> {
        match &self.root {
            None => Cow::Borrowed(&self.leaf),
            Some(root) => Cow::Owned(merge_route(root, &self.leaf)),
        }
    }
}

/// Returns the number of conditions that `merge_matches` would yield; `None` if a condition of the delegate
/// fits none of the root.
fn merged_conditions(root: &[HttpMatchRequest], leaf: &[HttpMatchRequest]) -> Option<usize> {
    if root.is_empty() || leaf.is_empty() {
        return Some(root.len().max(leaf.len()).max(1));
    }
    leaf.iter().try_fold(0_usize, |all, leaf| {
        let fitting = root.iter().filter(|root| !conflict(root, leaf)).count();
        (fitting > 0).then(|| all.saturating_add(fitting))
    })
}

fn merge_route(root: &HttpRoute, leaf: &HttpRoute) -> HttpRoute {
    HttpRoute {
        r#match: merge_matches(&root.r#match, &leaf.r#match),
        name: join_names(&root.name, &leaf.name),
        rewrite: leaf.rewrite.clone().or_else(|| root.rewrite.clone()),
        direct_response: leaf.direct_response.clone().or_else(|| root.direct_response.clone()),
        timeout: leaf.timeout.or(root.timeout),
        retries: leaf.retries.clone().or_else(|| root.retries.clone()),
        fault: leaf.fault.clone().or_else(|| root.fault.clone()),
        mirror: leaf.mirror.clone().or_else(|| root.mirror.clone()),
        mirror_percent: leaf.mirror_percent.or(root.mirror_percent),
        mirror_percentage: leaf.mirror_percentage.or(root.mirror_percentage),
        mirrors: if leaf.mirrors.is_empty() { root.mirrors.clone() } else { leaf.mirrors.clone() },
        cors_policy: leaf.cors_policy.clone().or_else(|| root.cors_policy.clone()),
        headers: leaf.headers.clone().or_else(|| root.headers.clone()),
        redirect: leaf.redirect.clone(),
        route: leaf.route.clone(),
        delegate: None,
    }
}

fn join_names(root: &str, leaf: &str) -> String {
    match (root, leaf) {
        (name, "") | ("", name) => name.to_owned(),
        (root, leaf) => format!("{root}-{leaf}"),
    }
}

/// Merges the conditions of both. Those of the leaf must be contained in the root's.
fn merge_matches<'a>(root: &'a [HttpMatchRequest], leaf: &'a [HttpMatchRequest]) -> Vec<HttpMatchRequest> {
    match (root, leaf) {
        ([], matches) | (matches, []) => matches.to_vec(),
        _ => {
            let fitting = |leaf: &'a HttpMatchRequest| {
                root.iter().filter(move |root| !conflict(root, leaf)).map(move |root| (root, leaf))
            };
            leaf.iter().flat_map(fitting).map(|(root, leaf)| merge_match(root, leaf)).collect()
        }
    }
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

/// Returns true if a condition of the delegate cannot be a part of one of the root.
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

/// Returns true if the delegate's pattern is not contained in the root's. For regular expressions this is
/// unknown, so they conflict with every other pattern.
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
