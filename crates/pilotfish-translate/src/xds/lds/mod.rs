//! Listeners (LDS).
//!
//! A sidecar has listeners for traffic out of its workload, one batch for each port, and one set for traffic to it. A router has
//! listeners for the servers of its gateways, a batch for each port. A gRPC client subscribes to listeners by name.

mod address;
mod budget;
mod connection_manager;
mod gateway;
mod grpc;
mod http_proxy;
mod inbound;
mod outbound;
mod overlap;
mod policies;
mod stream_route;
pub(crate) mod tcp_proxy;
mod tls;
mod view;
mod virtual_outbound;

pub(crate) use budget::{MAX_LISTENER_BYTES, MAX_PORT_LISTENERS_BYTES};
pub(crate) use gateway::GatewayView;
pub(crate) use grpc::GrpcView;
pub(crate) use overlap::MAX_CHAIN_CONDITIONS;
pub(crate) use view::{OutboundView, SidecarView};

use crate::engine::{Cx, EncodedResource, ResourceBatch, ResourceBatchKey};
use crate::proxy::{Proxy, ProxyKind};
use outbound::PortsOf;
use std::sync::Arc;

/// The facets of a proxy that its listeners may depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ListenerView {
    Sidecar(Arc<SidecarView>),
    /// A gRPC client or server without a proxy.
    Grpc(Arc<GrpcView>),
    Gateway(Arc<GatewayView>),
}

impl ListenerView {
    /// The view of a proxy; `None` when it is not served this type.
    #[must_use]
    #[allow(clippy::unnecessary_wraps)]
    pub(crate) fn of(cx: &Cx<'_>, proxy: &Proxy) -> Option<Self> {
        Some(match proxy.kind {
            ProxyKind::Sidecar => Self::Sidecar(Arc::new(SidecarView::of(cx, proxy))),
            ProxyKind::Grpc => Self::Grpc(Arc::new(GrpcView::of(cx, proxy))),
            ProxyKind::Router => Self::Gateway(Arc::new(GatewayView::of(cx, proxy))),
        })
    }

    /// The batches of the whole set; `None` for clients that subscribe by name.
    #[must_use]
    pub(crate) fn batch_keys(&self, cx: &Cx<'_>) -> Option<Vec<ResourceBatchKey>> {
        match self {
            Self::Sidecar(view) => {
                let ports = cx.get(&PortsOf(view.outbound.clone()));
                let ports = ports.iter().map(|port| ResourceBatchKey::Port(*port));
                Some(ports.chain([ResourceBatchKey::Static, ResourceBatchKey::Inbound]).collect())
            }
            Self::Grpc(_) => None,
            Self::Gateway(view) => Some(view.ports(cx).into_iter().map(ResourceBatchKey::Port).collect()),
        }
    }

    /// Generates the resources of one batch.
    #[must_use]
    pub(crate) fn generate(&self, cx: &Cx<'_>, batch_key: &ResourceBatchKey) -> ResourceBatch {
        match (self, batch_key) {
            (Self::Sidecar(view), ResourceBatchKey::Port(port)) => {
                outbound::listeners(cx, &view.outbound, view.own_endpoint, *port).into()
            }
            (Self::Sidecar(view), ResourceBatchKey::Static) => own_listeners(cx, &view.outbound).into(),
            (Self::Sidecar(view), ResourceBatchKey::Inbound) => inbound::listeners(cx, &view.inbound).into(),
            (Self::Gateway(view), ResourceBatchKey::Port(port)) => view.listeners(cx, *port).into(),
            (Self::Grpc(view), ResourceBatchKey::Named(name)) => {
                Vec::from_iter(view.listener(cx, name)).into()
            }
            _ => ResourceBatch::default(),
        }
    }
}

/// The listeners that do not come from services: the explicit HTTP proxy, and where redirected traffic arrives.
fn own_listeners(cx: &Cx<'_>, view: &OutboundView) -> Vec<EncodedResource> {
    let proxy = http_proxy::listener(cx, view);
    proxy.into_iter().chain(virtual_outbound::listener(cx, view)).collect()
}

#[cfg(test)]
mod dubbo_tests;
#[cfg(test)]
mod tests;
