//! Services and ServiceEntries: protocols and addresses of their ports.

use super::Code;
use super::finding::{Finding, Report};
use super::policies::check_selector;
use super::virtual_service::check_exports;
use crate::engine::{Cx, Query};
use pilotfish_config::networking::{Resolution, ServiceEntry};
use pilotfish_model::{
    Hostname, Kind, ObjectKey, Protocol, Resolution as ServiceResolution, Service, ServiceKey, Typed,
};

/// Query for the findings of all Kubernetes Services, which are many and cheap.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ServiceFindings;

impl Query for ServiceFindings {
    type Output = Vec<Finding>;

    fn compute(&self, cx: &Cx<'_>) -> Vec<Finding> {
        let services = cx.services().flat_map(|(_, services)| services.iter());
        services.flat_map(|service| of_service(service)).collect()
    }
}

fn of_service(service: &Service) -> Vec<Finding> {
    // Proxies ignore the ports of an alias, and use those of the service at its end.
    if service.kubernetes.is_none() || service.resolution == ServiceResolution::Alias {
        return Vec::new();
    }
    let ports = service.ports.iter().enumerate();
    let found =
        ports.filter(|(_, port)| port.protocol == Protocol::Unsupported).map(|(index, port)| Finding {
            object: ObjectKey::new(Kind::Service, service.namespace.clone(), service.object_name.clone()),
            path: format!("spec.ports[{index}].name"),
            code: Code::PortNameIsNotUnderNamingConvention,
            message: format!(
                "name {:?} of port {} declares no protocol, so Envoy detects it",
                port.name, port.number
            ),
            hint: Some("name it PROTOCOL[-SUFFIX] as in http-web, or set appProtocol".to_owned()),
        });
    found.collect()
}

/// Checks all references of a ServiceEntry.
pub(super) fn check_entry(report: &mut Report<'_, '_>, object: &Typed<ServiceEntry>) {
    check_exports(report, &object.export_to);
    if let Some(selector) = &object.workload_selector {
        let path = "spec.workloadSelector.labels";
        check_selector(report, path, &selector.labels, Code::NoMatchingWorkloadsFound);
    }
    check_addresses(report, object);
}

/// Reports TCP ports without an address, which receive all connections to their number, whatever the
/// destination.
fn check_addresses(report: &mut Report<'_, '_>, object: &Typed<ServiceEntry>) {
    if !object.addresses.is_empty() || object.resolution == Resolution::DynamicDns {
        return;
    }
    let has_address = |host: &String| {
        let Ok(hostname) = Hostname::parse(host) else { return true };
        let key = ServiceKey { hostname, namespace: object.namespace().clone() };
        let services = report.cx.services_of(&key);
        let any =
            |service: &std::sync::Arc<Service>| service.auto_addresses.iter().any(|one| !one.is_empty());
        services.iter().flat_map(|services| services.iter()).any(any)
    };
    if object.hosts.iter().all(has_address) {
        return;
    }
    for (index, port) in object.ports.iter().enumerate() {
        if matches!(
            Protocol::parse(&port.protocol),
            Protocol::Tcp | Protocol::Unsupported | Protocol::Mongo | Protocol::Mysql | Protocol::Redis
        ) {
            let message = format!(
                "without spec.addresses, port {} takes connections to that number at any address",
                port.number
            );
            let path = format!("spec.ports[{index}]");
            report.add(Code::ServiceEntryAddressesRequired, path, message);
        }
    }
}
