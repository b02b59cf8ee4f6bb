//! Delegates: the routes of a VirtualService without hosts, merged into a route of another, and their limits.

use crate::routing::ir::HttpRule;
use pilotfish_config::networking::{HttpBody, HttpDirectResponse, HttpRoute, MAX_CONDITIONS};
use std::sync::Arc;

/// Remaining conditions, comparisons and bytes that a virtual service may use for routes of its delegates.
pub(super) struct Allowance {
    conditions: usize,
    comparisons: usize,
    bytes: usize,
}

/// The most bytes of routes that a virtual service may get from its delegates (limit
/// `virtual-service-bytes`): each route of a delegate is repeated under each route that leads to it.
pub(crate) const MAX_VIRTUAL_SERVICE_BYTES: usize = 64 << 20;

/// Comparisons that are charged for each merged route of a delegate that is refused, because it is thrown
/// away.
const WASTED: usize = 64;

/// Returns the approximate size of a route in bytes.
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

    /// Counts a route of the root itself, which validation has limited.
    pub(super) fn count_own(&mut self, route: &HttpRoute) {
        self.conditions = self.conditions.saturating_sub(route.conditions());
    }

    /// Merges the routes of a delegate, given with their sizes, with a route of the root, and leaves out
    /// those that contradict it. Returns `None` if they exceed a limit: then none is used.
    pub(super) fn merge(
        &mut self,
        root: &Arc<HttpRoute>,
        leaves: impl Iterator<Item = (Arc<HttpRoute>, usize)>,
    ) -> Option<Vec<HttpRule>> {
        let mut merged = Vec::new();
        let done = self.try_merge(root, leaves, &mut merged);
        if done.is_none() {
            // Merging a delegate that exceeds the limit again under each of many routes would be wasted work.
            self.comparisons = self.comparisons.saturating_sub(WASTED.saturating_mul(merged.len()));
        }
        done.map(|()| merged)
    }

    fn try_merge(
        &mut self,
        root: &Arc<HttpRoute>,
        leaves: impl Iterator<Item = (Arc<HttpRoute>, usize)>,
        merged: &mut Vec<HttpRule>,
    ) -> Option<()> {
        let (mut left, mut bytes, own) = (self.conditions, self.bytes, weight(root));
        for (leaf, weight) in leaves {
            self.comparisons =
                self.comparisons.checked_sub(root.conditions().saturating_mul(leaf.conditions()))?;
            let Some((rule, conditions)) = HttpRule::delegated(root, leaf) else { continue };
            left = left.checked_sub(conditions)?;
            bytes = bytes.checked_sub(own.saturating_add(weight))?;
            merged.push(rule);
        }
        (self.conditions, self.bytes) = (left, bytes);
        Some(())
    }

    /// Returns a route that answers with 503, in place of a route whose delegate is refused. No other route
    /// may handle these requests.
    pub(super) fn refusal(&mut self, root: &HttpRoute) -> HttpRoute {
        self.count_own(root);
        let text = "the routes of a delegate are too many (limits virtual-service-conditions and \
            virtual-service-bytes)";
        let body = Some(HttpBody { string: Some(text.to_owned()), ..HttpBody::default() });
        HttpRoute {
            name: root.name.clone(),
            r#match: root.r#match.clone(),
            direct_response: Some(HttpDirectResponse { status: 503, body }),
            ..HttpRoute::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_config::StringMatch;
    use pilotfish_config::networking::HttpMatchRequest;

    fn route(name: &str, paths: &[String]) -> Arc<HttpRoute> {
        let condition = |path: &String| HttpMatchRequest {
            uri: Some(StringMatch::Prefix(path.clone())),
            ..HttpMatchRequest::default()
        };
        let r#match = paths.iter().map(condition).collect();
        Arc::new(HttpRoute { name: name.to_owned(), r#match, ..HttpRoute::default() })
    }

    fn routes(count: usize) -> impl Iterator<Item = (Arc<HttpRoute>, usize)> {
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
    fn routes_of_a_delegate_are_there_once_however_many_routes_lead_to_them() {
        let leaf = route("leaf", &[]);
        let mut allowance = Allowance::new();
        let rules: Vec<HttpRule> = (0..100)
            .filter_map(|n| {
                let root = route(&format!("root{n}"), &[format!("/{n}/")]);
                allowance.merge(&root, std::iter::once((Arc::clone(&leaf), 100)))
            })
            .flatten()
            .collect();
        assert_eq!((rules.len(), Arc::strong_count(&leaf)), (100, 101));
        let last = rules.last().map(|rule| rule.whole().into_owned()).unwrap();
        assert_eq!((&*last.name, last.r#match.len()), ("root99-leaf", 1));
    }

    #[test]
    fn a_large_route_is_not_there_under_each_of_many() {
        let mut allowance = Allowance::new();
        let body = HttpBody { string: Some("x".repeat(1 << 20)), ..HttpBody::default() };
        let large = Arc::new(HttpRoute {
            direct_response: Some(HttpDirectResponse { status: 200, body: Some(body) }),
            ..HttpRoute::default()
        });
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
