//! The listener where redirected traffic out of a workload arrives, and what happens to traffic that no other listener takes.

use super::address;
use super::outbound::unknown_destination;
use super::policies::{Policies, PoliciesOf};
use super::tcp_proxy::{Stream, To};
use super::view::OutboundView;
use crate::engine::{Cx, Encoded};
use crate::envoy::ListenerClass;
use crate::proxy::InterceptionMode;
use pilotfish_model::Protocol;
use pilotfish_proto::envoy::config::core::v3::TrafficDirection;
use pilotfish_proto::envoy::config::listener::v3::{FilterChain, FilterChainMatch, Listener};

const NAME: &str = "virtualOutbound";

/// Connections that Envoy accepts at once: more would be unfair among its threads.
pub(super) const ACCEPT_AT_ONCE: u32 = 1;

/// The listener; `None` where nothing is redirected.
pub(super) fn listener(cx: &Cx<'_>, view: &OutboundView) -> Option<Encoded> {
    if view.base.interception == InterceptionMode::None {
        return None;
    }
    let port = u32::try_from(cx.mesh().proxy_listen_port).ok()?;
    let policies = cx.get(&PoliciesOf(view.base.clone(), ListenerClass::Outbound));
    let bind = view.base.families.wildcards().first().copied().unwrap_or_default();
    let listener = Listener {
        name: NAME.to_owned(),
        address: Some(address::of(bind, port)),
        transparent: (view.base.interception == InterceptionMode::Tproxy).then_some(true),
        use_original_dst: Some(true),
        filter_chains: vec![loop_guard(port, &policies), catch_all(cx, view, &policies)],
        traffic_direction: TrafficDirection::Outbound.into(),
        max_connections_to_accept_per_socket_event: Some(ACCEPT_AT_ONCE),
        access_log: policies.logs.listener.clone(),
        connection_balance_config: address::exact_balance(view.exact_balance),
        ..Default::default()
    };
    Some(Encoded::new(NAME, &listener, policies.provenance.clone()))
}

/// Traffic to the port itself would go round for ever.
fn loop_guard(port: u32, policies: &Policies) -> FilterChain {
    let stream = Stream {
        to: To::Cluster("BlackHoleCluster".to_owned()),
        stat_prefix: "BlackHoleCluster".to_owned(),
        protocol: Protocol::Tcp,
        idle_timeout: "",
        rule: None,
        subset: "",
        access_log: &[],
    };
    FilterChain {
        name: format!("{NAME}-blackhole"),
        filter_chain_match: Some(FilterChainMatch { destination_port: Some(port), ..Default::default() }),
        filters: policies.tcp_metrics().chain(stream.filters()).collect(),
        ..Default::default()
    }
}

fn catch_all(cx: &Cx<'_>, view: &OutboundView, policies: &Policies) -> FilterChain {
    let cluster = unknown_destination(cx, view);
    let stream = Stream {
        to: To::Cluster(cluster.clone()),
        stat_prefix: cluster,
        protocol: Protocol::Tcp,
        idle_timeout: &view.base.idle_timeout,
        rule: None,
        subset: "",
        access_log: &policies.logs.tcp,
    };
    FilterChain {
        name: format!("{NAME}-catchall-tcp"),
        filters: policies.tcp_metrics().chain(stream.filters()).collect(),
        ..Default::default()
    }
}
