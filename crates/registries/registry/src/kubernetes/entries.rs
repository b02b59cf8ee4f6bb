//! Kubernetes Services that select WorkloadEntries.

use crate::labels;
use pilotfish_model::{
    Endpoint, HealthStatus, Port, Resolution, Service, TargetPort, Workload, label_subset,
};
use std::sync::Arc;

/// True if a Service can select WorkloadEntries: it has a selector and its own address. Headless Services do
/// not, as in Istio.
pub(super) fn selects(service: &Service) -> bool {
    service.resolution == Resolution::ClientSideLB && !service.mesh_external && !service.selector.is_empty()
}

/// True if a WorkloadEntry can be selected: it is healthy, and reachable by an IP address or through its
/// network's gateway.
pub(super) fn is_selectable(workload: &Workload) -> bool {
    let reachable = !workload.address().is_empty() || !workload.network.is_empty();
    workload.ready && reachable && !workload.is_dns_only() && !workload.key.namespace.is_empty()
}

/// True if the Service selects the WorkloadEntry.
pub(super) fn matches(service: &Service, workload: &Workload) -> bool {
    selects(service)
        && is_selectable(workload)
        && service.namespace == workload.key.namespace
        && label_subset(&*service.selector, &workload.labels)
}

/// Returns the endpoints of a WorkloadEntry for a Service, one for each service port that the entry has.
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

/// Returns the port of the workload behind a service port. A named target port must be a port of the
/// workload; for a number, the workload's port with the service port's name counts, else the number.
fn target(port: &Port, workload: &Workload) -> Option<u32> {
    match &port.target_port {
        Some(TargetPort::Name(name)) => workload.ports.get(name).copied(),
        Some(TargetPort::Number(number)) => Some(workload.ports.get(&port.name).copied().unwrap_or(*number)),
        None => Some(port.number),
    }
}
