//! The status of objects of the Gateway API: what the code that serves them finds out, in the words of conditions.

mod addresses;
mod gateway;
mod routes;
#[cfg(test)]
mod tests;

use super::ACCEPTED;
use super::gateways::class_controller;
use crate::{Cx, Query};
use pilotfish_config::gateway_api::GatewayClass;
use pilotfish_config::status::{Condition, Status};
use pilotfish_model::{ClusterId, Kind, Namespace, ObjectKey};
use std::sync::Arc;

/// The kinds that have a status.
pub(crate) const KINDS: [Kind; 6] = [
    Kind::GatewayClass,
    Kind::KubernetesGateway,
    Kind::HttpRoute,
    Kind::GrpcRoute,
    Kind::TcpRoute,
    Kind::TlsRoute,
];

/// The status of one object; `None` when it is not ours to say.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ApiStatus {
    pub(crate) key: ObjectKey,
    /// The cluster that the object is in.
    pub(crate) cluster: ClusterId,
}

impl Query for ApiStatus {
    type Output = Option<Arc<Status>>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let status = match self.key.kind {
            Kind::GatewayClass => class(cx, &self.key.name),
            Kind::KubernetesGateway => gateway::status(cx, &self.key, &self.cluster),
            _ => routes::status(cx, &self.key),
        };
        status.map(Arc::new)
    }
}

fn class(cx: &Cx<'_>, name: &str) -> Option<Status> {
    let class = cx.object::<GatewayClass>(&Namespace::default(), name)?;
    class_controller(&class)?;
    Some(Status::Class(vec![Condition::good(ACCEPTED, "Accepted", "Gateways of this class are served")]))
}
