//! The listener for redirected outbound traffic, with the policy for traffic without another listener.

use super::address;
use super::connection_manager::Manager;
use super::http_proxy::ACCEPT_AT_ONCE;
use super::outbound::unknown_destination;
use super::policies::{Policies, PoliciesOf};
use super::tcp_proxy::{Stream, TcpDestination, loop_guard};
use super::view::OutboundView;
use crate::engine::{Cx, EncodedResource};
use crate::envoy::{TrafficClass, filters};
use crate::proxy::InterceptionMode;
use crate::proxy::proxy_config::EffectiveProxyConfig;
use crate::xds::rds::of_unknown_addresses;
use hcm::http_connection_manager::RouteSpecifier;
use pilotfish_model::Protocol;
use pilotfish_proto::envoy::config::core::v3::TrafficDirection;
use pilotfish_proto::envoy::config::listener::v3::{FilterChain, FilterChainMatch, Listener};
use pilotfish_proto::envoy::extensions::filters::network::http_connection_manager::v3 as hcm;

const NAME: &str = "virtualOutbound";

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
        filter_chains: [Some(loop_guard(NAME, port, policies.tcp_metrics()))]
            .into_iter()
            .chain([requests(cx, view, &policies), Some(catch_all(cx, view, &policies))])
            .flatten()
            .collect(),
        listener_filters: view.base.unknown_hosts.iter().map(|_| filters::http_inspector()).collect(),
        traffic_direction: TrafficDirection::Outbound.into(),
        max_connections_to_accept_per_socket_event: Some(ACCEPT_AT_ONCE),
        access_log: policies.logs.listener.clone(),
        connection_balance_config: address::exact_balance(view.exact_balance),
        ..Default::default()
    };
    Some(EncodedResource::new(NAME, &listener, policies.provenance.clone()))
}

/// The chain for plain HTTP, if the hosts of requests are looked up.
fn requests(cx: &Cx<'_>, view: &OutboundView, policies: &Policies) -> Option<FilterChain> {
    view.base.unknown_hosts.as_ref()?;
    let config = cx.get(&EffectiveProxyConfig(view.base.proxy_config.clone()));
    let headers = config.proxy_headers.as_ref();
    let counts_attempts = headers.and_then(|headers| headers.attempt_count.as_ref()?.disabled) != Some(true);
    let manager = Manager {
        base: &view.base,
        class: TrafficClass::Outbound,
        stat_prefix: format!("outbound_{NAME}_allow_any_dynamic_dns;"),
        routes: RouteSpecifier::RouteConfig(of_unknown_addresses(counts_attempts)),
        protocol: Protocol::Http,
        http1: None,
        port: 0,
        hosts: None,
        policies,
    };
    let protocols: &[&str] =
        if view.base.http10 { &filters::PLAINTEXT_HTTP10 } else { &filters::PLAINTEXT_HTTP };
    Some(FilterChain {
        name: format!("{NAME}-catchall-tcp-http"),
        filter_chain_match: Some(FilterChainMatch {
            application_protocols: protocols.iter().map(|name| (*name).to_owned()).collect(),
            ..Default::default()
        }),
        filters: policies.before_http(0).into_iter().chain([manager.filter(cx)]).collect(),
        ..Default::default()
    })
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
