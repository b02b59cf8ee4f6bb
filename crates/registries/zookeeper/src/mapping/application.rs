//! The service of an application: its instances with all their ports.

use super::labels::{labels, locality, weight};
use crate::dubbo::{Instance, InstancePort as Written, default_port, speech};
use crate::mirror::Application;
use pilotfish_model::{HealthStatus, Namespace};
use pilotfish_registry::{CatalogInstance, CatalogPort, CatalogService, InstancePort};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) fn id(name: &str) -> Arc<str> {
    format!("application {name}").into()
}

pub(super) fn service(
    name: &str,
    application: &Application,
    domain: &str,
    namespace: Namespace,
) -> CatalogService {
    let mut service = CatalogService::new(id(name), format!("{name}{domain}"), namespace);
    service.labels.insert("application".to_owned(), name.to_owned());
    let mut ports: BTreeMap<u32, CatalogPort> = BTreeMap::new();
    for (node, written) in &application.instances {
        let instance = instance(node, written);
        for port in &instance.ports {
            ports.entry(port.service.number).or_insert_with(|| port.service.clone());
        }
        service.instances.push(instance);
    }
    service.ports = ports.into_values().collect();
    service
}

fn instance(node: &str, written: &Instance) -> CatalogInstance {
    let mut instance = CatalogInstance::new(node, written.address.clone());
    instance.ports = written.ports.iter().map(port).collect();
    instance.labels = labels(&written.metadata);
    instance.locality = locality(&written.metadata);
    let weight = weight(written.metadata.get("weight").map(String::as_str));
    instance.weight = weight.unwrap_or_default();
    if !written.is_up() || weight == Some(0) {
        instance.health = HealthStatus::Unhealthy;
    }
    instance
}

/// Returns the port of an instance. For Dubbo protocols the service port is the protocol's default, as for
/// interfaces; for others it is the instance's.
fn port(written: &Written) -> InstancePort {
    let number = written.number.into();
    let service = match written.protocol.as_deref() {
        Some("https") => {
            CatalogPort { number, name: Some("https".to_owned()), protocol: Some("https".to_owned()) }
        }
        Some(protocol) => {
            let known = speech(protocol);
            let name = Some(known.name.to_owned());
            CatalogPort {
                number: default_port(known, written.number),
                name,
                protocol: Some(known.protocol.to_owned()),
            }
        }
        None => CatalogPort { number, name: None, protocol: None },
    };
    InstancePort { service, number }
}
