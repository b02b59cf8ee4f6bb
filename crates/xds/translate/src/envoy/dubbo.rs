//! Envoy's Dubbo proxy filter, which routes each call by interface, group and version.

use super::filters::network;
use crate::proxy::DUBBO_PROXY;
use pilotfish_model::DubboInterface;
use pilotfish_proto::envoy::config::listener::v3::Filter;
use pilotfish_proto::envoy::config::route::v3::{WeightedCluster, weighted_cluster::ClusterWeight};
use pilotfish_proto::envoy::extensions::filters::network::dubbo_proxy::v3::{
    DubboProxy, MethodMatch, MultipleRouteConfiguration, Route, RouteAction, RouteConfiguration, RouteMatch,
    dubbo_proxy::RouteSpecifier, route_action::ClusterSpecifier,
};
use pilotfish_proto::envoy::r#type::matcher::v3::{
    RegexMatcher, StringMatcher, string_matcher::MatchPattern,
};
use std::sync::Arc;

/// Route for the calls of an interface.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) interface: Arc<DubboInterface>,
    pub(crate) destination: CallDestination,
}

/// Destination of Dubbo calls.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CallDestination {
    Cluster(String),
    /// Clusters with their weights.
    Weighted(Vec<(String, u32)>),
}

/// Returns the filter for these calls. `unknown` is the cluster for calls of other interfaces; without one
/// they get an error.
pub(crate) fn proxy(stat_prefix: &str, mut calls: Vec<Call>, unknown: Option<&str>) -> Filter {
    // The first match is used, and a route without group or version matches every one.
    calls.sort_by_key(|call| {
        let DubboInterface { interface, group, version } = &*call.interface;
        (interface.clone(), group.is_empty(), version.is_empty(), group.clone(), version.clone())
    });
    calls.dedup_by(|later, first| later.interface == first.interface);
    let known = calls.into_iter().map(|call| {
        let DubboInterface { interface, group, version } = &*call.interface;
        configuration(interface, group, version, action(call.destination))
    });
    let rest =
        unknown.map(|cluster| configuration("*", "", "", ClusterSpecifier::Cluster(cluster.to_owned())));
    let routes = MultipleRouteConfiguration {
        name: stat_prefix.to_owned(),
        route_config: known.chain(rest).collect(),
    };
    let config = DubboProxy {
        stat_prefix: stat_prefix.to_owned(),
        route_specifier: Some(RouteSpecifier::MultipleRouteConfig(routes)),
        ..Default::default()
    };
    network(DUBBO_PROXY, &config)
}

fn action(destination: CallDestination) -> ClusterSpecifier {
    match destination {
        CallDestination::Cluster(name) => ClusterSpecifier::Cluster(name),
        CallDestination::Weighted(list) => {
            let weighted =
                |(name, weight)| ClusterWeight { name, weight: Some(weight), ..Default::default() };
            ClusterSpecifier::WeightedClusters(WeightedCluster {
                clusters: list.into_iter().map(weighted).collect(),
                ..Default::default()
            })
        }
    }
}

fn configuration(
    interface: &str,
    group: &str,
    version: &str,
    action: ClusterSpecifier,
) -> RouteConfiguration {
    let every_method = RegexMatcher { regex: ".*".to_owned(), ..Default::default() };
    let name =
        StringMatcher { match_pattern: Some(MatchPattern::SafeRegex(every_method)), ..Default::default() };
    let method = MethodMatch { name: Some(name), ..Default::default() };
    let route = Route {
        r#match: Some(RouteMatch { method: Some(method), ..Default::default() }),
        route: Some(RouteAction { cluster_specifier: Some(action), ..Default::default() }),
    };
    RouteConfiguration {
        name: [interface, group, version].join(":"),
        interface: interface.to_owned(),
        group: group.to_owned(),
        version: version.to_owned(),
        routes: vec![route],
    }
}
