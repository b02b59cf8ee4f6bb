//! TCPRoute and TLSRoute.

use super::{BackendRef, ParentReference};
use crate::Unread;
use crate::kinds::message::{kind, message};

kind! {
    TcpRoute = TcpRoute;
    TlsRoute = TlsRoute;
}

message! {
/// Routes of TCP connections.
pub struct TcpRoute {
    pub spec: TcpRouteSpec,
}

/// `spec` of a TCPRoute.
pub struct TcpRouteSpec {
    pub parent_refs: Vec<ParentReference>,
    pub use_default_gateways: Unread,
    pub rules: Vec<StreamRouteRule>,
}

/// Routes of TLS connections, by SNI.
pub struct TlsRoute {
    pub spec: TlsRouteSpec,
}

/// `spec` of a TLSRoute.
pub struct TlsRouteSpec {
    pub parent_refs: Vec<ParentReference>,
    pub use_default_gateways: Unread,
    pub hostnames: Vec<String>,
    pub rules: Vec<StreamRouteRule>,
}

/// Weighted backends of TCP or TLS connections.
pub struct StreamRouteRule {
    pub name: Option<String>,
    pub backend_refs: Vec<BackendRef>,
}
}
