//! Route configurations of gRPC clients without a proxy: named like the cluster of a service port, with the
//! virtual hosts that its host meets. gRPC matches the host with its port, and does not know a catch-all.
//!
//! A client refuses routes as a whole when one of them has something that its library does not know. So that
//! is written in other words where it can be, and otherwise left out.

use super::encode::Host;
use super::fault;
use super::sidecar::{Hosts, virtual_hosts};
use super::view::RouteView;
use crate::engine::{Cx, EncodedResource};
use crate::envoy::{ClusterName, NOWHERE, outbound_name};
use crate::scope::ServiceIn;
use pilotfish_proto::envoy::config::route::v3::route::Action;
use pilotfish_proto::envoy::config::route::v3::route_action::ClusterSpecifier;
use pilotfish_proto::envoy::config::route::v3::route_match::PathSpecifier;
use pilotfish_proto::envoy::config::route::v3::{
    Route, RouteAction, RouteConfiguration, RouteMatch, VirtualHost,
};
use pilotfish_proto::envoy::r#type::matcher::v3::RegexMatcher;
use std::sync::Arc;

/// The route configuration of that name; `None` for a name that is no cluster's.
pub(super) fn route_configuration(view: &RouteView, cx: &Cx<'_>, name: &Arc<str>) -> Option<EncodedResource> {
    let ClusterName { sni_dnat: false, port, host, .. } = ClusterName::parse(name)? else { return None };
    // Only names that listeners have are worth an answer.
    let is_own = **name == *outbound_name(port, "", host.as_str());
    if port == 0 || !is_own || cx.get(&ServiceIn(view.facets.scope.clone(), host.clone())).is_none() {
        return None;
    }
    let Hosts { hosts, provenance, refused } = virtual_hosts(view, cx, port, name);
    let mut hosts: Vec<VirtualHost> = hosts.into_iter().map(Host::into_whole).collect();
    hosts.retain(|own| own.domains.iter().any(|domain| meets(domain, host.as_str(), port)));
    for host in &mut hosts {
        host.routes.retain(can_match);
        host.routes.iter_mut().for_each(|route| adapt(route, port));
    }
    let config = RouteConfiguration { name: name.to_string(), virtual_hosts: hosts, ..Default::default() };
    Some(EncodedResource::new(name.clone(), &config, provenance).without(refused))
}

/// True if a domain of a virtual host, perhaps with a wildcard or a port, is for requests to that host and
/// port.
fn meets(domain: &str, host: &str, port: u32) -> bool {
    let name = match domain.rsplit_once(':') {
        Some((name, own)) if own.parse() == Ok(port) => name,
        _ => domain,
    };
    let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    match name.strip_prefix('*') {
        Some(suffix) => {
            let start = host.len().checked_sub(suffix.len()).filter(|start| *start > 0);
            let end = start.and_then(|start| host.get(start..));
            end.is_some_and(|end| end.eq_ignore_ascii_case(suffix))
        }
        None => name.eq_ignore_ascii_case(host),
    }
}

/// A call has no query. Some libraries ignore these conditions, and would take the route for every call.
fn can_match(route: &Route) -> bool {
    route.r#match.as_ref().is_none_or(|matching| matching.query_parameters.is_empty())
}

fn adapt(route: &mut Route, port: u32) {
    // Cross-origin rules are for browsers; faults are the one filter that clients have.
    route.typed_per_filter_config.retain(|filter, _| filter == fault::FILTER);
    // There are no redirects and no answers without a server: such a call fails. Node's library refuses all
    // other actions or fails as a whole.
    if matches!(route.action, Some(Action::Redirect(_) | Action::DirectResponse(_))) {
        let cluster = ClusterSpecifier::Cluster(outbound_name(port, "", NOWHERE));
        route.action =
            Some(Action::Route(RouteAction { cluster_specifier: Some(cluster), ..RouteAction::default() }));
    }
    if let Some(matching) = &mut route.r#match {
        write_out_segments(matching);
    }
}

/// A prefix of whole path segments, as a regular expression.
fn write_out_segments(matching: &mut RouteMatch) {
    if let Some(PathSpecifier::PathSeparatedPrefix(prefix)) = &matching.path_specifier {
        let case = if matching.case_sensitive == Some(false) { "(?i)" } else { "" };
        let regex = format!("{case}{}(/.*)?", regex::escape(prefix));
        matching.path_specifier =
            Some(PathSpecifier::SafeRegex(RegexMatcher { regex, ..RegexMatcher::default() }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_proto::envoy::config::route::v3::{
        DirectResponseAction, QueryParameterMatcher, RedirectAction,
    };

    #[test]
    fn what_grpc_does_not_know_is_written_in_other_words_or_left_out() {
        let actions = [
            Action::Redirect(RedirectAction::default()),
            Action::DirectResponse(DirectResponseAction::default()),
        ];
        for action in actions {
            let mut route = Route { action: Some(action), ..Route::default() };
            for filter in [fault::FILTER, super::super::cors::FILTER] {
                route.typed_per_filter_config.insert(filter.to_owned(), Default::default());
            }
            adapt(&mut route, 80);
            let Some(Action::Route(to)) = route.action else { panic!("it goes nowhere: {route:?}") };
            assert_eq!(
                to.cluster_specifier,
                Some(ClusterSpecifier::Cluster("outbound|80||nowhere.invalid".to_owned()))
            );
            assert_eq!(route.typed_per_filter_config.keys().collect::<Vec<_>>(), [fault::FILTER]);
        }
    }

    /// Rule 9 of Istio 1.31.
    #[test]
    fn virtual_hosts_are_those_of_the_asked_host() {
        for (domain, host, expected) in [
            ("echo.rpc", "echo.rpc", true),
            ("Echo.rpc:70", "echo.RPC", true),
            ("echo.rpc:71", "echo.rpc", false),
            ("other.rpc", "echo.rpc", false),
            ("*.rpc", "echo.rpc", true),
            ("*.rpc:70", "echo.rpc", true),
            ("*.rpc:71", "echo.rpc", false),
            ("*", "echo.rpc", true),
            ("*.rpc", ".rpc", false),
            ("[2001:db8::1]:70", "2001:db8::1", true),
            ("[2001:db8::1]", "2001:db8::1", true),
        ] {
            assert_eq!(meets(domain, host, 70), expected, "{domain} {host}");
        }
    }

    #[test]
    fn a_prefix_of_segments_is_a_regular_expression() {
        for (sensitive, regex) in [(None, r"/a\.b(/.*)?"), (Some(false), r"(?i)/a\.b(/.*)?")] {
            let mut matching = RouteMatch {
                path_specifier: Some(PathSpecifier::PathSeparatedPrefix("/a.b".to_owned())),
                case_sensitive: sensitive,
                ..RouteMatch::default()
            };
            write_out_segments(&mut matching);
            let expected = RegexMatcher { regex: regex.to_owned(), ..RegexMatcher::default() };
            assert_eq!(matching.path_specifier, Some(PathSpecifier::SafeRegex(expected)));
        }
    }

    #[test]
    fn a_condition_on_the_query_never_holds() {
        let mut matching = RouteMatch::default();
        assert!(can_match(&Route { r#match: Some(matching.clone()), ..Route::default() }));
        matching.query_parameters.push(QueryParameterMatcher::default());
        assert!(!can_match(&Route { r#match: Some(matching), ..Route::default() }));
    }
}
