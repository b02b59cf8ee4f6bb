//! Status of Gateway API objects: results of the code that serves them, as conditions.

mod addresses;
mod gateway;
mod policies;
mod routes;
#[cfg(test)]
mod tests;

pub(crate) use routes::partial_loops;

use super::ACCEPTED;
use super::features::FEATURES;
use super::gateways::class_controller;
use super::infrastructure::parameters_of_class;
use crate::engine::{Cx, Query};
use pilotfish_config::gateway_api::GatewayClass;
use pilotfish_config::status::{Condition, Controllers, Status};
use pilotfish_model::{ClusterId, Kind, Namespace, ObjectKey};
use std::sync::Arc;

/// The kinds that have a status.
pub(crate) const KINDS: [Kind; 8] = [
    Kind::GatewayClass,
    Kind::KubernetesGateway,
    Kind::ListenerSet,
    Kind::HttpRoute,
    Kind::GrpcRoute,
    Kind::TcpRoute,
    Kind::TlsRoute,
    Kind::BackendTlsPolicy,
];

/// The status of one object; `None` when another controller writes it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ApiStatus {
    pub(crate) key: ObjectKey,
    /// Settings on which the status depends.
    pub(crate) of: StatusView,
}

/// Settings on which statuses depend, in addition to the world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StatusView {
    /// The cluster that the objects are in.
    pub(crate) cluster: ClusterId,
    /// The controllers whose objects get a status.
    pub(crate) controllers: Controllers,
    /// True if Deployments and Services of Gateways are made, with the parameters that a Gateway names.
    pub(crate) deploys: bool,
}

impl StatusView {
    fn includes(&self, controller: &str) -> bool {
        self.controllers.names().contains(&controller)
    }
}

impl Query for ApiStatus {
    type Output = Option<Arc<Status>>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let status = match self.key.kind {
            Kind::GatewayClass => class(cx, &self.key.name, &self.of),
            Kind::KubernetesGateway => gateway::status(cx, &self.key, &self.of),
            Kind::ListenerSet => gateway::status_of_set(cx, &self.key, &self.of),
            Kind::BackendTlsPolicy => policies::status(cx, &self.key, self.of.controllers),
            _ => routes::status(cx, &self.key, self.of.controllers),
        };
        status.map(Arc::new)
    }
}

fn class(cx: &Cx<'_>, name: &str, of: &StatusView) -> Option<Status> {
    let class = cx.object::<GatewayClass>(&Namespace::default(), name)?;
    class_controller(&class).filter(|controller| of.includes(controller))?;
    let parameters = of.deploys.then(|| parameters_of_class(cx, &class));
    let accepted = match parameters {
        Some(Err(why)) => Condition::bad(ACCEPTED, "InvalidParameters", why),
        _ => Condition::good(ACCEPTED, "Accepted", "Gateways of this class are served"),
    };
    Some(Status::Class { conditions: vec![accepted], features: FEATURES })
}
