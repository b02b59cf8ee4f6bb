//! Which services an address is an endpoint of, and by which rule it is kept out of others.

use super::origin;
use pilotfish_api::v1::{Failure, FailureKind, WhyEndpoint, WhyService};
use pilotfish_model::{Endpoint, HealthStatus, Service, Workload, World, label_subset};
use std::net::IpAddr;
use std::sync::Arc;

/// Services that are listed.
const LISTED: usize = 100;

/// Which services an address is an endpoint of.
///
/// # Errors
/// When it is no IP address.
pub fn why_endpoint(world: &World, address: &str) -> Result<WhyEndpoint, Failure> {
    let Ok(_) = address.parse::<IpAddr>() else {
        let failure = Failure::new(FailureKind::Invalid, format!("{address:?} is no IP address"));
        return Err(failure.hint("pilotfish endpoints HOST shows addresses"));
    };
    let workloads: Vec<Arc<Workload>> =
        world.workloads_at(address).filter_map(|key| world.workload(key).cloned()).collect();
    let mut services = Vec::new();
    for key in world.services_at(address) {
        let Some(endpoints) = world.endpoints_of(key) else { continue };
        for endpoint in endpoints.iter().filter(|endpoint| endpoint.address() == address) {
            let service = world.services_of(key).and_then(|services| services.first());
            services.push(member(endpoint, key.hostname.as_str(), key.namespace.as_str(), service));
        }
    }
    for workload in &workloads {
        for (key, list) in world.services() {
            let is_in = services.iter().any(|known| {
                known.host == key.hostname.as_str() && known.namespace == key.namespace.as_str()
            });
            if is_in || key.namespace != workload.key.namespace || services.len() >= LISTED {
                continue;
            }
            services.extend(list.iter().filter_map(|service| kept_out(service, workload)));
        }
    }
    let names = workloads.iter().map(|workload| {
        let ready = if workload.terminating {
            ", being deleted"
        } else if workload.ready {
            ""
        } else {
            ", not ready"
        };
        format!("{} {}/{}{ready}", workload.key.kind.as_str(), workload.key.namespace, workload.key.name)
    });
    Ok(WhyEndpoint { address: address.to_owned(), workloads: names.collect(), services })
}

fn member(endpoint: &Endpoint, host: &str, namespace: &str, service: Option<&Arc<Service>>) -> WhyService {
    let port = &endpoint.service_port;
    let known = service.is_some_and(|service| service.ports.iter().any(|own| own.name == *port));
    let (serves, rule) = match endpoint.health {
        _ if !known => {
            (false, format!("it belongs to a port named {:?}, which the service does not have", &**port))
        }
        HealthStatus::Healthy | HealthStatus::Unknown => {
            (true, format!("it is ready, for port {:?}", &**port))
        }
        HealthStatus::Unhealthy => (false, "it is not ready".to_owned()),
        HealthStatus::Terminating => (false, "it is being deleted".to_owned()),
        HealthStatus::Draining | HealthStatus::Deregistering => (false, "it drains".to_owned()),
    };
    WhyService {
        host: host.to_owned(),
        namespace: namespace.to_owned(),
        serves,
        rule,
        made_by: origin(&endpoint.attributes.provenance),
    }
}

/// A service of the workload's namespace that selects Pods, and not this one, or not yet.
fn kept_out(service: &Service, workload: &Workload) -> Option<WhyService> {
    if service.selector.is_empty() {
        return None;
    }
    let missing = service.selector.iter().find(|(key, value)| workload.labels.get(key) != Some(*value));
    let rule = match missing {
        None if label_subset(&*service.selector, &workload.labels) => {
            "its selector selects it, and no EndpointSlice has it: is it ready, and has it the target port?"
                .to_owned()
        }
        Some((key, value)) => match workload.labels.get(key) {
            Some(other) => format!("its selector wants {key}={value}, and the label is {other}"),
            None => format!("its selector wants {key}={value}, and there is no such label"),
        },
        None => return None,
    };
    Some(WhyService {
        host: service.hostname.to_string(),
        namespace: service.namespace.to_string(),
        serves: false,
        rule,
        made_by: origin(&service.provenance),
    })
}
