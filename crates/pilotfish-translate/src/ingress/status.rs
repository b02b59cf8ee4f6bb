//! The status of Ingresses: the addresses of the Service that they are reached by.

use super::ingresses;
use crate::{Cx, Query};
use pilotfish_config::kubernetes::LoadBalancerIngress;
use pilotfish_config::status::Status;
use pilotfish_model::{ClusterId, Hostname, Namespace, ObjectKey, ServiceKey};
use std::net::IpAddr;

/// The Ingresses that are ours, and the status that all of them have. Without a Service (`ingressService` of the mesh) there is
/// none: what addresses routers without a Service have is not known.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct IngressStatus {
    /// The cluster that the Ingresses are in.
    pub(crate) cluster: ClusterId,
}

impl Query for IngressStatus {
    type Output = (Vec<ObjectKey>, Status);

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let points = cx.get(&PointsOf { cluster: self.cluster.clone() });
        match points.as_ref() {
            Some(points) => {
                let keys = ingresses(cx).iter().map(|ingress| ingress.key().clone()).collect();
                (keys, Status::Ingress(points.clone()))
            }
            None => (Vec::new(), Status::Ingress(Vec::new())),
        }
    }
}

/// The addresses of the mesh's ingress Service; `None` when there is no such Service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PointsOf {
    cluster: ClusterId,
}

impl Query for PointsOf {
    type Output = Option<Vec<LoadBalancerIngress>>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let mesh = cx.mesh();
        if mesh.ingress_service.is_empty() {
            return None;
        }
        let namespace = Namespace::from(mesh.root_namespace.as_str());
        let hostname = Hostname::parse(&cx.domain().service(&mesh.ingress_service, &namespace)).ok()?;
        let services = cx.services_of(&ServiceKey { hostname, namespace })?;
        let attributes = services.first()?.kubernetes.clone()?;
        let external = attributes.external_name.iter().cloned();
        let addresses = attributes.external_addresses.get(&self.cluster).cloned().unwrap_or_default();
        Some(external.chain(addresses.iter().cloned()).map(|address| point(&address)).collect())
    }
}

fn point(address: &str) -> LoadBalancerIngress {
    let (ip, hostname) = match address.parse::<IpAddr>() {
        Ok(_) => (address.to_owned(), String::new()),
        Err(_) => (String::new(), address.to_owned()),
    };
    LoadBalancerIngress { ip, hostname }
}
