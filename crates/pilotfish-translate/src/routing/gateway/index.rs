//! Which gateways there are, and the servers of each.

use crate::engine::{Cx, Query, reference};
use crate::routing::gateway_api::ApiGateways;
use crate::routing::ingress::IngressGateways;
use pilotfish_config::networking::{Gateway as GatewaySpec, Server};
use pilotfish_model::{Hostname, Kind, Namespace, ObjectRef, Typed};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Which gateway: the kind of object that it comes from, and the name of the Gateway that it is, or would be in Istio.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GatewayId {
    /// The kind of object that it comes from.
    pub source: Kind,
    /// The namespace.
    pub namespace: Namespace,
    /// The name.
    pub name: Arc<str>,
}

impl GatewayId {
    /// `namespace/name`: how VirtualServices name it.
    #[must_use]
    pub fn reference(&self) -> Arc<str> {
        format!("{}/{}", self.namespace, self.name).into()
    }
}

/// Which routers have a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// Those with these labels; all for none.
    Labels(BTreeMap<String, String>),
    /// Those that these Services of the gateway's namespace lead to.
    Services(Vec<Hostname>),
}

/// What decides who has a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Which gateway.
    pub id: GatewayId,
    /// Which routers have it.
    pub selection: Selection,
    /// Creation time: the oldest wins.
    pub created: i64,
}

impl Header {
    fn of(object: &Typed<GatewaySpec>) -> Self {
        Self {
            id: GatewayId {
                source: Kind::Gateway,
                namespace: object.namespace().clone(),
                name: object.key().name.clone(),
            },
            selection: Selection::Labels(object.selector.clone()),
            created: object.meta().created,
        }
    }

    /// The order in which the first gateway wins.
    #[must_use]
    pub fn precedence(&self) -> (i64, &str, &str) {
        (self.created, &self.id.name, self.id.namespace.as_str())
    }
}

/// All gateways, in order of precedence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AllGateways;

impl Query for AllGateways {
    type Output = Vec<Header>;

    fn compute(&self, cx: &Cx<'_>) -> Vec<Header> {
        let mut headers: Vec<Header> =
            cx.objects::<GatewaySpec>().map(|object| Header::of(&object)).collect();
        headers.extend(cx.get(&IngressGateways).values().map(|(header, _)| header.clone()));
        headers.extend(cx.get(&ApiGateways).values().map(|(header, _)| header.clone()));
        headers.sort_by(|a, b| a.precedence().cmp(&b.precedence()));
        headers
    }
}

/// A gateway with its servers.
#[derive(Clone, Debug, PartialEq)]
pub struct Gateway {
    /// Which gateway.
    pub id: GatewayId,
    /// What it listens on.
    pub servers: Vec<Server>,
    /// The objects that made it.
    pub provenance: Vec<ObjectRef>,
}

/// A gateway by its id; `None` when it is gone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GatewayOf(pub GatewayId);

impl Query for GatewayOf {
    type Output = Option<Arc<Gateway>>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        if self.0.source == Kind::Ingress {
            return cx.get(&IngressGateways).get(&self.0.name).map(|(_, gateway)| gateway.clone());
        }
        if self.0.source == Kind::KubernetesGateway {
            return cx.get(&ApiGateways).get(&self.0).map(|(_, gateway)| gateway.clone());
        }
        let object = cx.object::<GatewaySpec>(&self.0.namespace, &self.0.name)?;
        Some(Arc::new(Gateway {
            id: self.0.clone(),
            servers: object.servers.clone(),
            provenance: vec![reference(&object)],
        }))
    }
}
