//! Services of an interface: one for each group and version of its providers.

use super::Variant;
use super::labels::{labels, locality, weight};
use crate::dubbo::{DubboUrl, Instance, Metadata, Override, Provided, default_port, effective, speech};
use crate::mirror::Registrations;
use pilotfish_model::{DubboInterface, HealthStatus, Namespace};
use pilotfish_registry::{CatalogInstance, CatalogPort, CatalogService, InstancePort};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Dubbo's default weight of a provider.
const DEFAULT_WEIGHT: u32 = 100;
/// The serialization that Envoy's Dubbo proxy supports.
const HESSIAN: &str = "hessian2";

/// Ports and providers of a group and version.
#[derive(Debug, Default)]
pub(super) struct Found {
    ports: Vec<CatalogPort>,
    /// By protocol, address and port.
    providers: BTreeMap<Key, Provider>,
}

/// Identity of a provider: one endpoint, even if it is registered several times.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    protocol: String,
    host: String,
    port: u16,
}

#[derive(Debug)]
struct Provider {
    labels: BTreeMap<String, String>,
    locality: pilotfish_model::Locality,
    weight: Option<u32>,
    is_usable: bool,
    is_hessian: bool,
}

pub(super) fn id(interface: &str, variant: &Variant) -> Arc<str> {
    let Variant { group, version } = variant;
    let (slash, colon) = (if group.is_empty() { "" } else { "/" }, if version.is_empty() { "" } else { ":" });
    format!("interface {group}{slash}{interface}{colon}{version}").into()
}

fn host(interface: &str, variant: &Variant) -> String {
    let mut host = interface.to_owned();
    for part in [&variant.group, &variant.version].into_iter().filter(|part| !part.is_empty()) {
        host.push('-');
        host.push_str(&part.replace('.', "-"));
    }
    host
}

/// Returns the services of an interface that have providers.
pub(super) fn services(registered: &Registrations, interface: &str) -> BTreeMap<Variant, Found> {
    let mut found = BTreeMap::new();
    if let Some(known) = registered.interfaces.get(interface) {
        let overrides: Vec<Override> = known.overrides.values().cloned().collect();
        for url in known.providers.values() {
            by_interface(url, &overrides, &mut found);
        }
    }
    let registered_itself: BTreeSet<Key> =
        found.values().flat_map(|found: &Found| found.providers.keys().cloned()).collect();
    for (_, application) in registered.applications_of(interface) {
        for instance in application.instances.values().filter(|instance| instance.is_dubbo()) {
            let revision = instance.stored_revision().and_then(|revision| application.metadata.get(revision));
            match revision {
                Some(metadata) => by_metadata(instance, metadata, interface, &mut found),
                None => by_application(instance, &registered_itself, &mut found),
            }
        }
    }
    for service in found.values_mut() {
        service.set_ports();
    }
    found
}

/// Adds a provider registered by interface.
fn by_interface(url: &DubboUrl, overrides: &[Override], found: &mut BTreeMap<Variant, Found>) {
    let is_provider = url.parameter("category").is_none_or(|category| category == "providers");
    if !is_provider
        || url.port == 0
        || matches!(url.scheme.as_str(), "empty" | "override" | "consumer" | "injvm")
    {
        return;
    }
    let text = |name: &str| url.parameter(name).unwrap_or_default().to_owned();
    let variant = Variant { group: text("group"), version: text("version") };
    let weight = weight(effective(url, overrides, "weight"));
    let is_disabled = effective(url, overrides, "disabled").is_some_and(|value| value == "true");
    // One port may speak several protocols; `ext.protocol` lists the others.
    let more = url.parameter("ext.protocol").into_iter().flat_map(|list| list.split(','));
    for protocol in
        std::iter::once(url.scheme.as_str()).chain(more.map(str::trim).filter(|name| !name.is_empty()))
    {
        let provider = Provider {
            labels: labels(url.parameters()),
            locality: locality(url.parameters()),
            weight,
            is_usable: !is_disabled && !url.is_unset("enabled") && weight != Some(0),
            is_hessian: is_hessian(url.parameters()),
        };
        let key = Key { protocol: protocol.to_ascii_lowercase(), host: url.host.clone(), port: url.port };
        found.entry(variant.clone()).or_default().providers.insert(key, provider);
    }
}

