//! Index of all gateways, and the servers of each.

use crate::engine::{Cx, Query, reference};
use crate::routing::gateway_api::ApiGateways;
use crate::routing::ingress::IngressGateways;
use crate::routing::ir::{Gateway, GatewayHeader, GatewayId, Selection};
use pilotfish_config::networking::Gateway as GatewaySpec;
use pilotfish_model::{Kind, Typed};
use std::sync::Arc;

/// All gateways, in order of precedence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AllGateways;

impl Query for AllGateways {
    type Output = Vec<GatewayHeader>;

    fn compute(&self, cx: &Cx<'_>) -> Vec<GatewayHeader> {
        let mut headers: Vec<GatewayHeader> =
            cx.objects::<GatewaySpec>().map(|object| header(&object)).collect();
        headers.extend(cx.get(&IngressGateways).values().map(|(header, _)| header.clone()));
        headers.extend(cx.get(&ApiGateways).values().map(|(header, _)| header.clone()));
        headers.sort_by(|a, b| a.precedence().cmp(&b.precedence()));
        headers
    }
}

/// A gateway by its id; `None` when it is gone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GatewayOf(pub GatewayId);

impl Query for GatewayOf {
    type Output = Option<Arc<Gateway>>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        if self.0.source == Kind::Ingress {
            return cx.get(&IngressGateways).get(&self.0.name).map(|(_, gateway)| gateway.clone());
        }
        if matches!(self.0.source, Kind::KubernetesGateway | Kind::ListenerSet) {
            return cx.get(&ApiGateways).get(&self.0).map(|(_, gateway)| gateway.clone());
        }
        let object = cx.object::<GatewaySpec>(&self.0.namespace, &self.0.name)?;
        Some(Arc::new(Gateway {
            id: self.0.clone(),
            servers: object.servers.clone(),
            routers: object.namespace().clone(),
            provenance: vec![reference(&object)],
        }))
    }
}

/// Header of a Gateway: the facts that decide which routers have it.
fn header(object: &Typed<GatewaySpec>) -> GatewayHeader {
    GatewayHeader {
        id: GatewayId {
            source: Kind::Gateway,
            namespace: object.namespace().clone(),
            name: object.key().name.clone(),
        },
        selection: Selection::Labels(object.selector.clone()),
        routers: object.namespace().clone(),
        created: object.meta().created,
        is_managed: false,
    }
}
