//! What is read of one key and its value, until it is an instance.

use super::address::Address;
use super::pattern::{Captures, Field};
use super::place::Place;
use pilotfish_model::{HealthStatus, Locality, Namespace};
use pilotfish_registry::{CatalogInstance, CatalogPort, InstancePort};
use std::collections::BTreeMap;

/// See the module.
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

/// What holds where neither key nor value says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Defaults {
    /// The namespace of services that have none.
    pub(crate) namespace: Namespace,
    /// The protocol of the schema.
    pub(crate) protocol: Option<&'static str>,
    /// Where instances listen.
    pub(crate) port: Option<u32>,
}

impl Reading {
    /// What the key says.
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

    /// Where it listens; the value's word counts before the key's.
    pub(super) fn address(&mut self, address: Address) {
        self.address = Some(address);
    }

    /// One more port.
    pub(super) fn port(&mut self, name: Option<String>, number: u32, protocol: Option<String>) {
        self.ports.push(NamedPort { name, number, protocol });
    }

    /// One of several URLs of the instance. They have one host: an instance is one workload.
    pub(super) fn endpoint(&mut self, url: Address) -> Result<(), String> {
        let number = url.port.ok_or("an endpoint has no port")?;
        if self.address.as_ref().is_some_and(|known| known.host != url.host) {
            return Err("its endpoints have several hosts".to_owned());
        }
        self.port(url.protocol.clone(), number, url.protocol);
        self.address.get_or_insert(Address { host: url.host, port: None, protocol: None });
        Ok(())
    }

    /// The service that it belongs to.
    pub(super) fn place(&self) -> Option<Place> {
        let service = self.service.clone()?;
        Some(Place { namespace: self.namespace.clone(), group: self.group.clone(), service })
    }

    /// The instance.
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
            // A weight of 0 that is written is to get nothing.
            (_, Some(0)) => HealthStatus::Unhealthy,
            (said, _) => said.unwrap_or(HealthStatus::Healthy),
        };
        Ok(instance)
    }

    /// Its ports: that of the address first, then the others as they stand.
    fn instance_ports(
        &mut self,
        address: &Address,
        defaults: &Defaults,
    ) -> Result<Vec<InstancePort>, String> {
        let protocol = self.protocol.take();
        let of_address =
            address.port.map(|number| NamedPort { name: None, number, protocol: address.protocol.clone() });
        // An address's port is the same as the field's where both are there.
        let known = |port: &NamedPort| self.ports.iter().any(|other| other.number == port.number);
        let mut ports: Vec<NamedPort> = of_address.into_iter().filter(|port| !known(port)).collect();
        ports.append(&mut self.ports);
        if ports.is_empty() {
            let number = defaults.port.ok_or("it says no port; the option instancePort can")?;
            ports.push(NamedPort { name: None, number, protocol: None });
        }
        let port = |(index, port): (usize, NamedPort)| {
            // What is said of the instance is said of its first port.
            let of_instance = protocol.clone().or_else(|| address.protocol.clone()).filter(|_| index == 0);
            let protocol = port.protocol.or(of_instance).or_else(|| defaults.protocol.map(str::to_owned));
            let service = CatalogPort { number: port.number, name: port.name, protocol };
            InstancePort { service, number: port.number }
        };
        Ok(ports.into_iter().enumerate().map(port).collect())
    }
}
