//! Services that an address is an endpoint of, and the rules that keep it out of others.

use super::origin;
use pilotfish_api::v1::{Failure, FailureKind, WhyEndpoint, WhyService};
use pilotfish_api::{LosingService, Registry};
use pilotfish_model::{
    Endpoint, HealthStatus, InboundBy, Service, ServiceKey, ShardKey, Workload, WorkloadKind, World,
};
use std::net::IpAddr;
use std::sync::Arc;

/// Maximum number of listed services.
const LISTED: usize = 100;

/// Services that an address is an endpoint of. `registries` has their states, since a service may lose to one
/// of another registry, and its endpoints with it.
///
/// # Errors
/// If it is not an IP address.
pub fn why_endpoint(world: &World, registries: &[Registry], address: &str) -> Result<WhyEndpoint, Failure> {
    let Ok(_) = address.parse::<IpAddr>() else {
        let failure = Failure::new(FailureKind::Invalid, format!("{address:?} is no IP address"));
        return Err(failure.hint("pilotfish endpoints HOST shows addresses"));
    };
    let workloads: Vec<Arc<Workload>> =
        world.workloads_at(address).filter_map(|key| world.workload(key).cloned()).collect();
    let mut services = Vec::new();
    for key in world.services_at(address) {
        let Some(endpoints) = world.endpoints_of(key) else { continue };
        let service = world.services_of(key).and_then(|services| services.first());
        for (shard, list) in &endpoints.shards {
            for endpoint in list.iter().filter(|endpoint| endpoint.address() == address) {
                let mut row = member(endpoint, key.hostname.as_str(), key.namespace.as_str(), service);
                if let Some(losing) = losing(registries, shard).find(|losing| is_of(losing, key)) {
                    row.rule += &format!("; {} describes the service: {}", losing.winner, losing.reason);
                }
                services.push(row);
            }
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
        services.extend(overruled(registries, workload, &services));
    }
    services.truncate(LISTED);
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

/// Services of a registry that lose to those of another one.
fn losing<'a>(
    registries: &'a [Registry],
    shard: &ShardKey,
) -> impl Iterator<Item = &'a LosingService> + use<'a> {
    let name = shard.to_string();
    registries
        .iter()
        .filter(move |registry| registry.name == name)
        .flat_map(|registry| registry.losers.iter())
}

fn is_of(losing: &LosingService, key: &ServiceKey) -> bool {
    losing.hostname == key.hostname.as_str() && losing.namespace == key.namespace.as_str()
}

/// Services of a workload's registry that lose to those of another one, of which this workload may be an
/// endpoint: services that lose leave nothing in the world to check.
fn overruled(registries: &[Registry], workload: &Workload, known: &[WhyService]) -> Vec<WhyService> {
    let WorkloadKind::Registered(shard) = &workload.key.kind else { return Vec::new() };
    let is_known = |losing: &LosingService| {
        known.iter().any(|row| row.host == losing.hostname && row.namespace == losing.namespace)
    };
    let lost = losing(registries, shard).filter(|losing| losing.namespace == workload.key.namespace.as_str());
    lost.filter(|losing| !is_known(losing))
        .take(LISTED)
        .map(|losing| WhyService {
            host: losing.hostname.clone(),
            namespace: losing.namespace.clone(),
            serves: false,
            rule: format!("if it is an endpoint of it, it does not count: {}", losing.reason),
            made_by: losing.winner.clone(),
        })
        .collect()
}

/// A service of the workload's namespace whose selector does not match this workload, or that does not have
/// it yet. Selectors of Services and of ServiceEntries apply to their own namespace only.
fn kept_out(service: &Service, workload: &Workload) -> Option<WhyService> {
    // A Service of several clusters may have another selector in each.
    let selector = match service.in_cluster(&workload.key.cluster) {
        Some((selector, _)) => selector,
        None => &service.selector,
    };
    if selector.is_empty() {
        return None;
    }
    let missing = selector.iter().find(|(key, value)| workload.labels.get(key) != Some(*value));
    let of_slices = service.inbound == InboundBy::Selector;
    let rule = match missing {
        None if of_slices => {
            "its selector selects it, and no EndpointSlice has it: is it ready, and has it the target port?"
                .to_owned()
        }
        None => {
            "its selector selects it, and it is no endpoint: has it an address, and is it ready?".to_owned()
        }
        Some((key, value)) => match workload.labels.get(key) {
            Some(other) => format!("its selector wants {key}={value}, and the label is {other}"),
            None => format!("its selector wants {key}={value}, and there is no such label"),
        },
    };
    Some(WhyService {
        host: service.hostname.to_string(),
        namespace: service.namespace.to_string(),
        serves: false,
        rule,
        made_by: origin(&service.provenance),
    })
}
