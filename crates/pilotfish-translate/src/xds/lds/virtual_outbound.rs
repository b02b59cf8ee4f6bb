//! The listener for redirected outbound traffic, with the policy for traffic without another listener.

use super::address;
use super::outbound::unknown_destination;
use super::policies::{Policies, PoliciesOf};
use super::tcp_proxy::{Stream, TcpDestination, loop_guard};
use super::view::OutboundView;
use crate::engine::{Cx, EncodedResource};
use crate::envoy::TrafficClass;
use crate::proxy::InterceptionMode;
use pilotfish_model::Protocol;
use pilotfish_proto::envoy::config::core::v3::TrafficDirection;
use pilotfish_proto::envoy::config::listener::v3::{FilterChain, Listener};

const NAME: &str = "virtualOutbound";

/// Connections accepted per socket event: more would distribute them unevenly over Envoy's threads.
pub(super) const ACCEPT_AT_ONCE: u32 = 1;

/// Returns the listener; `None` if no traffic is redirected.
pub(super) fn listener(cx: &Cx<'_>, view: &OutboundView) -> Option<EncodedResource> {
    if view.base.interception == InterceptionMode::None {
        return None;
    }
    let port = u32::try_from(cx.mesh().proxy_listen_port).ok()?;
    let policies = cx.get(&PoliciesOf(view.base.clone(), TrafficClass::Outbound));
    let bind = view.base.families.wildcards().first().copied().unwrap_or_default();
    let listener = Listener {
        name: NAME.to_owned(),
        address: Some(address::of(bind, port)),
        additional_addresses: address::other_redirected(&view.base, port),
        transparent: (view.base.interception == InterceptionMode::Tproxy).then_some(true),
        use_original_dst: Some(true),
        filter_chains: vec![loop_guard(NAME, port, policies.tcp_metrics()), catch_all(cx, view, &policies)],
        traffic_direction: TrafficDirection::Outbound.into(),
        max_connections_to_accept_per_socket_event: Some(ACCEPT_AT_ONCE),
        access_log: policies.logs.listener.clone(),
        connection_balance_config: address::exact_balance(view.exact_balance),
        ..Default::default()
    };
    Some(EncodedResource::new(NAME, &listener, policies.provenance.clone()))
}

fn catch_all(cx: &Cx<'_>, view: &OutboundView, policies: &Policies) -> FilterChain {
    let cluster = unknown_destination(cx, view);
    let stream = Stream {
        destination: TcpDestination::Cluster(cluster.clone()),
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
