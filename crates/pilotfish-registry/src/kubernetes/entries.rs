//! Kubernetes Services that select WorkloadEntries.

use crate::labels;
use pilotfish_model::{
    Endpoint, HealthStatus, Port, Resolution, Service, TargetPort, Workload, label_subset,
};
use std::sync::Arc;

/// Whether a Service can select WorkloadEntries at all: it has a selector and an address of its own. Headless Services
/// do not, as in Istio.
pub(super) fn selects(service: &Service) -> bool {
    service.resolution == Resolution::ClientSideLB && !service.mesh_external && !service.selector.is_empty()
}

/// Whether a WorkloadEntry can be selected: it is healthy, and an IP address or its network's gateway reaches it.
pub(super) fn is_selectable(workload: &Workload) -> bool {
    let reachable = !workload.address().is_empty() || !workload.network.is_empty();
    workload.ready && reachable && !workload.is_dns_only() && !workload.key.namespace.is_empty()
}

/// Whether the Service selects the WorkloadEntry.
pub(super) fn matches(service: &Service, workload: &Workload) -> bool {
    selects(service)
        && is_selectable(workload)
        && service.namespace == workload.key.namespace
        && label_subset(&*service.selector, &workload.labels)
}

/// The endpoints that a WorkloadEntry gives a Service: one for each port that it has.
pub(super) fn endpoints<'a>(
    service: &'a Service,
    workload: &'a Workload,
) -> impl Iterator<Item = Arc<Endpoint>> + 'a {
    let attributes = Arc::new(workload.endpoint_attributes());
    service.ports.iter().filter_map(move |port| {
        let number = target(port, workload)?;
        Some(Arc::new(Endpoint {
            addresses: workload.addresses.clone(),
            port: number,
            service_port: port.name.clone(),
            service_port_id: None,
            health: labels::health(&workload.labels, HealthStatus::Unknown),
            attributes: attributes.clone(),
        }))
    })
}

/// The port of the workload behind a service port: the workload's port of the target's name, which it must have; for a
/// number, the workload's port of the service port's name, else the number.
fn target(port: &Port, workload: &Workload) -> Option<u32> {
    match &port.target_port {
        Some(TargetPort::Name(name)) => workload.ports.get(name).copied(),
        Some(TargetPort::Number(number)) => Some(workload.ports.get(&port.name).copied().unwrap_or(*number)),
        None => Some(port.number),
    }
}
