//! Listeners (LDS).

mod grpc;

pub use grpc::{GrpcView, Served};

use crate::scope::Scope;
use crate::{Batch, Cx, Proxy, ProxyKind, Unit};
use std::sync::Arc;

/// The facets of a proxy that its listeners may depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ListenerView {
    /// A gRPC client or server without a proxy.
    Grpc(Arc<GrpcView>),
    /// Another kind of proxy.
    Other(Scope),
}

impl ListenerView {
    /// The view of a proxy; `None` when it is not served this type.
    #[must_use]
    #[allow(clippy::unnecessary_wraps)]
    pub fn of(cx: &Cx<'_>, proxy: &Proxy) -> Option<Self> {
        Some(match proxy.kind {
            ProxyKind::Grpc => Self::Grpc(Arc::new(GrpcView::of(cx, proxy))),
            ProxyKind::Sidecar | ProxyKind::Router => Self::Other(Scope::of(cx, proxy)),
        })
    }

    /// The units of the whole set; `None` for clients that ask by name.
    #[must_use]
    pub fn units(&self, _cx: &Cx<'_>) -> Option<Vec<Unit>> {
        match self {
            Self::Grpc(_) => None,
            Self::Other(_) => Some(vec![Unit::Static]),
        }
    }

    /// Generates one unit.
    #[must_use]
    pub fn generate(&self, cx: &Cx<'_>, unit: &Unit) -> Batch {
        match (self, unit) {
            (Self::Grpc(view), Unit::Named(name)) => Vec::from_iter(view.listener(cx, name)).into(),
            _ => Batch::default(),
        }
    }
}
