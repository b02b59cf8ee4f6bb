//! Mapping of Consul's services to catalog services: that of Istio's former Consul registry, with options.

use crate::answer::{Entry, Place};
use crate::health::health;
use pilotfish_model::{Locality, Namespace, Protocol, Resolution};
use pilotfish_registry::{CatalogInstance, CatalogPort, CatalogService, InstancePort};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Names of tagged addresses with virtual IPs: Consul's own, and a manually set one.
const VIRTUAL: [&str; 2] = ["virtual", "consul-virtual"];

/// Options of the mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// Host template with `{service}` and `{datacenter}`.
    pub(crate) host: String,
    pub(crate) namespace: Namespace,
    pub(crate) namespace_label: Option<String>,
    /// Names of tagged addresses, in order of preference.
    pub(crate) addresses: Vec<String>,
    pub(crate) virtual_addresses: bool,
    pub(crate) separator: String,
    pub(crate) plain_tags: bool,
    pub(crate) meta_labels: bool,
    pub(crate) external_meta: String,
    pub(crate) ports: PortMapping,
}

/// Options of the port mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortMapping {
    pub(crate) protocol_meta: String,
    /// The default protocol; also names the port.
    pub(crate) default_protocol: Option<Protocol>,
    pub(crate) name: Option<String>,
    pub(crate) default_port: Option<u16>,
    pub(crate) meta_prefix: Option<String>,
    pub(crate) addresses: Vec<String>,
}

/// Known ports of the services of one name, by id: a service that has lost its last instance keeps them, so
/// that proxies get an empty endpoint list instead of losing listener and cluster.
pub(crate) type PortMemory = BTreeMap<Arc<str>, Vec<CatalogPort>>;

