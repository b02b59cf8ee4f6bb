//! The virtual host for all hosts without a service.

use super::view::RouteView;
use crate::engine::Cx;
use crate::envoy::{ALLOW_ANY_DYNAMIC_DNS, PASSTHROUGH};
use crate::scope::{EgressPolicy, OutboundPolicyOf};
use pilotfish_proto::Duration;
use pilotfish_proto::envoy::config::route::v3::route::Action;
use pilotfish_proto::envoy::config::route::v3::route_action::ClusterSpecifier;
use pilotfish_proto::envoy::config::route::v3::route_match::PathSpecifier;
use pilotfish_proto::envoy::config::route::v3::{
    DirectResponseAction, Route, RouteAction, RouteConfiguration, RouteMatch, VirtualHost,
};

/// Name of the virtual host and of its route if requests pass to their original address.
const ALLOW_ANY: &str = "allow_any";
/// Name of the virtual host and of its route if the hosts of requests are looked up.
const LOOKED_UP: &str = "allow_any_dynamic_dns";

/// Forwards or rejects requests, by the outbound traffic policy of the scope.
pub(super) fn virtual_host(cx: &Cx<'_>, view: &RouteView) -> VirtualHost {
    let scope = &view.facets.scope;
    let (name, action) = match &*cx.get(&OutboundPolicyOf(scope.clone())) {
        EgressPolicy::AllowAny => (ALLOW_ANY, pass(PASSTHROUGH.to_owned())),
        EgressPolicy::AllowAnyDynamicDns => return looked_up(view.attempt_count),
        EgressPolicy::Proxy(proxy) => (ALLOW_ANY, pass(proxy.cluster(cx, scope))),
        EgressPolicy::RegistryOnly => {
            ("block_all", Action::DirectResponse(DirectResponseAction { status: 502, ..Default::default() }))
        }
    };
    all_hosts(name, action, view.attempt_count)
}

/// Configuration of the routes for requests at addresses without a listener, whose hosts are looked up.
pub(crate) fn of_unknown_addresses(attempt_count: bool) -> RouteConfiguration {
    super::with_common_settings(RouteConfiguration {
        name: LOOKED_UP.to_owned(),
        virtual_hosts: vec![looked_up(attempt_count)],
        ignore_port_in_host_matching: true,
        ..Default::default()
    })
}

/// Forwards requests to the hosts that they name.
fn looked_up(attempt_count: bool) -> VirtualHost {
    all_hosts(LOOKED_UP, pass(ALLOW_ANY_DYNAMIC_DNS.to_owned()), attempt_count)
}

fn pass(cluster: String) -> Action {
    Action::Route(RouteAction {
        cluster_specifier: Some(ClusterSpecifier::Cluster(cluster)),
        timeout: Some(Duration::default()),
        max_grpc_timeout: Some(Duration::default()),
        ..Default::default()
    })
}

fn all_hosts(name: &str, action: Action, attempt_count: bool) -> VirtualHost {
    VirtualHost {
        name: name.to_owned(),
        domains: vec!["*".to_owned()],
        routes: vec![Route {
            name: name.to_owned(),
            r#match: Some(RouteMatch {
                path_specifier: Some(PathSpecifier::Prefix("/".to_owned())),
                ..Default::default()
            }),
            action: Some(action),
            ..Default::default()
        }],
        include_request_attempt_count: attempt_count,
        ..Default::default()
    }
}
