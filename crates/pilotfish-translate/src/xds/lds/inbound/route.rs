//! The one route of an inlet: everything goes to its cluster.

use super::inlet::Inlet;
use pilotfish_model::Protocol;
use pilotfish_proto::Duration;
use pilotfish_proto::envoy::config::route::v3::route::Action;
use pilotfish_proto::envoy::config::route::v3::route_action::{ClusterSpecifier, MaxStreamDuration};
use pilotfish_proto::envoy::config::route::v3::route_match::PathSpecifier;
use pilotfish_proto::envoy::config::route::v3::{
    Decorator, RetryPolicy, Route, RouteAction, RouteConfiguration, RouteMatch, VirtualHost,
};
use pilotfish_proto::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;

/// The routes of an inlet.
pub(super) fn of(inlet: &Inlet) -> RouteSpecifier {
    let host = VirtualHost {
        name: format!("inbound|http|{}", inlet.service_port),
        domains: vec!["*".to_owned()],
        routes: vec![route(inlet)],
        ..Default::default()
    };
    RouteSpecifier::RouteConfig(RouteConfiguration {
        name: inlet.cluster.clone(),
        virtual_hosts: vec![host],
        validate_clusters: Some(false),
        ..Default::default()
    })
}

fn route(inlet: &Inlet) -> Route {
    let action = RouteAction {
        cluster_specifier: Some(ClusterSpecifier::Cluster(inlet.cluster.clone())),
        timeout: Some(Duration::default()),
        max_stream_duration: Some(MaxStreamDuration {
            max_stream_duration: Some(Duration::default()),
            grpc_timeout_header_max: Some(Duration::default()),
            ..Default::default()
        }),
        retry_policy: retries(inlet.protocol),
        ..Default::default()
    };
    Route {
        name: "default".to_owned(),
        r#match: Some(RouteMatch {
            path_specifier: Some(PathSpecifier::Prefix("/".to_owned())),
            ..Default::default()
        }),
        decorator: Some(Decorator {
            operation: format!("{}:{}/*", inlet.host, inlet.service_port),
            ..Default::default()
        }),
        action: Some(Action::Route(action)),
        ..Default::default()
    }
}

/// A workload may close a connection just when a request is sent. gRPC clients try again themselves.
fn retries(protocol: Protocol) -> Option<RetryPolicy> {
    (!protocol.is_grpc()).then(|| RetryPolicy {
        retry_on: "reset-before-request".to_owned(),
        num_retries: Some(2),
        ..Default::default()
    })
}