impl Mapping {
    /// Returns the services of one name, from its instances in each data centre that lists it. There are
    /// several if hosts or namespaces differ.
    pub(crate) fn services<'a>(
        &self,
        name: &str,
        lists: impl IntoIterator<Item = (&'a str, &'a [Entry])>,
        memory: &mut PortMemory,
    ) -> Vec<CatalogService> {
        let mut services: BTreeMap<Arc<str>, CatalogService> = BTreeMap::new();
        let mut alive = BTreeSet::new();
        for (datacenter, entries) in lists {
            // Plain applications have no kind; proxies and gateways of Consul's own mesh do.
            for entry in entries.iter().filter(|entry| ["", "typical"].contains(&entry.service.kind.as_str()))
            {
                let own = Some(entry.node.datacenter.as_str()).filter(|name| !name.is_empty());
                let datacenter = own.unwrap_or(datacenter);
                alive.insert(if self.has_datacenter() { datacenter } else { "" });
                self.add(name, datacenter, entry, &mut services);
            }
        }
        // Services moved to another namespace are removed; services without instances stay, empty.
        memory.retain(|id, _| services.contains_key(id) || !alive.contains(self.parts_of(id, name).0));
        for (id, ports) in memory.iter() {
            if !services.contains_key(id) {
                services.insert(id.clone(), self.empty(id, name, ports));
            }
        }
        for service in services.values_mut() {
            settle(service, memory);
        }
        services.into_values().filter(|service| !service.ports.is_empty()).collect()
    }

    fn has_datacenter(&self) -> bool {
        self.host.contains("{datacenter}")
    }

    /// Returns a service without instances, with its previous name and ports.
    fn empty(&self, id: &Arc<str>, name: &str, ports: &[CatalogPort]) -> CatalogService {
        let (datacenter, namespace) = self.parts_of(id, name);
        let namespace = if namespace.is_empty() { self.namespace.clone() } else { namespace.into() };
        let mut service = CatalogService::new(id.clone(), self.host_of(name, datacenter), namespace);
        service.ports = ports.to_vec();
        service
    }

    /// Adds one instance to its service.
    fn add(
        &self,
        name: &str,
        datacenter: &str,
        entry: &Entry,
        services: &mut BTreeMap<Arc<str>, CatalogService>,
    ) {
        let labels = self.labels(entry);
        let namespace = self.namespace_of(entry);
        let id = self.id(name, datacenter, &namespace);
        let host = self.host_of(name, datacenter);
        let service = services.entry(id.clone()).or_insert_with(|| CatalogService::new(id, host, namespace));
        if entry.service.meta.contains_key(&self.external_meta) {
            service.mesh_external = true;
            service.resolution = Resolution::Passthrough;
        }
        if self.virtual_addresses {
            let addresses = VIRTUAL.iter().filter_map(|name| entry.service.tagged_addresses.get(*name));
            service.addresses.extend(addresses.map(|tagged| tagged.address.clone()));
        }
        let (health, weight) = health(&entry.checks, entry.service.weights);
        for (number, (address, ports)) in self.places(entry).into_iter().enumerate() {
            let node = &entry.node.node;
            // An instance with several addresses becomes several endpoints.
            let suffix = if number == 0 { String::new() } else { format!("@{address}") };
            let id = format!("{datacenter}/{node}/{}{suffix}", entry.service.id);
            service.instances.push(CatalogInstance {
                ports,
                labels: labels.clone(),
                locality: locality(entry, datacenter),
                weight,
                health,
                node: node.clone(),
                ..CatalogInstance::new(id, address)
            });
        }
    }

    /// Returns the catalog id of a service: its name, with data centre and namespace if they distinguish
    /// services of one name.
    fn id(&self, name: &str, datacenter: &str, namespace: &Namespace) -> Arc<str> {
        let datacenter = if self.has_datacenter() { datacenter } else { "" };
        let namespace = if self.namespace_label.is_some() { namespace.as_str() } else { "" };
        match (datacenter, namespace) {
            ("", "") => name.into(),
            (datacenter, namespace) => format!("{name}/{datacenter}/{namespace}").into(),
        }
    }

    /// Returns data centre and namespace of an id; each is empty if it is not part of the id.
    fn parts_of<'a>(&self, id: &'a str, name: &str) -> (&'a str, &'a str) {
        let rest = id.strip_prefix(name).and_then(|rest| rest.strip_prefix('/'));
        rest.and_then(|rest| rest.split_once('/')).unwrap_or_default()
    }

    fn host_of(&self, name: &str, datacenter: &str) -> String {
        self.host.replace("{service}", name).replace("{datacenter}", datacenter)
    }

    fn namespace_of(&self, entry: &Entry) -> Namespace {
        let named = self.namespace_label.as_ref().and_then(|key| {
            let tag = entry.service.tags.iter().filter_map(|tag| tag.split_once(self.separator.as_str()));
            let tag = tag.filter(|(name, _)| name == key).map(|(_, value)| value).next();
            tag.or_else(|| entry.service.meta.get(key).map(String::as_str))
        });
        // An invalid namespace would create a service that no configuration can refer to.
        let is_name = |text: &&str| {
            let known = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
            (1..=63).contains(&text.len())
                && text.bytes().all(known)
                && !text.starts_with('-')
                && !text.ends_with('-')
        };
        named.filter(is_name).map_or_else(|| self.namespace.clone(), Namespace::from)
    }

    /// Returns the labels: tags `key|value`, and metadata with other keys.
    fn labels(&self, entry: &Entry) -> BTreeMap<String, String> {
        let mut labels = BTreeMap::new();
        if self.meta_labels {
            labels.extend(entry.service.meta.clone());
        }
        for tag in &entry.service.tags {
            match tag.split_once(self.separator.as_str()) {
                Some((key, value)) => labels.insert(key.to_owned(), value.to_owned()),
                None if self.plain_tags => labels.insert(tag.clone(), "true".to_owned()),
                None => None,
            };
        }
        labels
    }

    /// Returns the addresses of an instance, each with its ports; the primary address first.
    fn places(&self, entry: &Entry) -> Vec<(String, Vec<InstancePort>)> {
        let (address, port) = self.address(entry);
        let mut places = vec![(address.to_owned(), Vec::new())];
        let protocol = entry.service.meta.get(&self.ports.protocol_meta);
        self.put(&mut places, address, port, self.ports.main(port, protocol));
        for (name, number) in self.ports.of_meta(entry) {
            self.put(&mut places, address, number, CatalogPort { number, name: Some(name), protocol: None });
        }
        for name in &self.ports.addresses {
            let Some(tagged) = entry.service.tagged_addresses.get(name) else { continue };
            let at = if tagged.address.is_empty() { address } else { &tagged.address };
            let number = u32::try_from(tagged.port).unwrap_or_default();
            let port = CatalogPort { number, name: Some(name.clone()), protocol: None };
            self.put(&mut places, at, number, port);
        }
        places
    }

    fn put(
        &self,
        places: &mut Vec<(String, Vec<InstancePort>)>,
        address: &str,
        number: u32,
        service: CatalogPort,
    ) {
        if !(1..=65535).contains(&number) {
            return;
        }
        let port = InstancePort { service, number };
        match places.iter_mut().find(|(known, _)| known == address) {
            Some((_, ports)) if ports.iter().any(|known| known.number == number) => {}
            Some((_, ports)) => ports.push(port),
            None => places.push((address.to_owned(), vec![port])),
        }
    }

    /// Returns address and port: from the first matching tagged address, else the service, else its node.
    fn address<'a>(&self, entry: &'a Entry) -> (&'a str, u32) {
        let own = &entry.service;
        let port = u32::try_from(own.port).unwrap_or_default();
        let port = if port == 0 { self.ports.default_port.map_or(0, u32::from) } else { port };
        for name in &self.addresses {
            if let Some(tagged) = own.tagged_addresses.get(name).filter(|tagged| !tagged.address.is_empty()) {
                let number = u32::try_from(tagged.port).unwrap_or_default();
                return (&tagged.address, if number == 0 { port } else { number });
            }
            // A tagged address of the node applies only if the service has no address of its own.
            let node = entry.node.tagged_addresses.get(name).filter(|address| !address.is_empty());
            if let (Some(address), true) = (node, own.address.is_empty()) {
                return (address, port);
            }
        }
        let address = if own.address.is_empty() { &entry.node.address } else { &own.address };
        (address, port)
    }
}

