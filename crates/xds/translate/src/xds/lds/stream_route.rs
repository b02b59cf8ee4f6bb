//! Routes of VirtualServices for TCP streams: the TCP proxy to their destinations.

use super::tcp_proxy::{Stream, TcpDestination};
use super::view::ListenerBase;
use crate::engine::Cx;
use crate::envoy::stat_name::{self, Names};
use crate::policy::destination_rule::{MergedDestinationRule, destination_rule_for};
use crate::routing::{VirtualServiceIr, destination_cluster};
use crate::scope::{ServiceIn, cluster_host};
use crate::services::alias;
use pilotfish_config::networking::{Destination, RouteDestination};
use pilotfish_model::{Hostname, Origin, Port, Service};
use pilotfish_proto::envoy::config::accesslog::v3::AccessLog;
use pilotfish_proto::envoy::config::listener::v3::Filter;
use std::sync::Arc;

/// Shared inputs of all routes of one port.
pub(crate) struct StreamRoutes<'a> {
    pub(crate) cx: &'a Cx<'a>,
    pub(crate) base: &'a ListenerBase,
    /// The port that is listened on.
    pub(crate) port: &'a Port,
    /// The proxy's own idle timeout; empty for none.
    pub(crate) idle_timeout: &'a str,
    /// Access logs of the connections.
    pub(crate) access_log: &'a [AccessLog],
}

impl StreamRoutes<'_> {
    /// Returns the network filters of a rule's route, and the objects that they come from.
    pub(crate) fn filters(
        &self,
        rule: &VirtualServiceIr,
        route: &[RouteDestination],
    ) -> (Vec<Filter>, Vec<Origin>) {
        let first = route.first().and_then(|to| to.destination.as_ref());
        let service = first.and_then(|to| self.target(&to.host).1);
        let destination_rule = service.as_ref().and_then(|service| self.rule_of(service));
        let destination = self.destination(route);
        let stat_prefix = match (route, &destination) {
            ([only], TcpDestination::Cluster(cluster)) => self.stat_prefix(only, service.as_deref(), cluster),
            _ => format!("{}.{}", rule.id.name, rule.id.namespace),
        };
        let subset = match (route, first) {
            ([_], Some(to)) => to.subset.as_str(),
            _ => "",
        };
        let stream = Stream {
            destination,
            stat_prefix,
            protocol: self.port.protocol,
            idle_timeout: self.idle_timeout,
            rule: destination_rule.as_deref(),
            subset,
            access_log: self.access_log,
        };
        let rules = destination_rule.iter().flat_map(|rule| rule.provenance.iter());
        (stream.filters(), rules.chain(&rule.provenance).cloned().collect())
    }

    /// The rule for a service.
    pub(crate) fn rule_of(&self, service: &Service) -> Option<Arc<MergedDestinationRule>> {
        let key = service.key();
        destination_rule_for(self.cx, &self.base.scope.namespace, &key, &self.base.labels)
    }

    /// Returns the clusters of a route.
    pub(crate) fn destination(&self, route: &[RouteDestination]) -> TcpDestination {
        let [only] = route else { return TcpDestination::Weighted(self.weighted(route)) };
        let destination = only.destination.clone().unwrap_or_default();
        TcpDestination::Cluster(self.cluster(&destination))
    }

    fn stat_prefix(&self, route: &RouteDestination, service: Option<&Service>, cluster: &str) -> String {
        let (Some(destination), Some(service)) = (&route.destination, service) else {
            return cluster.to_owned();
        };
        let names = Names {
            host: &destination.host,
            service: Some((&service.name, &service.namespace, service.has_short_name)),
            subset: &destination.subset,
            port: self.port.number,
            port_name: &self.port.name,
            target_port: 0,
        };
        let pattern = self.cx.mesh().outbound_cluster_stat_name.clone();
        stat_name::of(&pattern, cluster, &names)
    }

    fn weighted(&self, route: &[RouteDestination]) -> Vec<(String, u32)> {
        let clusters = route.iter().filter_map(|to| {
            let weight = u32::try_from(to.weight).ok().filter(|weight| *weight > 0)?;
            let destination = to.destination.as_ref()?;
            Some((self.cluster(destination), weight))
        });
        clusters.collect()
    }

    fn cluster(&self, to: &Destination) -> String {
        let (host, service) = self.target(&to.host);
        let written = |host: &str| cluster_host(self.cx, &self.base.scope, host);
        destination_cluster(to, (&host, service.as_deref()), self.port.number, written)
    }

    /// Returns the host and the service of a destination's host, which may be an alias.
    fn target(&self, host: &str) -> (Arc<str>, Option<Arc<Service>>) {
        let find =
            |host: &Hostname| Option::clone(&self.cx.get(&ServiceIn(self.base.scope.clone(), host.clone())));
        alias::behind(self.cx, host, find)
    }
}
