//! The listener of the explicit HTTP proxy (`proxyHttpPort`), for workloads that are configured to use one.

use super::address;
use super::connection_manager::{Manager, by_name};
use super::policies::PoliciesOf;
use super::view::OutboundView;
use crate::engine::{Cx, EncodedResource};
use crate::envoy::TrafficClass;
use pilotfish_model::Protocol;
use pilotfish_proto::Duration;
use pilotfish_proto::envoy::config::core::v3::{Http1ProtocolOptions, TrafficDirection};
use pilotfish_proto::envoy::config::listener::v3::{AdditionalAddress, FilterChain, Listener};

/// Connections accepted per socket event: more would distribute them unevenly over Envoy's threads.
pub(in crate::xds::lds) const ACCEPT_AT_ONCE: u32 = 1;

/// The name of its routes.
const ROUTES: &str = "http_proxy";

/// The listener; `None` when there is no such port.
pub(super) fn listener(cx: &Cx<'_>, view: &OutboundView) -> Option<EncodedResource> {
    let port = match view.http_proxy_port {
        0 => u32::try_from(cx.mesh().proxy_http_port).ok().filter(|port| *port > 0)?,
        own => own,
    };
    let loopbacks = view.base.families.loopbacks();
    let bind = loopbacks.first().copied()?;
    let name = address::name(bind, port);
    let policies = cx.get(&PoliciesOf(view.base.clone(), TrafficClass::Outbound));
    let manager = Manager {
        base: &view.base,
        class: TrafficClass::Outbound,
        stat_prefix: format!("outbound_{bind}_{port};"),
        routes: by_name(ROUTES),
        protocol: Protocol::HttpProxy,
        http1: Some(Http1ProtocolOptions { allow_absolute_url: Some(true), ..Default::default() }),
        port,
        hosts: None,
        policies: &policies,
    };
    let more = loopbacks
        .iter()
        .skip(1)
        .map(|bind| AdditionalAddress { address: Some(address::of(bind, port)), ..Default::default() });
    let listener = Listener {
        name: name.clone(),
        address: Some(address::of(bind, port)),
        additional_addresses: more.collect(),
        filter_chains: vec![FilterChain {
            filters: policies.before_http(port).into_iter().chain([manager.filter(cx)]).collect(),
            ..Default::default()
        }],
        traffic_direction: TrafficDirection::Outbound.into(),
        listener_filters_timeout: Some(Duration::default()),
        continue_on_listener_filters_timeout: true,
        max_connections_to_accept_per_socket_event: Some(ACCEPT_AT_ONCE),
        ..Default::default()
    };
    Some(EncodedResource::new(name, &listener, policies.provenance.clone()))
}
