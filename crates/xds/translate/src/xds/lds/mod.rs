//! Listeners (LDS).
//!
//! A sidecar has listeners for traffic out of its workload, one batch for each port, and one set for traffic
//! to it. A router has listeners for the servers of its gateways, a batch for each port. A gRPC client
//! subscribes to listeners by name.

mod address;
mod budget;
mod connection_manager;
mod connection_settings;
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
use view::OutboundView;
pub(crate) use view::{InboundView, OwnOutboundView};

use crate::engine::{Cx, EncodedResource, ResourceBatch, ResourceBatchKey};
use crate::proxy::{Proxy, ProxyKind};
use outbound::PortsOf;
use std::sync::Arc;

/// A part of a proxy's listeners, with the facets that this part may depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ListenerView {
    /// For traffic to a sidecar's workload.
    Inbound(Arc<InboundView>),
    /// For traffic out of it, and what patches add.
    Outbound(Arc<OwnOutboundView>),
    /// A gRPC client or server without a proxy.
    Grpc(Arc<GrpcView>),
    Gateway(Arc<GatewayView>),
}

impl ListenerView {
    /// The parts of a proxy's listeners: what is its own first, what most proxies share last.
    #[must_use]
    pub(crate) fn of(cx: &Cx<'_>, proxy: &Proxy) -> Vec<Self> {
        match proxy.kind {
            ProxyKind::Sidecar => vec![
                Self::Inbound(Arc::new(InboundView::of(cx, proxy))),
                Self::Outbound(Arc::new(OwnOutboundView::of(cx, proxy))),
            ],
            ProxyKind::Grpc => vec![Self::Grpc(Arc::new(GrpcView::of(cx, proxy)))],
            ProxyKind::Router => vec![Self::Gateway(Arc::new(GatewayView::of(cx, proxy)))],
        }
    }

    /// True if the part holds the listeners that patches add.
    pub(crate) fn has_added(&self) -> bool {
        !matches!(self, Self::Inbound(_))
    }

    /// The batches of the whole set; `None` for clients that subscribe by name.
    #[must_use]
    pub(crate) fn batch_keys(&self, cx: &Cx<'_>) -> Option<Vec<ResourceBatchKey>> {
        match self {
            Self::Inbound(_) => Some(vec![ResourceBatchKey::Inbound]),
            Self::Outbound(view) => {
                let ports = cx.get(&PortsOf(view.shared.clone()));
                let ports = ports.iter().map(|port| ResourceBatchKey::Port(*port));
                Some(ports.chain([ResourceBatchKey::Static]).collect())
            }
            Self::Grpc(_) => None,
            Self::Gateway(view) => Some(view.ports(cx).into_iter().map(ResourceBatchKey::Port).collect()),
        }
    }

    /// Generates the resources of one batch.
    #[must_use]
    pub(crate) fn generate(&self, cx: &Cx<'_>, batch_key: &ResourceBatchKey) -> ResourceBatch {
        match (self, batch_key) {
            (Self::Inbound(view), ResourceBatchKey::Inbound) => inbound::listeners(cx, view).into(),
            (Self::Outbound(view), ResourceBatchKey::Port(port)) => {
                outbound::listeners(cx, &view.shared, view.own_endpoint, *port).into()
            }
            (Self::Outbound(view), ResourceBatchKey::Static) => own_listeners(cx, &view.shared).into(),
            (Self::Gateway(view), ResourceBatchKey::Port(port)) => view.listeners(cx, *port).into(),
            (Self::Grpc(view), ResourceBatchKey::Named(name)) => {
                Vec::from_iter(view.listener(cx, name)).into()
            }
            _ => ResourceBatch::default(),
        }
    }
}

/// The listeners that do not come from services: the explicit HTTP proxy, and where redirected traffic
/// arrives.
fn own_listeners(cx: &Cx<'_>, view: &OutboundView) -> Vec<EncodedResource> {
    let proxy = http_proxy::listener(cx, view);
    proxy.into_iter().chain(virtual_outbound::listener(cx, view)).collect()
}

#[cfg(test)]
mod dubbo_tests;
#[cfg(test)]
mod dynamic_dns_tests;
#[cfg(test)]
mod tests;
