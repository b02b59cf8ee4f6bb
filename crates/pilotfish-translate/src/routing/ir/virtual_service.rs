//! A rule: the routes of some hosts behind some gateways.

use pilotfish_config::networking::{HttpRoute, TcpRoute, TlsRoute};
use pilotfish_model::{ExportTo, Hostname, Kind, Namespace, ObjectKey, ObjectRef};
use std::sync::Arc;

/// The gateway of sidecars.
pub(crate) const MESH: &str = "mesh";
/// What the path of a redirect begins with when only the prefix that matched is replaced: how the routes of the Gateway API say it.
pub(crate) const REPLACE_PREFIX: &str = "%PREFIX()%";

/// Which rule: the kind of object that it comes from, and the name of the VirtualService that it is, or would be in Istio.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RuleId {
    /// The kind of object that it comes from.
    pub source: Kind,
    /// The namespace.
    pub namespace: Namespace,
    /// The name.
    pub name: Arc<str>,
}

/// Whose rules of routing hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Semantics {
    /// Those of VirtualService.
    #[default]
    Istio,
    /// Those of Ingress: prefixes match whole path elements.
    Ingress,
    /// Those of the Gateway API: as for Ingress, and requests for unknown backends are answered with 500.
    Gateway,
}

impl Semantics {
    /// Whether a path prefix matches whole path elements only.
    #[must_use]
    pub(crate) fn whole_elements(self) -> bool {
        self != Self::Istio
    }
}

/// What decides who uses a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Which rule.
    pub id: RuleId,
    /// The hosts, names completed.
    pub hosts: Vec<Hostname>,
    /// The gateways as `namespace/name`, or `mesh`.
    pub gateways: Vec<Arc<str>>,
    /// Who sees it.
    pub export_to: ExportTo,
    /// Whether it hands some route to a delegate.
    pub delegates: bool,
    /// Whether it has routes for TCP or TLS.
    pub has_streams: bool,
    /// Creation time: the oldest wins.
    pub created: i64,
    /// Whose rules of routing hold.
    pub semantics: Semantics,
}

impl Header {
    /// The order in which the first rule wins: rules without delegates first, then age, name and namespace.
    #[must_use]
    pub(crate) fn precedence(&self) -> (bool, i64, &str, &str) {
        (self.delegates, self.created, &self.id.name, self.id.namespace.as_str())
    }
}

/// A rule with its routes, names completed and delegates merged.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rule {
    /// Which rule.
    pub id: RuleId,
    /// Whose rules of routing hold.
    pub semantics: Semantics,
    /// Routes of requests.
    pub http: Vec<HttpRoute>,
    /// Routes of TLS connections by SNI.
    pub tls: Vec<TlsRoute>,
    /// Routes of TCP connections.
    pub tcp: Vec<TcpRoute>,
    /// All objects that made it, delegates too.
    pub provenance: Vec<ObjectRef>,
}

impl Rule {
    /// The key of the VirtualService that it is, or would be in Istio, for metadata.
    #[must_use]
    pub(crate) fn config_key(&self) -> ObjectKey {
        ObjectKey::new(Kind::VirtualService, self.id.namespace.clone(), self.id.name.clone())
    }
}
