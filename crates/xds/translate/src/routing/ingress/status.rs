//! Status of Ingresses: the addresses of their Service, or else of the nodes of their routers.

use super::gateways::selector;
use super::ingresses;
use crate::engine::{Cx, Query};
use pilotfish_config::kubernetes::LoadBalancerIngress;
use pilotfish_config::mesh::MeshConfig;
use pilotfish_config::status::Status;
use pilotfish_model::{ClusterId, Hostname, Namespace, ObjectKey, ServiceKey, label_subset};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

/// Query for our Ingresses, and the status that all of them have.
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

/// Query for the addresses of Ingresses; `None` if the Service does not exist, so that the status is left
/// unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PointsOf {
    cluster: ClusterId,
}

impl Query for PointsOf {
    type Output = Option<Vec<LoadBalancerIngress>>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let mesh = cx.mesh();
        let namespace = Namespace::from(mesh.root_namespace.as_str());
        let addresses = match mesh.ingress_service.is_empty() {
            false => self.of_service(cx, &mesh.ingress_service, namespace)?,
            true => self.of_nodes(cx, &mesh, &namespace).into_iter().collect(),
        };
        Some(addresses.iter().map(|address| point(address)).collect())
    }
}

impl PointsOf {
    /// Returns the external name of the Service, or the addresses of its load balancer and its external IPs.
    fn of_service(&self, cx: &Cx<'_>, name: &str, namespace: Namespace) -> Option<Vec<Arc<str>>> {
        let hostname = Hostname::parse(&cx.domain().service(name, &namespace)).ok()?;
        let services = cx.services_of(&ServiceKey { hostname, namespace })?;
        let attributes = services.first()?.kubernetes.clone()?;
        if let Some(name) = &attributes.external_name {
            return Some(vec![name.clone()]);
        }
        Some(attributes.external_addresses.get(&self.cluster).map(|found| found.to_vec()).unwrap_or_default())
    }

    /// Returns the external addresses of the nodes on which routers run, for meshes without an ingress
    /// Service.
    fn of_nodes(&self, cx: &Cx<'_>, mesh: &MeshConfig, namespace: &Namespace) -> BTreeSet<Arc<str>> {
        let wanted = selector(mesh);
        let pods = cx.pods_in(namespace).into_iter();
        let routers = pods.filter(|pod| {
            pod.key.cluster == self.cluster && !pod.terminating && label_subset(&wanted, &pod.labels)
        });
        routers.flat_map(|pod| pod.node_addresses.to_vec()).collect()
    }
}

fn point(address: &str) -> LoadBalancerIngress {
    let (ip, hostname) = match address.parse::<IpAddr>() {
        Ok(_) => (address.to_owned(), String::new()),
        Err(_) => (String::new(), address.to_owned()),
    };
    LoadBalancerIngress { ip, hostname }
}
