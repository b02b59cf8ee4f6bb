//! The TCP proxy filter: destination and timeouts of a TCP stream.

use crate::envoy::dubbo::CallDestination;
use crate::envoy::{BLACK_HOLE, duration, filters};
use crate::policy::destination_rule::MergedDestinationRule;
use pilotfish_config::Duration as Written;
use pilotfish_model::Protocol;
use pilotfish_proto::Duration;
use pilotfish_proto::envoy::config::accesslog::v3::AccessLog;
use pilotfish_proto::envoy::config::listener::v3::{Filter, FilterChain, FilterChainMatch};
use pilotfish_proto::envoy::extensions::filters::network::tcp_proxy::v3::TcpProxy;
use pilotfish_proto::envoy::extensions::filters::network::tcp_proxy::v3::tcp_proxy::{
    ClusterSpecifier, TunnelingConfig, WeightedCluster, weighted_cluster::ClusterWeight,
};
use pilotfish_proto::envoy::r#type::v3::{HashPolicy, hash_policy};
use std::net::Ipv6Addr;

/// Destination of a TCP stream.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TcpDestination {
    Cluster(String),
    Weighted(Vec<(String, u32)>),
}

impl From<TcpDestination> for CallDestination {
    fn from(destination: TcpDestination) -> Self {
        match destination {
            TcpDestination::Cluster(name) => Self::Cluster(name),
            TcpDestination::Weighted(list) => Self::Weighted(list),
        }
    }
}

/// Settings of a TCP stream.
#[derive(Clone, Debug)]
pub(crate) struct Stream<'a> {
    pub(crate) destination: TcpDestination,
    /// The prefix of its statistics.
    pub(crate) stat_prefix: String,
    /// The protocol of the port.
    pub(crate) protocol: Protocol,
    /// The proxy's own idle timeout, as Go writes durations; empty for none.
    pub(crate) idle_timeout: &'a str,
    /// The rule of the destination.
    pub(crate) rule: Option<&'a MergedDestinationRule>,
    /// The subset of the destination.
    pub(crate) subset: &'a str,
    /// Access logs of the stream.
    pub(crate) access_log: &'a [AccessLog],
}

/// Parses a duration in proxy metadata, in Go's syntax. Returns `None` if it is empty or invalid.
pub(crate) fn written_duration(text: &str) -> Option<Duration> {
    Written::parse(text).ok().map(duration)
}

impl Stream<'_> {
    /// The network filters, the TCP proxy last.
    pub(crate) fn filters(&self) -> Vec<Filter> {
        let protocol = filters::of_stream_protocol(self.protocol, &self.stat_prefix);
        let proxy = filters::network("envoy.filters.network.tcp_proxy", &self.proxy());
        protocol.into_iter().chain([proxy]).collect()
    }

    fn proxy(&self) -> TcpProxy {
        let mut proxy = TcpProxy {
            stat_prefix: self.stat_prefix.clone(),
            cluster_specifier: Some(cluster_specifier(&self.destination)),
            idle_timeout: written_duration(self.idle_timeout),
            access_log: self.access_log.to_vec(),
            ..Default::default()
        };
        if let Some(rule) = self.rule {
            apply(rule, self.subset, &mut proxy);
        }
        proxy
    }
}

fn cluster_specifier(destination: &TcpDestination) -> ClusterSpecifier {
    match destination {
        TcpDestination::Cluster(name) => ClusterSpecifier::Cluster(name.clone()),
        TcpDestination::Weighted(list) => {
            let weighted = |(name, weight): &(String, u32)| ClusterWeight {
                name: name.clone(),
                weight: *weight,
                ..Default::default()
            };
            ClusterSpecifier::WeightedClusters(WeightedCluster {
                clusters: list.iter().map(weighted).collect(),
            })
        }
    }
}

/// Applies the settings of a DestinationRule for TCP: timeouts from the host's policy, and also hashing and
/// tunnels from the subset's.
fn apply(rule: &MergedDestinationRule, subset: &str, proxy: &mut TcpProxy) {
    let host = rule.policy.as_ref();
    let own = rule.subset(subset).and_then(|subset| subset.traffic_policy.as_ref());
    if let Some(pool) = host.and_then(|policy| policy.connection_pool.as_ref()?.tcp.as_ref()) {
        proxy.idle_timeout = pool.idle_timeout.map(duration).or(proxy.idle_timeout);
        proxy.max_downstream_connection_duration = pool.max_connection_duration.map(duration);
    }
    let balancer = |policy: Option<&pilotfish_config::networking::TrafficPolicy>| {
        policy?.load_balancer.as_ref().map(|balancer| {
            balancer.consistent_hash.as_ref().is_some_and(|hash| hash.use_source_ip == Some(true))
        })
    };
    if balancer(own).or_else(|| balancer(host)).unwrap_or(false) {
        let source = hash_policy::PolicySpecifier::SourceIp(hash_policy::SourceIp {});
        proxy.hash_policy = vec![HashPolicy { policy_specifier: Some(source) }];
    }
    let tunnel = own.and_then(|policy| policy.tunnel.as_ref());
    if let Some(tunnel) = tunnel.or_else(|| host.and_then(|policy| policy.tunnel.as_ref())) {
        proxy.tunneling_config = Some(TunnelingConfig {
            hostname: authority(&tunnel.target_host, tunnel.target_port),
            use_post: tunnel.protocol == "POST",
            ..Default::default()
        });
    }
}

fn authority(host: &str, port: u32) -> String {
    if host.parse::<Ipv6Addr>().is_ok() { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// The network filters that close every connection: they send it to a cluster without endpoints.
pub(crate) fn black_hole(access_log: &[AccessLog]) -> Vec<Filter> {
    let stream = Stream {
        destination: TcpDestination::Cluster(BLACK_HOLE.to_owned()),
        stat_prefix: BLACK_HOLE.to_owned(),
        protocol: Protocol::Tcp,
        idle_timeout: "",
        rule: None,
        subset: "",
        access_log,
    };
    stream.filters()
}

/// Returns the filter chain for traffic to the port of a virtual listener itself, which would loop: it leads
/// to a cluster without endpoints. `before` are the filters in front of the TCP proxy.
pub(crate) fn loop_guard(listener: &str, port: u32, before: impl Iterator<Item = Filter>) -> FilterChain {
    FilterChain {
        name: format!("{listener}-blackhole"),
        filter_chain_match: Some(FilterChainMatch { destination_port: Some(port), ..Default::default() }),
        filters: before.chain(black_hole(&[])).collect(),
        ..Default::default()
    }
}
