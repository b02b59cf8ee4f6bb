//! Redirects that lead back to themselves.

use super::Code;
use super::clients::Clients;
use super::finding::{Report, listed};
use crate::routing::gateway_api::partial_loops;
use crate::routing::redirect_loop::{Arrival, Redirection};
use crate::routing::{HttpRule, RouteDialect, VirtualServiceHeader};
use pilotfish_config::StringMatch;
use pilotfish_config::networking::{HttpMatchRequest, HttpRoute, VirtualService};
use pilotfish_model::Typed;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Comparisons that a regular expression counts as.
const REGEX_COMPARISONS: usize = 1_000;

/// Reports redirects of an HTTPRoute that lead back to themselves at some listeners. The route's status
/// reports redirects that do so at all listeners.
pub(super) fn check_http_route(report: &mut Report<'_, '_>) {
    for (position, places) in partial_loops(report.cx, report.key()) {
        let path = format!("spec.rules[{position}].filters");
        let message = format!("the redirect leads back to itself at {}", listed(places));
        let hint = Some("attach the route to the other listeners by sectionName".to_owned());
        report.add_with_hint(Code::RedirectLoop, path, message, hint);
    }
}

/// Reports redirects of a VirtualService that lead back to themselves.
pub(super) fn check(
    report: &mut Report<'_, '_>,
    object: &Typed<VirtualService>,
    header: &VirtualServiceHeader,
    clients: &Clients,
) {
    let mut earlier: Vec<&HttpMatchRequest> = Vec::new();
    for (index, route) in object.http.iter().enumerate() {
        Redirects { header, clients, earlier: &earlier }.check(report, index, route);
        if route.r#match.is_empty() && route.delegate.is_none() {
            break;
        }
        earlier.extend(&route.r#match);
    }
}

/// Reports redirects of a delegate that lead back to themselves under a route of a VirtualService.
pub(super) fn check_delegated(
    report: &mut Report<'_, '_>,
    object: &Typed<VirtualService>,
    (root, position): (&VirtualService, usize),
    header: &VirtualServiceHeader,
    clients: &Clients,
) {
    let Some(route) = root.http.get(position) else { return };
    let before = root.http.iter().take(position);
    let mut earlier: Vec<&HttpMatchRequest> = before.flat_map(|route| &route.r#match).collect();
    let route = Arc::new(route.clone());
    for (index, leaf) in object.http.iter().enumerate() {
        let conditions = route.r#match.len().saturating_mul(leaf.r#match.len());
        if leaf.redirect.is_some() && report.may_compare(conditions) {
            let merged = HttpRule::delegated(&route, Arc::new(leaf.clone()));
            if let Some((merged, _)) = merged {
                Redirects { header, clients, earlier: &earlier }.check(report, index, &merged.whole());
            }
        }
        if leaf.r#match.is_empty() {
            break;
        }
        earlier.extend(&leaf.r#match);
    }
}

/// A VirtualService with redirects.
struct Redirects<'a> {
    header: &'a VirtualServiceHeader,
    clients: &'a Clients,
    /// Conditions of earlier routes.
    earlier: &'a [&'a HttpMatchRequest],
}

impl Redirects<'_> {
    fn check(&self, report: &mut Report<'_, '_>, index: usize, route: &HttpRoute) {
        let Some(to) = &route.redirect else { return };
        let any = [HttpMatchRequest::default()];
        let requests = if route.r#match.is_empty() { &any } else { route.r#match.as_slice() };
        let (mut looping, mut others) = (BTreeSet::new(), false);
        for request in requests {
            let is_regex = matches!(request.uri, Some(StringMatch::Regex(_)));
            let cost = if is_regex { REGEX_COMPARISONS } else { 1 };
            if !report.may_compare(self.earlier.len().saturating_add(cost)) {
                return;
            }
            let of = Redirection { dialect: RouteDialect::VirtualService, route, to, request };
            let Some(path) = of.returning() else {
                others = true;
                continue;
            };
            if self.earlier.iter().any(|earlier| of.may_take(earlier, path)) {
                others = true;
                continue;
            }
            for (arrival, is_own) in self.arrivals(report, &of) {
                match is_own && of.keeps_address(arrival) {
                    true => _ = looping.insert(arrival),
                    false => others = true,
                }
            }
        }
        self.tell(report, index, &looping, others);
    }

    /// Returns the addresses on which the requests arrive, and whether they are for the host that they are
    /// redirected to.
    fn arrivals(&self, report: &mut Report<'_, '_>, of: &Redirection<'_>) -> BTreeSet<(Arrival, bool)> {
        let own = &self.header.id.namespace;
        let host = of.host().map(|host| report.cx.domain().qualify(host, own).to_ascii_lowercase());
        let mut out = BTreeSet::new();
        let clients = self.clients.list.iter().filter(|client| client.fits(of.request, own));
        for client in clients {
            for (served, ports) in self.header.hosts.iter().zip(&client.by_host) {
                if !report.may_compare(ports.http.len().max(1)) {
                    return out;
                }
                let is_own = host.as_ref().is_none_or(|host| *host == *served.to_string());
                let all =
                    ports.http.iter().map(|port| Arrival { port: *port, tls: ports.https.contains(port) });
                out.extend(all.filter(|at| at.fits(of.request)).map(|at| (at, is_own)));
            }
        }
        out
    }

    fn tell(&self, report: &mut Report<'_, '_>, index: usize, looping: &BTreeSet<Arrival>, others: bool) {
        if looping.is_empty() {
            return;
        }
        let at = listed(
            looping.iter().map(|at| format!("{} ({})", at.port, if at.tls { "https" } else { "http" })),
        );
        let path = format!("spec.http[{index}].redirect");
        let (message, hint) = match others {
            false => ("the redirect leads back to itself, so clients give up".to_owned(), None),
            true => (
                format!("the redirect leads back to itself for requests on port {at}, so clients give up"),
                Some("match the port, scheme or authority that it is for".to_owned()),
            ),
        };
        report.add_with_hint(Code::RedirectLoop, path, message, hint);
    }
}