/// Sorts a service, and remembers its ports.
fn settle(service: &mut CatalogService, memory: &mut PortMemory) {
    service.addresses.sort();
    service.addresses.dedup();
    let mut own: BTreeMap<u32, CatalogPort> = BTreeMap::new();
    for lead in service.instances.iter().flat_map(|instance| &instance.ports) {
        own.entry(lead.service.number).or_insert_with(|| lead.service.clone());
    }
    if !own.is_empty() {
        service.ports = own.into_values().collect();
        memory.insert(service.id.clone(), service.ports.clone());
    }
}

/// Returns the locality of the instance or its node, else the data centre as region.
fn locality(entry: &Entry, datacenter: &str) -> Locality {
    let is_known = |place: &&Place| !place.region.is_empty() || !place.zone.is_empty();
    let known = [&entry.service.locality, &entry.node.locality].into_iter().find(is_known);
    known.map_or_else(
        || Locality { region: datacenter.into(), ..Locality::default() },
        |place| Locality {
            region: place.region.as_str().into(),
            zone: place.zone.as_str().into(),
            ..Locality::default()
        },
    )
}

impl PortMapping {
    /// Returns the main port of an instance, named after its protocol.
    fn main(&self, number: u32, protocol: Option<&String>) -> CatalogPort {
        let known =
            protocol.map(|text| Protocol::parse(text)).filter(|known| *known != Protocol::Unsupported);
        let named = known.or(self.default_protocol).map(|known| known.as_str().to_ascii_lowercase());
        let protocol = known.map(|known| known.as_str().to_ascii_lowercase());
        CatalogPort { number, name: self.name.clone().or(named), protocol }
    }

    /// Returns further ports from the metadata.
    fn of_meta<'a>(&'a self, entry: &'a Entry) -> impl Iterator<Item = (String, u32)> + 'a {
        let prefix = self.meta_prefix.as_deref();
        entry.service.meta.iter().filter_map(move |(key, value)| {
            let name = key.strip_prefix(prefix?)?;
            Some((name.to_owned(), value.parse().ok()?)).filter(|(name, _)| !name.is_empty())
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;
