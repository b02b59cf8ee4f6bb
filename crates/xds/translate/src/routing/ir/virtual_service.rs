//! Virtual services in their common form: the routes of some hosts behind some gateways, whatever kind of
//! object they were made from.

use super::{HttpRule, WrittenHosts};
use pilotfish_config::networking::{TcpRoute, TlsRoute};
use pilotfish_model::{ExportTo, Hostname, Kind, Namespace, ObjectKey, Origin};
use std::sync::Arc;

/// The gateway of sidecars.
pub(crate) const MESH: &str = "mesh";

/// Identifies a virtual service: the kind of object that it comes from, and the name of the VirtualService
/// that it is, or would be in Istio.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct VirtualServiceId {
    /// The kind of object that it comes from.
    pub source: Kind,
    pub namespace: Namespace,
    pub name: Arc<str>,
}

/// Dialect of routes: rules of matching, and of responses to errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum RouteDialect {
    /// Rules of Istio's VirtualService: prefixes match characters.
    #[default]
    VirtualService,
    /// Those of Ingress: prefixes match whole path elements.
    Ingress,
    /// Those of the Gateway API: as for Ingress, and requests for unknown backends are answered with 500.
    GatewayApi,
}

impl RouteDialect {
    /// True if a path prefix matches whole path elements only.
    #[must_use]
    pub(crate) fn whole_elements(self) -> bool {
        self != Self::VirtualService
    }
}

/// Hosts, gateways and visibility of a virtual service, which decide on its proxies; its routes are in
/// [`VirtualServiceIr`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VirtualServiceHeader {
    pub id: VirtualServiceId,
    /// The hosts, names completed.
    pub hosts: Vec<Hostname>,
    /// The hosts as written.
    pub written: WrittenHosts,
    /// The gateways as `namespace/name`, or `mesh`.
    pub gateways: Vec<Arc<str>>,
    /// Namespaces that may see it (`exportTo`).
    pub export_to: ExportTo,
    /// True if it hands some route to a delegate.
    pub delegates: bool,
    /// True if it has routes for TCP or TLS.
    pub has_streams: bool,
    /// Creation time: the oldest wins.
    pub created: i64,
    /// Dialect of its routes.
    pub dialect: RouteDialect,
}

impl VirtualServiceHeader {
    /// The order in which the first virtual service wins: virtual services without delegates first, then age,
    /// name and namespace.
    #[must_use]
    pub(crate) fn precedence(&self) -> (bool, i64, &str, &str) {
        (self.delegates, self.created, &self.id.name, self.id.namespace.as_str())
    }
}

/// A virtual service with its routes, names completed and delegates under them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct VirtualServiceIr {
    pub id: VirtualServiceId,
    /// Dialect of its routes.
    pub dialect: RouteDialect,
    /// Routes of HTTP requests, in the order of matching.
    pub http: Vec<HttpRule>,
    /// Routes of TLS connections by SNI.
    pub tls: Vec<TlsRoute>,
    /// Routes of TCP connections.
    pub tcp: Vec<TcpRoute>,
    /// All objects that made it, delegates too.
    pub provenance: Vec<Origin>,
    /// Delegates whose routes would be too many.
    pub refused: Vec<ObjectKey>,
}

impl VirtualServiceIr {
    /// The key of the VirtualService that it is, or would be in Istio, for metadata.
    #[must_use]
    pub(crate) fn config_key(&self) -> ObjectKey {
        ObjectKey::new(Kind::VirtualService, self.id.namespace.clone(), self.id.name.clone())
    }
}
