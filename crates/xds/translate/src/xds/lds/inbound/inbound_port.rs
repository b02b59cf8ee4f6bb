//! Inbound ports: the ports of a workload that get filter chains of their own, and the rest.

use crate::engine::{Cx, reference};
use crate::envoy::{INBOUND_PASSTHROUGH, inbound_name, metadata};
use crate::policy::peer_authentication::WorkloadMtls;
use crate::proxy::InterceptionMode;
use crate::proxy::targets::Target;
use crate::xds::lds::view::{InboundView, ingress_of};
use pilotfish_config::networking::{CaptureMode, IstioIngressListener, Sidecar};
use pilotfish_model::{Namespace, Origin, Protocol, Typed};
use pilotfish_proto::envoy::config::core::v3::Metadata;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One port of a workload, or all that have no inbound port of their own (port 0).
#[derive(Clone, Debug)]
pub(super) struct InboundPort {
    /// The port of the workload; 0 for all others.
    pub(super) port: u32,
    /// The port that clients know.
    pub(super) service_port: u32,
    /// The name of that port.
    pub(super) port_name: Arc<str>,
    pub(super) protocol: Protocol,
    /// The host in traces and statistics; empty for none.
    pub(super) host: Arc<str>,
    /// The service's short name, namespace and registry.
    pub(super) service: Option<(Arc<str>, Namespace, bool)>,
    pub(super) cluster: String,
    /// The address in the chain's name, and what is bound.
    pub(super) bind: Arc<str>,
    /// True if the listener binds the port itself.
    pub(super) bind_to_port: bool,
    /// True if it takes connections to ports without an inbound port.
    pub(super) passthrough: bool,
    /// The Sidecar that it comes from.
    pub(super) metadata: Option<Metadata>,
    /// Objects that it comes from.
    pub(super) provenance: Vec<Origin>,
}

/// The inbound ports of a proxy by port: of its Sidecar where that declares any, else of the services that
/// lead to it.
pub(super) fn all(cx: &Cx<'_>, view: &InboundView) -> Vec<InboundPort> {
    let mut by_port: BTreeMap<u32, InboundPort> = BTreeMap::new();
    match ingress_of(cx, &view.base.scope) {
        Some(sidecar) => {
            for ingress in &sidecar.ingress {
                if let Some(inbound_port) = of_ingress(view, &sidecar, ingress) {
                    by_port.entry(inbound_port.port).or_insert(inbound_port);
                }
            }
        }
        // Bound ports would collide with those of the workload itself.
        None if view.base.interception == InterceptionMode::None => {}
        None => {
            // A port that is unknown (0) has a cluster and no chain.
            let known = view.targets.iter().filter(|target| target.target_port != 0);
            for target in known.filter(|target| !is_reserved(cx, view, target.target_port)) {
                by_port.entry(target.target_port).or_insert_with(|| of_target(view, target));
            }
        }
    }
    by_port.into_values().collect()
}

/// Ports of the proxy itself.
fn is_reserved(cx: &Cx<'_>, view: &InboundView, port: u32) -> bool {
    let mesh = cx.mesh();
    let own = [mesh.proxy_listen_port, mesh.proxy_inbound_listen_port];
    view.reserved.contains(&port) || own.iter().any(|own| u32::try_from(*own) == Ok(port))
}

fn of_target(view: &InboundView, target: &Target) -> InboundPort {
    InboundPort {
        port: target.target_port,
        service_port: target.port.number,
        port_name: target.port.name.clone(),
        protocol: target.port.protocol,
        host: target.service.hostname.text(),
        service: Some((target.name.clone(), target.service.namespace.clone(), target.has_short_name)),
        cluster: inbound_name(target.target_port),
        bind: wildcard(view),
        bind_to_port: false,
        passthrough: false,
        metadata: None,
        provenance: vec![target.object.clone()],
    }
}

fn wildcard(view: &InboundView) -> Arc<str> {
    view.base.families.wildcards().first().copied().unwrap_or_default().into()
}

fn of_ingress(
    view: &InboundView,
    sidecar: &Typed<Sidecar>,
    ingress: &IstioIngressListener,
) -> Option<InboundPort> {
    let port = ingress.port.as_ref()?;
    let bind_to_port =
        view.base.interception == InterceptionMode::None || ingress.capture_mode == CaptureMode::None;
    if bind_to_port && view.unprivileged && port.number < 1024 {
        return None;
    }
    let own = || view.own_address.map_or_else(|| wildcard(view), |own| own.to_string().into());
    Some(InboundPort {
        port: port.number,
        service_port: port.number,
        port_name: port.name.as_str().into(),
        protocol: Protocol::parse(&port.protocol),
        // A Sidecar's port belongs to no service: its name stands in.
        host: format!("{}.{}", sidecar.name(), sidecar.namespace()).into(),
        service: None,
        cluster: inbound_name(port.number),
        bind: if ingress.bind.is_empty() { own() } else { ingress.bind.as_str().into() },
        bind_to_port,
        passthrough: false,
        metadata: metadata::of_config(sidecar.key()),
        provenance: vec![reference(sidecar)],
    })
}

/// Returns the ports for traffic that no inbound port takes: one for all ports, and those with a TLS mode of
/// their own.
pub(super) fn passthrough(mtls: &WorkloadMtls, inbound_ports: &[InboundPort]) -> Vec<InboundPort> {
    let own = mtls
        .ports
        .keys()
        .copied()
        .filter(|port| !inbound_ports.iter().any(|inbound_port| inbound_port.port == *port));
    std::iter::once(0).chain(own).map(of_rest).collect()
}

fn of_rest(port: u32) -> InboundPort {
    InboundPort {
        port,
        service_port: 0,
        port_name: "virtualInbound".into(),
        protocol: Protocol::Unsupported,
        host: "".into(),
        service: None,
        cluster: INBOUND_PASSTHROUGH.to_owned(),
        bind: "".into(),
        bind_to_port: false,
        passthrough: true,
        metadata: None,
        provenance: Vec::new(),
    }
}
