//! Builder of an instance from a key and its value.

use super::address::Address;
use super::pattern::{Captures, Field};
use super::place::Place;
use pilotfish_model::{HealthStatus, Locality, Namespace};
use pilotfish_registry::{CatalogInstance, CatalogPort, InstancePort};
use std::collections::BTreeMap;

/// Fields of one key and its value, until they become an instance.
#[derive(Default)]
pub(super) struct Reading {
    pub(super) service: Option<String>,
    pub(super) namespace: Option<String>,
    pub(super) group: Option<String>,
    pub(super) version: Option<String>,
    pub(super) protocol: Option<String>,
    pub(super) region: Option<String>,
    pub(super) zone: Option<String>,
    pub(super) sub_zone: Option<String>,
    pub(super) network: Option<String>,
    pub(super) node: Option<String>,
    pub(super) weight: Option<u32>,
    pub(super) health: Option<HealthStatus>,
    pub(super) labels: BTreeMap<String, String>,
    address: Option<Address>,
    ports: Vec<NamedPort>,
}

/// A port of the instance.
struct NamedPort {
    name: Option<String>,
    number: u32,
    protocol: Option<String>,
}

/// Defaults for fields that neither key nor value has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Defaults {
    /// The namespace of services that have none.
    pub(crate) namespace: Namespace,
    /// The protocol of the schema.
    pub(crate) protocol: Option<&'static str>,
    /// Default port of instances.
    pub(crate) port: Option<u32>,
}

impl Reading {
    /// Starts with the captures of the key.
    pub(super) fn of(captures: Captures) -> Result<Self, String> {
        let mut this = Self::default();
        for (field, text) in captures {
            match field {
                Field::Service | Field::Domain => this.service = Some(text),
                Field::Namespace => this.namespace = Some(text),
                Field::Group => this.group = Some(text),
                Field::Region => this.region = Some(text),
                Field::Zone => this.zone = Some(text),
                Field::SubZone => this.sub_zone = Some(text),
                Field::Protocol => this.protocol = Some(text),
                Field::Address => this.address = Some(Address::parse(&text)?),
                Field::Port => this.port(None, super::address::parse_port(&text)?, None),
                Field::Label(name) => drop(this.labels.insert(name, text)),
                Field::Url => super::dubbo::read(&text, &mut this)?,
                Field::Instance => {}
            }
        }
        Ok(this)
    }

    /// Sets the address; the value's takes precedence over the key's.
    pub(super) fn address(&mut self, address: Address) {
        self.address = Some(address);
    }

    pub(super) fn port(&mut self, name: Option<String>, number: u32, protocol: Option<String>) {
        self.ports.push(NamedPort { name, number, protocol });
    }

    /// Adds one of several URLs of the instance. All must have the same host: an instance is one workload.
    pub(super) fn endpoint(&mut self, url: Address) -> Result<(), String> {
        let number = url.port.ok_or("an endpoint has no port")?;
        if self.address.as_ref().is_some_and(|known| known.host != url.host) {
            return Err("its endpoints have several hosts".to_owned());
        }
        self.port(url.protocol.clone(), number, url.protocol);
        self.address.get_or_insert(Address { host: url.host, port: None, protocol: None });
        Ok(())
    }

    /// Returns the service of the instance.
    pub(super) fn place(&self) -> Option<Place> {
        let service = self.service.clone()?;
        Some(Place { namespace: self.namespace.clone(), group: self.group.clone(), service })
    }

    /// Builds the instance; `defaults` fill in what neither key nor value has.
    pub(super) fn finish(mut self, id: &str, defaults: &Defaults) -> Result<CatalogInstance, String> {
        let address = self.address.take().ok_or("it says no address")?;
        let mut instance = CatalogInstance::new(id, address.host.clone());
        instance.ports = self.instance_ports(&address, defaults)?;
        if let Some(version) = self.version.take() {
            self.labels.entry("version".to_owned()).or_insert(version);
        }
        instance.labels = self.labels;
        let part = |part: &Option<String>| part.as_deref().unwrap_or_default().into();
        instance.locality =
            Locality { region: part(&self.region), zone: part(&self.zone), sub_zone: part(&self.sub_zone) };
        instance.network = self.network.unwrap_or_default().as_str().into();
        instance.node = self.node.unwrap_or_default();
        instance.weight = self.weight.unwrap_or_default();
        instance.health = match (self.health, self.weight) {
            // An explicit weight of 0 takes the instance out of traffic.
            (_, Some(0)) => HealthStatus::Unhealthy,
            (said, _) => said.unwrap_or(HealthStatus::Healthy),
        };
        Ok(instance)
    }

    /// Returns the ports: first the port of the address, then the others in their order.
    fn instance_ports(
        &mut self,
        address: &Address,
        defaults: &Defaults,
    ) -> Result<Vec<InstancePort>, String> {
        let protocol = self.protocol.take();
        let of_address =
            address.port.map(|number| NamedPort { name: None, number, protocol: address.protocol.clone() });
        // The `port` field takes precedence over the same port in the address.
        let known = |port: &NamedPort| self.ports.iter().any(|other| other.number == port.number);
        let mut ports: Vec<NamedPort> = of_address.into_iter().filter(|port| !known(port)).collect();
        ports.append(&mut self.ports);
        if ports.is_empty() {
            let number = defaults.port.ok_or("it says no port; the option instancePort can")?;
            ports.push(NamedPort { name: None, number, protocol: None });
        }
        let port = |(index, port): (usize, NamedPort)| {
            // Attributes of the instance apply to its first port.
            let of_instance = protocol.clone().or_else(|| address.protocol.clone()).filter(|_| index == 0);
            let protocol = port.protocol.or(of_instance).or_else(|| defaults.protocol.map(str::to_owned));
            let service = CatalogPort { number: port.number, name: port.name, protocol };
            InstancePort { service, number: port.number }
        };
        Ok(ports.into_iter().enumerate().map(port).collect())
    }
}
