//! Unreachable routes: earlier ones match all of their traffic.

use super::Code;
use super::finding::Report;
use pilotfish_config::StringMatch;
use pilotfish_config::networking::{
    HttpMatchRequest, HttpRoute, L4MatchAttributes, TcpRoute, TlsMatchAttributes, TlsRoute, VirtualService,
};
use pilotfish_model::Hostname;
use std::collections::BTreeMap;

/// Reports the unreachable routes of a VirtualService.
pub(super) fn check(report: &mut Report<'_, '_>, object: &VirtualService) {
    find(report, "http", &object.http);
    find(report, "tls", &object.tls);
    find(report, "tcp", &object.tcp);
}

/// A route with conditions, one of which must match; without any, it matches everything.
trait Route {
    type Condition: Condition;

    fn conditions(&self) -> &[Self::Condition];

    /// Returns true if the route handles all requests that match its conditions. A route with a delegate
    /// handles only those that match a route of the delegate.
    fn takes_all(&self) -> bool {
        true
    }
}

trait Condition {
    /// Returns true if this condition matches everything that the other one matches.
    fn covers(&self, other: &Self) -> bool;
    /// Returns true if the condition matches everything.
    fn is_open(&self) -> bool;
}

fn find<R: Route>(report: &mut Report<'_, '_>, list: &str, routes: &[R]) {
    for (index, route) in routes.iter().enumerate() {
        let before = routes.get(..index).unwrap_or_default();
        let conditions = route.conditions();
        if conditions.is_empty() {
            if let Some(taker) = open_one(report, before) {
                unreachable_rule(report, list, index, &taker);
            }
            continue;
        }
        let takers: Vec<_> = conditions.iter().map(|condition| taker(report, before, condition)).collect();
        if let Some(Some(first)) = takers.first()
            && takers.iter().all(Option::is_some)
        {
            unreachable_rule(report, list, index, first);
            continue;
        }
        for (which, taker) in
            takers.iter().enumerate().filter_map(|(which, taker)| Some((which, taker.as_ref()?)))
        {
            let path = format!("spec.{list}[{index}].match[{which}]");
            let message =
                format!("the condition is never met: {} matches all of its traffic", taker.place(list));
            report.add(Code::VirtualServiceIneffectiveMatch, path, message);
        }
    }
}

fn unreachable_rule(report: &mut Report<'_, '_>, list: &str, index: usize, taker: &Taker) {
    let message = format!("the route is never used: {} matches all of its traffic", taker.place(list));
    let hint = Some("put the narrower one first".to_owned());
    report.add_with_hint(Code::VirtualServiceUnreachableRule, format!("spec.{list}[{index}]"), message, hint);
}

/// Route, and condition of it, that handles the traffic of a later route.
struct Taker {
    route: usize,
    /// `None` where the route has no condition.
    condition: Option<usize>,
}

impl Taker {
    fn place(&self, list: &str) -> String {
        match self.condition {
            Some(condition) => format!("spec.{list}[{}].match[{condition}]", self.route),
            None => format!("spec.{list}[{}], which has no condition,", self.route),
        }
    }
}

/// Returns the first route that matches everything.
fn open_one<R: Route>(report: &mut Report<'_, '_>, routes: &[R]) -> Option<Taker> {
    taker_by(report, routes, R::Condition::is_open)
}

/// Returns the first condition that matches everything that another one matches.
fn taker<R: Route>(report: &mut Report<'_, '_>, routes: &[R], condition: &R::Condition) -> Option<Taker> {
    taker_by(report, routes, |before| before.covers(condition))
}

fn taker_by<R: Route>(
    report: &mut Report<'_, '_>,
    routes: &[R],
    takes: impl Fn(&R::Condition) -> bool,
) -> Option<Taker> {
    for (route, before) in routes.iter().enumerate().filter(|(_, route)| route.takes_all()) {
        if before.conditions().is_empty() {
            return Some(Taker { route, condition: None });
        }
        if !report.may_compare(before.conditions().len()) {
            return None;
        }
        if let Some(condition) = before.conditions().iter().position(&takes) {
            return Some(Taker { route, condition: Some(condition) });
        }
    }
    None
}

impl Route for HttpRoute {
    type Condition = HttpMatchRequest;

    fn conditions(&self) -> &[HttpMatchRequest] {
        &self.r#match
    }

    fn takes_all(&self) -> bool {
        self.delegate.is_none()
    }
}

impl Route for TlsRoute {
    type Condition = TlsMatchAttributes;

    fn conditions(&self) -> &[TlsMatchAttributes] {
        &self.r#match
    }
}

impl Route for TcpRoute {
    type Condition = L4MatchAttributes;

    fn conditions(&self) -> &[L4MatchAttributes] {
        &self.r#match
    }
}

