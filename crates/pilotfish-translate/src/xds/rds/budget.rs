//! How many routes a route configuration may have, however many hosts share them: checked before they are copied.

use crate::routing::VirtualServiceId;
use pilotfish_proto::envoy::config::core::v3::{DataSource, data_source::Specifier};
use pilotfish_proto::envoy::config::route::v3::route::Action;
use pilotfish_proto::envoy::config::route::v3::route_match::PathSpecifier;
use pilotfish_proto::envoy::config::route::v3::{DirectResponseAction, Route, RouteMatch};

/// The most routes of a route configuration. A virtual host that would be beyond it has one route instead, which refuses.
const MAX_ROUTES: usize = 100_000;

/// The routes that a route configuration may still get.
pub(super) struct RouteBudget {
    left: usize,
}

impl RouteBudget {
    pub(super) fn new() -> Self {
        Self { left: MAX_ROUTES }
    }

    /// Whether a virtual host may have so many routes; then they are taken.
    pub(super) fn take(&mut self, routes: usize) -> bool {
        let left = self.left.checked_sub(routes);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }
}

/// The one route of a virtual host whose routes would be too many: it answers every request with 503, as another host's routes must
/// not, and says why.
pub(super) fn refusal(rule: &VirtualServiceId) -> Route {
    let VirtualServiceId { source, namespace, name } = rule;
    let text = format!(
        "the routes of {source} {namespace}/{name} for all of its hosts are too many (limit route-configuration-routes)"
    );
    let body = Some(DataSource { specifier: Some(Specifier::InlineString(text)), ..Default::default() });
    Route {
        name: "refused".to_owned(),
        r#match: Some(RouteMatch {
            path_specifier: Some(PathSpecifier::Prefix("/".to_owned())),
            ..Default::default()
        }),
        action: Some(Action::DirectResponse(DirectResponseAction {
            status: 503,
            body,
            ..Default::default()
        })),
        ..Default::default()
    }
}
