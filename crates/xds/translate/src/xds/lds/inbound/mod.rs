//! Listeners for traffic to the proxy's own workload.
//!
//! ```text
//! targets, ports of a Sidecar ─▶ Inlet of a workload port ─▶ matches by mTLS mode, protocol ─▶ filter chains
//! ```
//!
//! Redirected traffic arrives at one listener, whose filter chains match ports, TLS and protocols. Ports that
//! are really bound have a listener each.

mod chains;
mod inbound_port;
mod inspectors;
mod matches;
mod route;

use super::budget::ListenerBudget;
use super::http_proxy::ACCEPT_AT_ONCE;
use super::policies::{Policies, PoliciesOf};
use super::view::InboundView;
use super::{address, tcp_proxy};
use crate::engine::{Cx, EncodedResource};
use crate::envoy::TrafficClass;
use crate::policy::peer_authentication::{PeerAuthenticationsOf, WorkloadMtls};
use crate::proxy::InterceptionMode;
use inbound_port::InboundPort;
use pilotfish_model::Origin;
use pilotfish_proto::envoy::config::core::v3::TrafficDirection;
use pilotfish_proto::envoy::config::listener::v3::{FilterChain, Listener};
use std::sync::Arc;

const NAME: &str = "virtualInbound";

/// Shared inputs of all inbound filter chains of a proxy.
struct Builder<'a> {
    cx: &'a Cx<'a>,
    view: &'a InboundView,
    mtls: WorkloadMtls,
    policies: Arc<Policies>,
}

/// All inbound listeners of a proxy.
pub(super) fn listeners(cx: &Cx<'_>, view: &InboundView) -> Vec<EncodedResource> {
    let namespace = cx.get(&PeerAuthenticationsOf(view.base.scope.namespace.clone()));
    let mut provenance = namespace.provenance_of(&view.base.labels);
    let builder = Builder {
        cx,
        view,
        mtls: namespace.workload(&view.base.labels),
        policies: cx.get(&PoliciesOf(view.base.clone(), TrafficClass::Inbound)),
    };
    provenance.extend(builder.policies.provenance.iter().cloned());
    let (bound, redirected): (Vec<_>, Vec<_>) =
        inbound_port::all(cx, view).into_iter().partition(|inbound_port| inbound_port.bind_to_port);
    let mut out = Vec::new();
    if view.base.interception != InterceptionMode::None {
        out.extend(virtual_inbound(&builder, &redirected, &provenance));
    }
    out.extend(bound.iter().map(|inbound_port| bound_listener(&builder, inbound_port, &provenance)));
    out
}

/// The listener where redirected traffic arrives.
fn virtual_inbound(
    builder: &Builder<'_>,
    inbound_ports: &[InboundPort],
    provenance: &[Origin],
) -> Option<EncodedResource> {
    let port = u32::try_from(builder.cx.mesh().proxy_inbound_listen_port).ok()?;
    let bind = builder.view.base.families.wildcards().first().copied().unwrap_or_default();
    let mut chains = vec![chains::loop_guard(builder, port)];
    let mut budget = ListenerBudget::default();
    let passthrough = inbound_port::passthrough(&builder.mtls, inbound_ports);
    for inbound_port in passthrough.iter().chain(inbound_ports) {
        for mut chain in chains::of(builder, inbound_port) {
            if !budget.take(&chain.filters) {
                chain.filters = tcp_proxy::black_hole(&builder.policies.logs.tcp);
            }
            chains.push(chain);
        }
    }
    let from = inbound_ports.iter().flat_map(|inbound_port| inbound_port.provenance.iter()).chain(provenance);
    let mut listener = listener(builder, NAME, bind, port, chains);
    listener.listener_filters =
        inspectors::of(&listener.filter_chains, builder.view.base.interception, false);
    listener.additional_addresses = address::other_redirected(&builder.view.base, port);
    listener.transparent = (builder.view.base.interception == InterceptionMode::Tproxy).then_some(true);
    let mut refused = budget.refused(&builder.policies.provenance);
    refused.extend(builder.policies.refused.iter().cloned());
    Some(EncodedResource::new(NAME, &listener, from.cloned().collect()).without(refused))
}

/// A listener that really binds the port of an inbound port.
fn bound_listener(
    builder: &Builder<'_>,
    inbound_port: &InboundPort,
    provenance: &[Origin],
) -> EncodedResource {
    let name = address::name(&inbound_port.bind, inbound_port.port);
    let mut listener =
        listener(builder, &name, &inbound_port.bind, inbound_port.port, chains::of(builder, inbound_port));
    listener.listener_filters = inspectors::of(&listener.filter_chains, builder.view.base.interception, true);
    EncodedResource::new(name, &listener, inbound_port.provenance.iter().chain(provenance).cloned().collect())
}

fn listener(
    builder: &Builder<'_>,
    name: &str,
    bind: &str,
    port: u32,
    filter_chains: Vec<FilterChain>,
) -> Listener {
    Listener {
        name: name.to_owned(),
        address: Some(address::of(bind, port)),
        filter_chains,
        traffic_direction: TrafficDirection::Inbound.into(),
        listener_filters_timeout: address::detection_timeout(builder.cx),
        continue_on_listener_filters_timeout: true,
        max_connections_to_accept_per_socket_event: Some(ACCEPT_AT_ONCE),
        access_log: builder.policies.logs.listener.clone(),
        connection_balance_config: address::exact_balance(builder.view.exact_balance),
        ..Default::default()
    }
}
