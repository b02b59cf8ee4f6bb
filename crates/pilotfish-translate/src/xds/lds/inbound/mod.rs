//! Listeners for traffic to the proxy's own workload.
//!
//! ```text
//! targets, or the ports of a Sidecar ─▶ Inlet: one per workload port ─▶ matches by mTLS mode and protocol ─▶ filter chains
//! ```
//!
//! Redirected traffic arrives at one listener, whose filter chains tell ports, TLS and protocols apart. Ports that are
//! really bound have a listener each.

mod chains;
mod inlet;
mod inspectors;
mod matches;
mod route;

use super::address;
use super::policies::{Policies, PoliciesOf};
use super::view::InboundView;
use super::virtual_outbound::ACCEPT_AT_ONCE;
use crate::engine::{Cx, Encoded};
use crate::envoy::ListenerClass;
use crate::policy::peer_authentication::{PeerAuthenticationsOf, WorkloadMtls};
use crate::proxy::InterceptionMode;
use inlet::Inlet;
use pilotfish_model::Origin;
use pilotfish_proto::envoy::config::core::v3::TrafficDirection;
use pilotfish_proto::envoy::config::listener::v3::{FilterChain, Listener};
use std::sync::Arc;

const NAME: &str = "virtualInbound";

/// What all inbound filter chains of a proxy are built with.
struct Builder<'a> {
    cx: &'a Cx<'a>,
    view: &'a InboundView,
    mtls: WorkloadMtls,
    policies: Arc<Policies>,
}

/// All inbound listeners of a proxy.
pub(super) fn listeners(cx: &Cx<'_>, view: &InboundView) -> Vec<Encoded> {
    let namespace = cx.get(&PeerAuthenticationsOf(view.base.scope.namespace.clone()));
    let mut provenance = namespace.provenance_of(&view.base.labels);
    let builder = Builder {
        cx,
        view,
        mtls: namespace.workload(&view.base.labels),
        policies: cx.get(&PoliciesOf(view.base.clone(), ListenerClass::Inbound)),
    };
    provenance.extend(builder.policies.provenance.iter().cloned());
    let (bound, redirected): (Vec<_>, Vec<_>) =
        inlet::all(cx, view).into_iter().partition(|inlet| inlet.bind_to_port);
    let mut out = Vec::new();
    if view.base.interception != InterceptionMode::None {
        out.extend(virtual_inbound(&builder, &redirected, &provenance));
    }
    out.extend(bound.iter().map(|inlet| bound_listener(&builder, inlet, &provenance)));
    out
}

/// The listener where redirected traffic arrives.
fn virtual_inbound(builder: &Builder<'_>, inlets: &[Inlet], provenance: &[Origin]) -> Option<Encoded> {
    let port = u32::try_from(builder.cx.mesh().proxy_inbound_listen_port).ok()?;
    let bind = builder.view.base.families.wildcards().first().copied().unwrap_or_default();
    let mut chains = vec![chains::loop_guard(builder, port)];
    for inlet in inlet::passthrough(&builder.mtls, inlets) {
        chains.extend(chains::of(builder, &inlet));
    }
    chains.extend(inlets.iter().flat_map(|inlet| chains::of(builder, inlet)));
    let from = inlets.iter().flat_map(|inlet| inlet.provenance.iter()).chain(provenance);
    let mut listener = listener(builder, NAME, bind, port, chains);
    listener.listener_filters =
        inspectors::of(&listener.filter_chains, builder.view.base.interception, false);
    listener.transparent = (builder.view.base.interception == InterceptionMode::Tproxy).then_some(true);
    Some(Encoded::new(NAME, &listener, from.cloned().collect()))
}

/// A listener that really binds the port of an inlet.
fn bound_listener(builder: &Builder<'_>, inlet: &Inlet, provenance: &[Origin]) -> Encoded {
    let name = address::name(&inlet.bind, inlet.port);
    let mut listener = listener(builder, &name, &inlet.bind, inlet.port, chains::of(builder, inlet));
    listener.listener_filters = inspectors::of(&listener.filter_chains, builder.view.base.interception, true);
    Encoded::new(name, &listener, inlet.provenance.iter().chain(provenance).cloned().collect())
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
