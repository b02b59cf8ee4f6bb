//! The virtual host for all hosts without a service.

use super::view::RouteView;
use crate::engine::Cx;
use crate::envoy::PASSTHROUGH;
use crate::scope::{EgressPolicy, OutboundPolicyOf};
use pilotfish_proto::Duration;
use pilotfish_proto::envoy::config::route::v3::route::Action;
use pilotfish_proto::envoy::config::route::v3::route_action::ClusterSpecifier;
use pilotfish_proto::envoy::config::route::v3::route_match::PathSpecifier;
use pilotfish_proto::envoy::config::route::v3::{
    DirectResponseAction, Route, RouteAction, RouteMatch, VirtualHost,
};

/// Forwards or rejects requests, by the outbound traffic policy of the scope.
pub(super) fn virtual_host(cx: &Cx<'_>, view: &RouteView) -> VirtualHost {
    let pass = |cluster: String| {
        Action::Route(RouteAction {
            cluster_specifier: Some(ClusterSpecifier::Cluster(cluster)),
            timeout: Some(Duration::default()),
            max_grpc_timeout: Some(Duration::default()),
            ..Default::default()
        })
    };
    let (name, action) = match &*cx.get(&OutboundPolicyOf(view.facets.scope.clone())) {
        EgressPolicy::AllowAny => ("allow_any", pass(PASSTHROUGH.to_owned())),
        EgressPolicy::Proxy(proxy) => ("allow_any", pass(proxy.cluster(cx, &view.facets.scope))),
        EgressPolicy::RegistryOnly => {
            ("block_all", Action::DirectResponse(DirectResponseAction { status: 502, ..Default::default() }))
        }
    };
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
        include_request_attempt_count: view.attempt_count,
        ..Default::default()
    }
}
