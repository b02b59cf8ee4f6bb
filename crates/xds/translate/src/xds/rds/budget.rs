//! Limits on the size of a route configuration, however many hosts share routes: checked before routes are
//! copied.

use crate::engine::Refusal;
use crate::routing::VirtualServiceId;
use pilotfish_model::{ClusterId, ObjectKey, Origin};
use pilotfish_proto::envoy::config::core::v3::{DataSource, data_source::Specifier};
use pilotfish_proto::envoy::config::route::v3::route::Action;
use pilotfish_proto::envoy::config::route::v3::route_match::PathSpecifier;
use pilotfish_proto::envoy::config::route::v3::{DirectResponseAction, Route, RouteMatch, VirtualHost};

/// The most routes of a route configuration (limit `route-configuration-routes`). A virtual host beyond it
/// has a single route, which answers with an error.
pub(crate) const MAX_ROUTES: usize = 100_000;
/// The most bytes of its routes and domains (limit `route-configuration-bytes`).
pub(crate) const MAX_ROUTE_BYTES: usize = 64 << 20;
/// The most virtual hosts (limit `route-configuration-hosts`). One virtual host with domain `*` answers
/// requests for hosts beyond the limit with an error.
pub(crate) const MAX_VIRTUAL_HOSTS: usize = 100_000;

/// Remaining routes, bytes and hosts of a route configuration.
pub(super) struct RouteBudget {
    routes: usize,
    bytes: usize,
    hosts: usize,
    refused: Vec<Refusal>,
    /// The first virtual service with hosts that are left out.
    hidden: Option<VirtualServiceId>,
}

impl RouteBudget {
    pub(super) fn new() -> Self {
        Self {
            routes: MAX_ROUTES,
            bytes: MAX_ROUTE_BYTES,
            hosts: MAX_VIRTUAL_HOSTS,
            refused: Vec::new(),
            hidden: None,
        }
    }

    /// Reserves space for the routes of a virtual host. Returns false, and records a refusal, if it is not
    /// available.
    pub(super) fn take(&mut self, routes: usize, bytes: usize, rule: &VirtualServiceId) -> bool {
        let (left, left_bytes) = (self.routes.checked_sub(routes), self.bytes.checked_sub(bytes));
        let limit = match (left, left_bytes) {
            (Some(routes), Some(bytes)) => {
                (self.routes, self.bytes) = (routes, bytes);
                return true;
            }
            (None, _) => format!("{MAX_ROUTES} (limit route-configuration-routes)"),
            (_, None) => format!("{MAX_ROUTE_BYTES} bytes (limit route-configuration-bytes)"),
        };
        let fault =
            format!("its routes, for each host, would be more than {limit}: hosts beyond it answer with 503");
        self.refuse(rule, "spec.http", fault);
        false
    }

    /// Reserves space for one more virtual host with domains of that size in bytes. Returns false, and
    /// records a refusal, if it is not available.
    pub(super) fn take_host(&mut self, bytes: usize, rule: Option<&VirtualServiceId>) -> bool {
        let left = self.hosts.checked_sub(1).zip(self.bytes.checked_sub(bytes));
        if let Some((hosts, bytes)) = left {
            (self.hosts, self.bytes) = (hosts, bytes);
            return true;
        }
        if let Some(rule) = rule {
            let fault = format!(
                "its hosts would be more than {MAX_VIRTUAL_HOSTS} with those of others (limit \
                 route-configuration-hosts), or too long: those beyond it answer with 503"
            );
            self.refuse(rule, "spec.hosts", fault);
            self.hidden.get_or_insert_with(|| rule.clone());
        }
        false
    }

    /// Returns a virtual host for the hosts that are left out, if there are any.
    pub(super) fn instead_of_missing(&self) -> Option<VirtualHost> {
        let rule = self.hidden.as_ref()?;
        Some(VirtualHost {
            name: "refused".to_owned(),
            domains: vec!["*".to_owned()],
            routes: vec![refusal(rule)],
            ..Default::default()
        })
    }

    /// Returns the refusals; each virtual service occurs once for each reason.
    pub(super) fn into_refused(self) -> Vec<Refusal> {
        self.refused
    }

    fn refuse(&mut self, rule: &VirtualServiceId, field: &str, fault: String) {
        let key = ObjectKey::new(rule.source, rule.namespace.clone(), rule.name.clone());
        let object = Origin::object(key, ClusterId::default());
        let refusal = Refusal { object, field: field.to_owned(), fault };
        // The hosts of a virtual service are adjacent.
        if self.refused.last() != Some(&refusal) {
            self.refused.push(refusal);
        }
    }
}

/// Returns the only route of a virtual host with too many routes: it answers every request with 503 and the
/// reason, so that no route of another host handles it.
pub(super) fn refusal(rule: &VirtualServiceId) -> Route {
    let VirtualServiceId { source, namespace, name } = rule;
    let text = format!(
        "the routes of {source} {namespace}/{name} for all of its hosts are too many (limit \
         route-configuration-routes)"
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
