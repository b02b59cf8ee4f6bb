//! Mapping of Polaris services and instances to the catalog.

use crate::proto::{Instance, Location};
use pilotfish_model::{HealthStatus, Locality};
use pilotfish_registry::{CatalogInstance, CatalogService};
use std::collections::BTreeMap;
use std::sync::Arc;

const SERVICE: &str = "{service}";
const NAMESPACE: &str = "{namespace}";

/// Options of the mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    host: String,
}

impl Default for Mapping {
    fn default() -> Self {
        Self { host: format!("{SERVICE}.{NAMESPACE}.polaris") }
    }
}

impl Mapping {
    /// Parses a template for host names, as in `{service}.{namespace}.polaris`.
    pub(crate) fn parse(host: &str) -> Result<Self, String> {
        let rest = host.replace(SERVICE, "").replace(NAMESPACE, "");
        if rest.contains(['{', '}']) {
            return Err(format!("known names are {SERVICE} and {NAMESPACE}"));
        }
        if host.contains(SERVICE) {
            Ok(Self { host: host.to_owned() })
        } else {
            Err(format!("it has no {SERVICE}"))
        }
    }

    /// Returns the catalog id of a service.
    pub(crate) fn id(&self, namespace: &str, name: &str) -> Arc<str> {
        format!("{namespace}/{name}").into()
    }

    /// Returns a service with its instances. Instances that are isolated or have the weight 0 get no traffic
    /// in Polaris, and are left out, as in its own xDS.
    pub(crate) fn service(
        &self,
        namespace: &str,
        name: &str,
        metadata: &BTreeMap<String, String>,
        instances: &[Instance],
    ) -> CatalogService {
        let host = self.host.replace(SERVICE, name).replace(NAMESPACE, namespace);
        let mut service = CatalogService::new(self.id(namespace, name), host, namespace);
        service.labels.clone_from(metadata);
        let is_used = |instance: &&Instance| instance.isolate != Some(true) && instance.weight != Some(0);
        service.instances = instances.iter().filter(is_used).map(catalog_instance).collect();
        service
    }
}

fn catalog_instance(given: &Instance) -> CatalogInstance {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (host, number) = (text(&given.host), given.port.unwrap_or_default());
    let id = given.id.clone().filter(|id| !id.is_empty()).unwrap_or_else(|| format!("{host}:{number}"));
    let protocol = given.protocol.as_deref().filter(|protocol| !protocol.is_empty());
    let mut instance = CatalogInstance::new(id, host).with_port(number, protocol.map(known_protocol));
    instance.weight = given.weight.unwrap_or_default();
    // A missing value counts as healthy, as in Polaris's own HTTP responses.
    instance.health =
        if given.healthy == Some(false) { HealthStatus::Unhealthy } else { HealthStatus::Healthy };
    // The server adds empty entries for missing fields.
    let labels = given.metadata.iter().filter(|(_, value)| !value.is_empty());
    instance.labels = labels.map(|(name, value)| (name.clone(), value.clone())).collect();
    if let Some(version) = given.version.clone().filter(|version| !version.is_empty()) {
        instance.labels.entry("version".to_owned()).or_insert(version);
    }
    instance.locality = given.location.as_ref().map(locality).unwrap_or_default();
    instance
}

fn locality(location: &Location) -> Locality {
    let part = |part: &Option<String>| part.as_deref().unwrap_or_default().into();
    Locality { region: part(&location.region), zone: part(&location.zone), sub_zone: part(&location.campus) }
}

/// Converts a protocol to Istio's terms: Polaris's Kubernetes controller writes `http/TCP`, name and
/// transport of a port.
fn known_protocol(text: &str) -> &str {
    match text.split_once('/') {
        Some((name, "TCP")) if !name.is_empty() => name,
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(host: &str) -> Instance {
        Instance {
            id: Some(host.to_owned()),
            host: Some(host.to_owned()),
            port: Some(80),
            ..Instance::default()
        }
    }

    #[test]
    fn instances_are_mapped() {
        let full = Instance {
            protocol: Some("http/TCP".to_owned()),
            version: Some("v1".to_owned()),
            weight: Some(7),
            healthy: Some(false),
            location: Some(Location {
                region: Some("r".to_owned()),
                zone: Some("z".to_owned()),
                campus: Some("c".to_owned()),
            }),
            metadata: [("a".to_owned(), "1".to_owned()), ("campus".to_owned(), String::new())].into(),
            ..instance("10.0.0.1")
        };
        let isolated = Instance { isolate: Some(true), ..instance("10.0.0.2") };
        let without_weight = Instance { weight: Some(0), ..instance("10.0.0.3") };
        let plain = Instance { id: None, healthy: Some(true), ..instance("10.0.0.4") };
        let all = [full, isolated, without_weight, plain];
        let service = Mapping::default().service("shop", "web", &BTreeMap::new(), &all);
        assert_eq!(
            (&*service.id, &*service.host, service.namespace.as_str()),
            ("shop/web", "web.shop.polaris", "shop")
        );
        let ids: Vec<&str> = service.instances.iter().map(|instance| &*instance.id).collect();
        assert_eq!(ids, ["10.0.0.1", "10.0.0.4:80"]);
        let first = service.instances.first().unwrap();
        assert_eq!(
            (first.weight, first.health, first.locality.to_string()),
            (7, HealthStatus::Unhealthy, "r/z/c".into())
        );
        let labels: Vec<_> = first.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(labels, ["a=1", "version=v1"]);
        let port = first.ports.first().unwrap();
        assert_eq!((port.number, port.service.protocol.as_deref()), (80, Some("http")));
    }

    #[test]
    fn templates_name_the_service() {
        assert_eq!(
            Mapping::parse("{service}.mesh").map(|mapping| mapping.host),
            Ok("{service}.mesh".to_owned())
        );
        assert!(Mapping::parse("{namespace}.mesh").is_err());
        assert!(Mapping::parse("{service}.{zone}").is_err());
    }
}
