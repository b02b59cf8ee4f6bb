//! Delegates: the routes of a VirtualService without hosts, put under a route of another.
//!
//! Conditions are united: each of the delegate's must be a part of one of the root's, or the whole route is left out. What
//! the delegate leaves open comes from the root.

use pilotfish_config::StringMatch;
use pilotfish_config::networking::{
    HttpBody, HttpDirectResponse, HttpMatchRequest, HttpRoute, MAX_CONDITIONS,
};
use std::collections::BTreeMap;

/// How many conditions a virtual service may get from its delegates, and what it may cost to find out.
pub(super) struct Allowance {
    conditions: usize,
    comparisons: usize,
    bytes: usize,
}

/// The most bytes that the routes of a virtual service may get from its delegates (limit `virtual-service-bytes`): each route of a
/// delegate is there again under each route that leads to it.
pub(crate) const MAX_VIRTUAL_SERVICE_BYTES: usize = 64 << 20;

/// As many comparisons cost as much as a route that was put together for nothing.
const WASTED: usize = 64;

/// About how many bytes a route has.
pub(super) fn weight(route: &HttpRoute) -> usize {
    serde_json::to_vec(route).map_or(usize::MAX, |text| text.len())
}

impl Allowance {
    pub(super) fn new() -> Self {
        Self {
            conditions: MAX_CONDITIONS,
            comparisons: 64 * MAX_CONDITIONS,
            bytes: MAX_VIRTUAL_SERVICE_BYTES,
        }
    }

    /// A route of the root itself, which validation has limited.
    pub(super) fn count_own(&mut self, route: &HttpRoute) {
        self.conditions = self.conditions.saturating_sub(route.conditions());
    }

    /// The routes of a delegate, with their weights, under a route of the root, without those that contradict it. `None` when they would
    /// be too many or too large: then none of them counts.
    pub(super) fn merge(
        &mut self,
        root: &HttpRoute,
        leaves: impl Iterator<Item = (HttpRoute, usize)>,
    ) -> Option<Vec<HttpRoute>> {
        let mut merged = Vec::new();
        let done = self.try_merge(root, leaves, &mut merged);
        if done.is_none() {
            // Under each of many routes, a delegate that does not fit would be put together again and thrown away.
            self.comparisons = self.comparisons.saturating_sub(WASTED.saturating_mul(merged.len()));
        }
        done.map(|()| merged)
    }

    fn try_merge(
        &mut self,
        root: &HttpRoute,
        leaves: impl Iterator<Item = (HttpRoute, usize)>,
        merged: &mut Vec<HttpRoute>,
    ) -> Option<()> {
        let (mut left, mut bytes, own) = (self.conditions, self.bytes, weight(root));
        for (leaf, weight) in leaves {
            self.comparisons =
                self.comparisons.checked_sub(root.conditions().saturating_mul(leaf.conditions()))?;
            let Some(route) = merge_route(root, leaf) else { continue };
            left = left.checked_sub(route.conditions())?;
            bytes = bytes.checked_sub(own.saturating_add(weight))?;
            merged.push(route);
        }
        (self.conditions, self.bytes) = (left, bytes);
        Some(())
    }

    /// What answers the requests of a route whose delegate is refused: nothing else may.
    pub(super) fn refusal(&mut self, root: &HttpRoute) -> HttpRoute {
        self.count_own(root);
        let text = "the routes of a delegate are too many (limits virtual-service-conditions and virtual-service-bytes)";
        let body = Some(HttpBody { string: Some(text.to_owned()), ..HttpBody::default() });
        HttpRoute {
            name: root.name.clone(),
            r#match: root.r#match.clone(),
            direct_response: Some(HttpDirectResponse { status: 503, body }),
            ..HttpRoute::default()
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn route(name: &str, paths: &[String]) -> HttpRoute {
        let condition = |path: &String| HttpMatchRequest {
            uri: Some(StringMatch::Prefix(path.clone())),
            ..HttpMatchRequest::default()
        };
        let r#match = paths.iter().map(condition).collect();
        HttpRoute { name: name.to_owned(), r#match, ..HttpRoute::default() }
    }

    fn routes(count: usize) -> impl Iterator<Item = (HttpRoute, usize)> {
        (0..count).map(|n| (route(&format!("{n}"), &[]), 100))
    }

    #[test]
    fn a_delegate_is_refused_as_a_whole_and_what_fits_later_is_taken() {
        let mut allowance = Allowance::new();
        let root = route("root", &["/a".to_owned(), "/b".to_owned()]);
        let taken = allowance.merge(&root, routes(5_000)).map(|all| all.len());
        assert_eq!(taken, Some(5_000), "of two conditions each");
        assert!(allowance.merge(&root, routes(5_000)).is_none());
        let refusal = allowance.refusal(&root);
        assert_eq!(
            (refusal.r#match.len(), refusal.direct_response.map(|response| response.status)),
            (2, Some(503))
        );
        assert_eq!(allowance.merge(&root, routes(3_191)).map(|all| all.len()), Some(3_191));
        assert!(allowance.merge(&root, routes(1)).is_none());
    }

    #[test]
    fn a_large_route_is_not_there_under_each_of_many() {
        let mut allowance = Allowance::new();
        let body = HttpBody { string: Some("x".repeat(1 << 20)), ..HttpBody::default() };
        let large = HttpRoute {
            direct_response: Some(HttpDirectResponse { status: 200, body: Some(body) }),
            ..HttpRoute::default()
        };
        let root = route("root", &["/a".to_owned()]);
        let mut merge = || allowance.merge(&root, std::iter::once((large.clone(), weight(&large)))).is_some();
        let taken = (0..100).filter(|_| merge()).count();
        assert_eq!(taken, 63, "of 1 MiB and a little more each");
        assert!(allowance.merge(&large, routes(1)).is_none(), "what the root has is copied too");
        assert!(allowance.merge(&root, routes(1)).is_some());
    }

    #[test]
    fn a_delegate_that_does_not_fit_is_not_put_together_under_each_of_many_routes() {
        let mut allowance = Allowance::new();
        let root = route("root", &["/a".to_owned()]);
        let read = std::cell::Cell::new(0);
        for _ in 0..1_500 {
            allowance.merge(&root, routes(1_500).inspect(|_| read.set(read.get() + 1)));
        }
        assert!(read.get() < 50_000, "{} routes were read", read.get());
    }

    #[test]
    fn finding_out_that_conditions_contradict_is_limited_too() {
        let paths = |letter: &str| (0..2_000).map(|n| format!("/{letter}{n}")).collect::<Vec<_>>();
        let mut allowance = Allowance::new();
        assert!(
            allowance
                .merge(&route("root", &paths("a")), std::iter::once((route("", &paths("b")), 0)))
                .is_none()
        );
        assert!(allowance.merge(&route("root", &[]), routes(1)).is_some(), "nothing was spent");
    }
}
