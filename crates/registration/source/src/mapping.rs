//! Mapping of registered services to the catalog.

use pilotfish_model::{HealthStatus, SpiffeId};
use pilotfish_registration::{Health, Instance, InstanceView, Port, ServiceKey, TextMap};
use pilotfish_registry::{CatalogInstance, CatalogPort, CatalogService, InstancePort};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Domains for names and identities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    /// Domain of short names: `web` in `shop` is `web.shop.svc.DOMAIN`.
    pub(super) domain: Arc<str>,
    /// Trust domain of identities.
    pub(super) trust_domain: Arc<str>,
}

impl Mapping {
    /// Converts a service and its instances. The health of each combines its client's, its lease's and its
    /// checks'.
    pub(super) fn service(&self, key: &ServiceKey, instances: &[InstanceView]) -> CatalogService {
        let host = key.host(&self.domain);
        let mut service = CatalogService::new(key.to_string(), host, &*key.namespace);
        service.instances = instances.iter().map(|view| self.instance(view)).collect();
        service
    }

    fn instance(&self, view: &InstanceView) -> CatalogInstance {
        let instance = &view.record.instance;
        let account = &instance.service_account;
        CatalogInstance {
            id: instance.key.id.clone(),
            addresses: instance.addresses.iter().map(ToString::to_string).collect(),
            ports: instance.ports.iter().map(port).collect(),
            labels: texts(&instance.labels),
            locality: instance.locality.clone(),
            network: (&*instance.network).into(),
            weight: instance.weight,
            health: health(view.health),
            node: String::new(),
            workload_name: instance.key.service.to_string(),
            service_account: account.to_string(),
            identity: (!account.is_empty()).then(|| self.identity(instance)),
        }
    }

    fn identity(&self, instance: &Instance) -> SpiffeId {
        SpiffeId::new(&self.trust_domain, &instance.key.namespace, &instance.service_account)
    }
}

/// Converts the health of an instance. A leaving instance drains until its grace time ends.
fn health(health: Health) -> HealthStatus {
    match health {
        Health::Healthy | Health::Preserved => HealthStatus::Healthy,
        Health::Draining => HealthStatus::Deregistering,
        Health::Reported | Health::Lapsed | Health::CheckFailed => HealthStatus::Unhealthy,
    }
}

fn port(port: &Port) -> InstancePort {
    let text = |text: &Arc<str>| (!text.is_empty()).then(|| text.to_string());
    let service = CatalogPort {
        number: port.service_port.get().into(),
        name: text(&port.name),
        protocol: text(&port.protocol),
    };
    InstancePort { service, number: port.number.get().into() }
}

fn texts(texts: &TextMap) -> BTreeMap<String, String> {
    texts.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
}
