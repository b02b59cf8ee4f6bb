//! Endpoints of a service with the reasons why some are not in its load assignment, for diagnosis.

use super::EndpointView;
use super::assignment::{AssignmentOf, has_mtls};
use super::select::{Unsent, is_sendable, unsent};
use crate::engine::{Cx, Query};
use crate::services::client_endpoints::is_hidden;
use crate::services::networks::{Gateways, NetworkGatewaysOf};
use pilotfish_model::Endpoint;
use std::sync::Arc;

/// Query for the endpoints of a cluster's service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ConsideredFor(pub(crate) EndpointView, pub(crate) Arc<str>);

/// An endpoint, and the reason why it is not sent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Considered {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) unsent: Option<Unsent>,
}

impl Query for ConsideredFor {
    type Output = Vec<Considered>;

    fn compute(&self, cx: &Cx<'_>) -> Vec<Considered> {
        let Some(of) = self.0.assignment_of(cx, &self.1) else { return Vec::new() };
        let Some(endpoints) = cx.endpoints_of(&of.service) else { return Vec::new() };
        let visible: Vec<&Arc<Endpoint>> = of.rule.visible(&endpoints, &of.client_locality.cluster).collect();
        let gateways = cx.get(&NetworkGatewaysOf);
        let consider = |endpoint: &Arc<Endpoint>| {
            let is_visible = visible.iter().any(|visible| Arc::ptr_eq(visible, endpoint));
            let unsent = if is_visible { of.unsent(cx, endpoint, &gateways) } else { Some(Unsent::Confined) };
            Considered { endpoint: endpoint.clone(), unsent }
        };
        endpoints.iter().map(consider).collect()
    }
}

impl AssignmentOf {
    fn unsent(&self, cx: &Cx<'_>, endpoint: &Endpoint, gateways: &Gateways) -> Option<Unsent> {
        if is_hidden(cx, &self.service, endpoint) {
            return Some(Unsent::Hidden);
        }
        if !endpoint.is_of(&self.rule.entries) {
            return Some(Unsent::NotExported);
        }
        if endpoint.service_port != self.port {
            return Some(Unsent::OtherPort);
        }
        if !is_sendable(endpoint) {
            return Some(Unsent::HostName);
        }
        unsent(endpoint, &self.rule, &self.client_locality, !gateways.is_empty())
            .or_else(|| self.unreached(cx, endpoint, gateways))
    }

    /// Returns the reason why an endpoint in another network is unreachable.
    fn unreached(&self, cx: &Cx<'_>, endpoint: &Endpoint, gateways: &Gateways) -> Option<Unsent> {
        let own = &self.client_locality.network;
        let network = &endpoint.attributes.network;
        if gateways.is_empty() || own.is_empty() || network.is_empty() || own == network {
            return None;
        }
        let candidates = gateways.to(network, &endpoint.attributes.cluster);
        if candidates.is_empty() {
            return endpoint.address().is_empty().then_some(Unsent::NoAddress);
        }
        if !has_mtls(cx, endpoint, self.rule.tls) {
            return Some(Unsent::GatewayNeedsMtls);
        }
        let reached = candidates.iter().any(|gateway| self.client_locality.families.has(&gateway.address));
        (!reached).then_some(Unsent::NoGateway)
    }
}
