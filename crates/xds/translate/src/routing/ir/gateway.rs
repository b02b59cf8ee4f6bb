//! Gateways in their common form, whatever kind of object they were made from.

use pilotfish_config::networking::Server;
use pilotfish_model::{Hostname, Kind, Namespace, Origin};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Name of a gateway: the kind of its object, and the name of the Gateway that it is, or would be in Istio.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct GatewayId {
    /// The kind of object that it comes from.
    pub source: Kind,
    pub namespace: Namespace,
    pub name: Arc<str>,
}

impl GatewayId {
    /// `namespace/name`: how VirtualServices name it.
    #[must_use]
    pub(crate) fn reference(&self) -> Arc<str> {
        format!("{}/{}", self.namespace, self.name).into()
    }
}

/// Selection of the routers that have a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Selection {
    /// Those with these labels; all for none.
    Labels(BTreeMap<String, String>),
    /// Routers behind these Services, which are of the routers' namespace.
    Services(Vec<Hostname>),
}

/// Facts that decide which routers have a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GatewayHeader {
    pub id: GatewayId,
    /// Selection of its routers.
    pub selection: Selection,
    /// Namespace of the routers, if a Gateway of the Gateway API has them: that of the Gateway, also for
    /// listeners of its ListenerSets. Else the gateway's own.
    pub routers: Namespace,
    /// Creation time: the oldest wins.
    pub created: i64,
    /// True if its routers are made for it by its controller.
    pub is_managed: bool,
}

impl GatewayHeader {
    /// The order in which the first gateway wins.
    #[must_use]
    pub(crate) fn precedence(&self) -> (i64, &str, &str) {
        (self.created, &self.id.name, self.id.namespace.as_str())
    }
}

/// A gateway with its servers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Gateway {
    pub id: GatewayId,
    /// Servers with their ports, hosts and TLS settings.
    pub servers: Vec<Server>,
    /// Namespace of the routers, as in the header.
    pub routers: Namespace,
    /// The objects that made it.
    pub provenance: Vec<Origin>,
}