/// Adds the providers of an instance whose metadata lists its services.
fn by_metadata(
    instance: &Instance,
    metadata: &Metadata,
    interface: &str,
    found: &mut BTreeMap<Variant, Found>,
) {
    for provided in metadata.services.iter().filter(|provided| provided.interface == interface) {
        let Provided { group, version, protocol, parameters, .. } = provided;
        let of_protocol =
            instance.ports.iter().find(|port| port.protocol.as_deref() == Some(protocol.as_str()));
        let port = if provided.port == 0 { of_protocol.map_or(0, |port| port.number) } else { provided.port };
        if port == 0 {
            continue;
        }
        let weight = weight(parameters.get("weight").map(String::as_str));
        let described: BTreeMap<String, String> = instance
            .metadata
            .iter()
            .chain(parameters)
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let provider = Provider {
            labels: labels(&described),
            locality: locality(&described),
            weight,
            is_usable: instance.is_up() && weight != Some(0),
            is_hessian: is_hessian(parameters),
        };
        let variant = Variant { group: group.clone(), version: version.clone() };
        let key = Key { protocol: protocol.clone(), host: instance.address.clone(), port };
        found.entry(variant).or_default().providers.entry(key).or_insert(provider);
    }
}

/// Adds an instance whose metadata is not in ZooKeeper: all its ports provide the interface, without group
/// and version, except those already known.
fn by_application(instance: &Instance, known: &BTreeSet<Key>, found: &mut BTreeMap<Variant, Found>) {
    for port in &instance.ports {
        let Some(protocol) = port.protocol.clone() else { continue };
        let key = Key { protocol, host: instance.address.clone(), port: port.number };
        if known.contains(&key) {
            continue;
        }
        let provider = Provider {
            labels: labels(&instance.metadata),
            locality: locality(&instance.metadata),
            weight: weight(instance.metadata.get("weight").map(String::as_str)),
            is_usable: instance.is_up(),
            is_hessian: true,
        };
        found.entry(Variant::default()).or_default().providers.entry(key).or_insert(provider);
    }
}

/// True if consumers will use Hessian, which Envoy supports: they use the provider's first preference.
fn is_hessian(parameters: &BTreeMap<String, String>) -> bool {
    let said = |name: &str| parameters.get(name).filter(|value| !value.is_empty());
    let preferred = said("prefer.serialization").and_then(|list| list.split(',').next());
    let first = preferred.or(said("serialization").map(String::as_str));
    first.is_none_or(|name| name.trim() == HESSIAN)
}

impl Found {
    /// A service with known ports and no providers.
    pub(super) fn empty(ports: Vec<CatalogPort>) -> Self {
        Self { ports, providers: BTreeMap::new() }
    }

    /// Sets one port for each protocol. A `dubbo` port becomes TCP if any provider uses a serialization that
    /// Envoy does not support.
    fn set_ports(&mut self) {
        let opaque =
            self.providers.iter().any(|(key, provider)| key.protocol == "dubbo" && !provider.is_hessian);
        let mut ports: BTreeMap<u32, CatalogPort> = BTreeMap::new();
        for key in self.providers.keys() {
            let port = port(&key.protocol, key.port, opaque);
            ports.entry(port.number).or_insert(port);
        }
        self.ports = ports.into_values().collect();
    }

    pub(super) fn ports(&self) -> &[CatalogPort] {
        &self.ports
    }

    pub(super) fn into_service(
        self,
        interface: &str,
        variant: &Variant,
        namespace: Namespace,
    ) -> CatalogService {
        let mut service = CatalogService::new(id(interface, variant), host(interface, variant), namespace);
        // Weights are used only if they differ: providers without one then get Dubbo's default.
        let is_weighted = self.providers.values().any(|provider| provider.weight.is_some());
        let mut described = BTreeMap::from([("interface".to_owned(), interface.to_owned())]);
        for (key, value) in [("group", &variant.group), ("version", &variant.version)] {
            if !value.is_empty() {
                described.insert(key.to_owned(), value.clone());
            }
        }
        service.labels = described;
        service.dubbo = Some(Arc::new(DubboInterface {
            interface: interface.into(),
            group: variant.group.as_str().into(),
            version: variant.version.as_str().into(),
        }));
        for (key, provider) in self.providers {
            let mut instance =
                CatalogInstance::new(format!("{}://{}:{}", key.protocol, key.host, key.port), key.host);
            let lead = port(&key.protocol, key.port, false).number;
            let lead = self.ports.iter().find(|port| port.number == lead).cloned().unwrap_or_default();
            instance.ports.push(InstancePort { service: lead, number: key.port.into() });
            instance.labels = provider.labels;
            instance.locality = provider.locality;
            instance.weight = if is_weighted { provider.weight.unwrap_or(DEFAULT_WEIGHT) } else { 0 };
            if !provider.is_usable {
                instance.health = HealthStatus::Unhealthy;
            }
            service.instances.push(instance);
        }
        service.ports = self.ports;
        service
    }
}

/// Returns the service port of a protocol.
fn port(protocol: &str, own: u16, is_opaque: bool) -> CatalogPort {
    let known = speech(protocol);
    let spoken = if is_opaque && known.protocol == "dubbo" { "tcp" } else { known.protocol };
    CatalogPort {
        number: default_port(known, own),
        name: Some(known.name.to_owned()),
        protocol: Some(spoken.to_owned()),
    }
}
