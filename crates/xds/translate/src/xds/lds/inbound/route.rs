//! The route of an inbound port, which sends everything to its cluster.

use super::inbound_port::InboundPort;
use crate::xds::rds::retry;
use hcm::http_connection_manager::RouteSpecifier;
use pilotfish_config::networking::HttpRetry;
use pilotfish_proto::Duration;
use pilotfish_proto::envoy::config::route::v3::route::Action;
use pilotfish_proto::envoy::config::route::v3::route_action::{ClusterSpecifier, MaxStreamDuration};
use pilotfish_proto::envoy::config::route::v3::route_match::PathSpecifier;
use pilotfish_proto::envoy::config::route::v3::{
    Decorator, RetryPolicy, Route, RouteAction, RouteConfiguration, RouteMatch, VirtualHost,
};
use pilotfish_proto::envoy::extensions::filters::network::http_connection_manager::v3 as hcm;

/// The routes of an inbound port. gRPC clients retry themselves.
pub(super) fn of(inbound_port: &InboundPort, retries: Option<&HttpRetry>) -> RouteSpecifier {
    let retries = if inbound_port.protocol.is_grpc() { None } else { retry::inbound(retries) };
    let host = VirtualHost {
        name: format!("inbound|http|{}", inbound_port.service_port),
        domains: vec!["*".to_owned()],
        routes: vec![route(inbound_port, retries)],
        ..Default::default()
    };
    RouteSpecifier::RouteConfig(RouteConfiguration {
        name: inbound_port.cluster.clone(),
        virtual_hosts: vec![host],
        validate_clusters: Some(false),
        ..Default::default()
    })
}

fn route(inbound_port: &InboundPort, retry_policy: Option<RetryPolicy>) -> Route {
    let action = RouteAction {
        cluster_specifier: Some(ClusterSpecifier::Cluster(inbound_port.cluster.clone())),
        timeout: Some(Duration::default()),
        max_stream_duration: Some(MaxStreamDuration {
            max_stream_duration: Some(Duration::default()),
            grpc_timeout_header_max: Some(Duration::default()),
            ..Default::default()
        }),
        retry_policy,
        ..Default::default()
    };
    Route {
        name: "default".to_owned(),
        r#match: Some(RouteMatch {
            path_specifier: Some(PathSpecifier::Prefix("/".to_owned())),
            ..Default::default()
        }),
        decorator: Some(Decorator {
            operation: format!("{}:{}/*", inbound_port.host, inbound_port.service_port),
            ..Default::default()
        }),
        action: Some(Action::Route(action)),
        ..Default::default()
    }
}