impl Condition for HttpMatchRequest {
    fn covers(&self, other: &Self) -> bool {
        path_covers(self, other)
            && text_covers(self.method.as_ref(), other.method.as_ref())
            && text_covers(self.scheme.as_ref(), other.scheme.as_ref())
            && text_covers(self.authority.as_ref(), other.authority.as_ref())
            && texts_cover(&self.headers, &other.headers)
            && texts_cover(&self.query_params, &other.query_params)
            && is_part(&self.without_headers, &other.without_headers)
            && port_covers(self.port, other.port)
            && sources_cover(
                (&self.source_namespace, &self.source_labels, &self.gateways),
                (&other.source_namespace, &other.source_labels, &other.gateways),
            )
    }

    fn is_open(&self) -> bool {
        self.covers(&Self::default())
    }
}

/// Returns true if path `a` covers path `b`: a prefix covers all paths that start with it.
fn path_covers(a: &HttpMatchRequest, b: &HttpMatchRequest) -> bool {
    let takes_all = match &a.uri {
        None | Some(StringMatch::Unset) => true,
        Some(StringMatch::Prefix(prefix)) => prefix == "/",
        Some(StringMatch::Regex(regex)) => regex == ".*",
        Some(StringMatch::Exact(_)) => false,
    };
    // A comparison that ignores case matches more, but the patterns cannot be compared literally.
    takes_all || (a.ignore_uri_case == b.ignore_uri_case && text_covers(a.uri.as_ref(), b.uri.as_ref()))
}

fn text_covers(a: Option<&StringMatch>, b: Option<&StringMatch>) -> bool {
    match (a, b) {
        (None | Some(StringMatch::Unset), _) => true,
        (Some(_), None) => false,
        (Some(StringMatch::Prefix(a)), Some(StringMatch::Exact(b) | StringMatch::Prefix(b))) => {
            b.starts_with(a.as_str())
        }
        (Some(a), Some(b)) => a == b,
    }
}

/// Returns true if every text condition in `a` has one on the same name in `b` that is at least as narrow.
fn texts_cover(a: &BTreeMap<String, StringMatch>, b: &BTreeMap<String, StringMatch>) -> bool {
    let covers = |name: &String, text: &StringMatch| match (text, b.get(name)) {
        // Written as `{}`: whatever the value is.
        (StringMatch::Unset, Some(_)) => true,
        (text, other) => other.is_some() && text_covers(Some(text), other),
    };
    a.iter().all(|(name, text)| covers(name, text))
}

fn is_part<V: PartialEq>(a: &BTreeMap<String, V>, b: &BTreeMap<String, V>) -> bool {
    a.iter().all(|(key, value)| b.get(key) == Some(value))
}

fn port_covers(a: u32, b: u32) -> bool {
    a == 0 || a == b
}

/// Source of a request: namespace, labels, gateways.
type Sources<'a> = (&'a String, &'a BTreeMap<String, String>, &'a Vec<String>);

fn sources_cover(a: Sources<'_>, b: Sources<'_>) -> bool {
    (a.0.is_empty() || a.0 == b.0) && is_part(a.1, b.1) && list_covers(a.2, b.2)
}

/// Compares lists in which one match is enough; an empty one is no condition.
fn list_covers(a: &[String], b: &[String]) -> bool {
    a.is_empty() || (!b.is_empty() && b.iter().all(|one| a.contains(one)))
}

impl Condition for TlsMatchAttributes {
    fn covers(&self, other: &Self) -> bool {
        // Of several chains, Envoy selects the one with the most specific server name, so a chain is
        // unreachable only if an earlier one has the same names.
        let same = |host: &String| self.sni_hosts.iter().any(|own| same_host(own, host));
        other.sni_hosts.iter().all(same)
            && port_covers(self.port, other.port)
            && list_covers(&self.destination_subnets, &other.destination_subnets)
            && sources_cover(
                (&self.source_namespace, &self.source_labels, &self.gateways),
                (&other.source_namespace, &other.source_labels, &other.gateways),
            )
    }

    fn is_open(&self) -> bool {
        false
    }
}

fn same_host(a: &str, b: &str) -> bool {
    matches!((Hostname::parse(a), Hostname::parse(b)), (Ok(a), Ok(b)) if a == b)
}

impl Condition for L4MatchAttributes {
    fn covers(&self, other: &Self) -> bool {
        port_covers(self.port, other.port)
            && (self.source_subnet.is_empty() || self.source_subnet == other.source_subnet)
            && list_covers(&self.destination_subnets, &other.destination_subnets)
            && sources_cover(
                (&self.source_namespace, &self.source_labels, &self.gateways),
                (&other.source_namespace, &other.source_labels, &other.gateways),
            )
    }

    fn is_open(&self) -> bool {
        self.covers(&Self::default())
    }
}
