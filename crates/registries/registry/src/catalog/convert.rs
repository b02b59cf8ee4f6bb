//! Conversion of a product's service to a service, endpoints and workloads of the model.

use super::entry::{CatalogInstance, CatalogPort, CatalogService, InstancePort};
use super::names;
use super::options::CatalogOptions;
use crate::labels;
use crate::live::RegistryBatch;
use pilotfish_model::{
    Endpoint, HealthStatus, Hostname, LabelMap, Labels, Locality, Origin, Port, PortId, Protocol, Resolution,
    Service, ServiceKey, ShardKey, TlsMode, Transport, Workload,
};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Limit on the problems that are kept of a service.
const MAX_PROBLEMS: usize = 5;
/// Limit on the ports of a service.
const MAX_PORTS: usize = 256;

/// Result of the conversion of a service.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Converted {
    /// `None` if the product's host name cannot be converted.
    pub(super) content: Option<Arc<Content>>,
    /// Endpoints that may receive traffic.
    pub(super) usable: usize,
    pub(super) instances: usize,
    /// Problems of the service, one line each.
    pub(super) problems: Box<[Arc<str>]>,
}

/// Content of a service that is sent.
#[derive(Debug, PartialEq)]
pub(super) struct Content {
    pub(super) key: ServiceKey,
    service: Arc<Service>,
    endpoints: Arc<[Arc<Endpoint>]>,
    workloads: Box<[Arc<Workload>]>,
}

impl Content {
    /// Adds the differences from `before`, the content sent last, to a batch.
    pub(super) fn set(&self, before: Option<&Self>, batch: &mut RegistryBatch) {
        if before.is_none_or(|before| before.service != self.service) {
            batch.set_service(self.service.clone());
        }
        if before.is_none_or(|before| before.endpoints != self.endpoints) {
            batch.set_endpoints(self.key.clone(), self.endpoints.clone());
        }
        let known = |workload: &&Arc<Workload>| before.is_some_and(|before| before.has(workload));
        for workload in self.workloads.iter().filter(|workload| !known(workload)) {
            batch.set_workload(workload.clone());
        }
    }

    fn has(&self, workload: &Arc<Workload>) -> bool {
        let at = self.workloads.binary_search_by(|known| known.key.cmp(&workload.key));
        at.ok().and_then(|at| self.workloads.get(at)) == Some(workload)
    }

    /// Adds removals of everything that `now` lacks to a batch.
    pub(super) fn remove(&self, now: Option<&Self>, batch: &mut RegistryBatch) {
        if now.is_none() {
            batch.remove_service(&self.key);
        }
        let names = |workload: &Workload| {
            now.is_some_and(|now| {
                now.workloads.binary_search_by(|known| known.key.cmp(&workload.key)).is_ok()
            })
        };
        for workload in self.workloads.iter().filter(|workload| !names(workload)) {
            batch.remove_workload(workload.key.clone());
        }
    }

    /// Shares the allocations of values that are equal in `before`.
    fn share(&mut self, before: &Self) {
        if self.service == before.service {
            self.service.clone_from(&before.service);
        }
        let old: BTreeMap<_, _> = before.workloads.iter().map(|workload| (&workload.key, workload)).collect();
        for workload in &mut self.workloads {
            if let Some(known) = old.get(&workload.key).filter(|known| **known == workload) {
                *workload = (*known).clone();
            }
        }
        if self.endpoints == before.endpoints {
            self.endpoints.clone_from(&before.endpoints);
            return;
        }
        let place = |endpoint: &Endpoint| (endpoint.attributes.provenance.clone(), endpoint.service_port_id);
        let old: BTreeMap<_, _> =
            before.endpoints.iter().map(|endpoint| (place(endpoint), endpoint)).collect();
        let shared = self.endpoints.iter().map(|endpoint| {
            let known = old.get(&place(endpoint)).filter(|known| **known == endpoint);
            known.map_or_else(|| endpoint.clone(), |known| (*known).clone())
        });
        self.endpoints = shared.collect();
    }
}

/// Converter of the services of one registry.
pub(super) struct Converter {
    shard: ShardKey,
    options: CatalogOptions,
}

/// Problems of the service that is being converted.
struct Findings<'a> {
    id: &'a str,
    lines: Vec<Arc<str>>,
    unlisted: usize,
}

impl Findings<'_> {
    fn note(&mut self, problem: impl std::fmt::Display) {
        if self.lines.len() < MAX_PROBLEMS {
            self.lines.push(format!("{}: {problem}", self.id).into());
        } else {
            self.unlisted += 1;
        }
    }

    fn finish(mut self) -> Box<[Arc<str>]> {
        if self.unlisted > 0 {
            self.lines.push(format!("{}: {} more of the kind", self.id, self.unlisted).into());
        }
        self.lines.into()
    }
}

/// Ports of a service, by number and transport protocol.
type Ports = BTreeMap<PortId, Port>;

impl Converter {
    pub(super) fn new(shard: ShardKey, options: CatalogOptions) -> Self {
        Self { shard, options }
    }

    pub(super) const fn shard(&self) -> &ShardKey {
        &self.shard
    }

    /// Converts a service. Values that are equal in `before` share its allocations.
    pub(super) fn convert(&self, mut given: CatalogService, before: Option<&Converted>) -> Converted {
        let id = given.id.clone();
        let mut findings = Findings { id: &id, lines: Vec::new(), unlisted: 0 };
        let hostname = names::hostname(&given.host);
        let Some(hostname) = hostname else {
            findings.note(format_args!(
                "left out: {} is no host name, and none can be made of it",
                names::short(&given.host)
            ));
            let instances = given.instances.len();
            return Converted { instances, problems: findings.finish(), ..Converted::default() };
        };
        if !hostname.as_str().eq_ignore_ascii_case(given.host.trim_end_matches('.')) {
            findings.note(format_args!(
                "its host {} is no host name, and became {hostname}",
                names::short(&given.host)
            ));
        }
        given.instances.sort_by(|a, b| a.id.cmp(&b.id));
        given.instances.dedup_by(|a, b| a.id == b.id);
        self.override_ports(&mut given);
        let ports = self.ports(&given, &mut findings);
        let mut by_name = false;
        let (mut endpoints, mut workloads) = (Vec::new(), Vec::new());
        let instances = given.instances.len();
        for instance in std::mem::take(&mut given.instances) {
            let leads = instance.ports.clone();
            let health = instance.health;
            let Some(workload) = self.workload(&given, instance, &mut findings) else { continue };
            by_name |= workload.is_dns_only();
            endpoints.extend(leads.iter().filter_map(|lead| endpoint(&workload, &ports, lead, health)));
            workloads.push(Arc::new(workload));
        }
        let service = self.service(given, hostname, ports, by_name);
        let key = service.key();
        let usable = endpoints.iter().filter(|endpoint| is_usable(endpoint.health)).count();
        let mut content = Content {
            key,
            service: Arc::new(service),
            endpoints: endpoints.into_iter().map(Arc::new).collect(),
            workloads: workloads.into(),
        };
        let before = before.and_then(|before| before.content.as_ref());
        if let Some(before) = before {
            content.share(before);
        }
        Converted { content: Some(Arc::new(content)), usable, instances, problems: findings.finish() }
    }

    /// Applies the option `port`: it replaces the service port of the first port of each instance. A port
    /// that the service declares with the replaced number gets the new number, too; without instances, the
    /// first declared port gets it.
    fn override_ports(&self, given: &mut CatalogService) {
        let Some(number) = self.options.port else { return };
        let mut written: Vec<u32> = Vec::new();
        for lead in given.instances.iter_mut().filter_map(|instance| instance.ports.first_mut()) {
            written.push(std::mem::replace(&mut lead.service.number, number));
        }
        if written.is_empty() {
            written.extend(given.ports.first().map(|port| port.number));
        }
        for port in given.ports.iter_mut().filter(|port| written.contains(&port.number)) {
            port.number = number;
        }
    }

    /// Returns the ports of a service: its own, then those of its instances. The first port with a number and
    /// transport protocol counts; a port without a protocol stands for any port with its number.
    fn ports(&self, given: &CatalogService, findings: &mut Findings<'_>) -> Ports {
        let mut ports = Ports::new();
        let leads =
            given.instances.iter().flat_map(|instance| instance.ports.iter().map(|lead| &lead.service));
        for port in given.ports.iter().chain(leads) {
            if described(&ports, port).is_some() {
                continue;
            }
            if !(1..=65535).contains(&port.number) {
                findings.note(format_args!("the port {} is left out: not from 1 to 65535", port.number));
            } else if ports.len() == MAX_PORTS {
                findings.note(format_args!(
                    "the port {} is left out: a service has at most {MAX_PORTS}",
                    port.number
                ));
            } else {
                let port = self.port(port, &ports);
                ports.insert(port.id(), port);
            }
        }
        ports
    }

    fn port(&self, given: &CatalogPort, others: &Ports) -> Port {
        let number = given.number;
        let protocol = self.protocol(given);
        let name = given.name.as_deref().filter(|name| !name.is_empty());
        let taken = |name: &str| others.values().any(|port| &*port.name == name);
        // Named after the protocol, as in Istio's adapters, because endpoints of other registries match ports
        // by name.
        let base = name.map_or_else(|| port_name(protocol), str::to_owned);
        let name: Arc<str> = if taken(&base) { format!("{base}-{number}").into() } else { base.into() };
        Port { number, name, protocol, target_port: None }
    }

    /// Returns the product's protocol, else the one of the port's name or number as for Kubernetes Services,
    /// else the option.
    fn protocol(&self, given: &CatalogPort) -> Protocol {
        let said = given.protocol.as_deref().map_or(Protocol::Unsupported, Protocol::of_registry);
        if said != Protocol::Unsupported {
            return said;
        }
        let name = given.name.as_deref().unwrap_or_default();
        match Protocol::of_kubernetes_port(given.number, name, "TCP", None) {
            Protocol::Unsupported => self.options.protocol,
            inferred => inferred,
        }
    }

    fn service(&self, given: CatalogService, hostname: Hostname, ports: Ports, by_name: bool) -> Service {
        let ports: Arc<[Port]> = ports.into_values().collect();
        let origin = Origin::registered(self.shard.clone(), given.id);
        let mut service = Service::registered(self.shard.provider, hostname, given.namespace, ports, origin);
        service.resolution = match given.resolution {
            Resolution::ClientSideLB if by_name => Resolution::DNSLB,
            as_given => as_given,
        };
        service.mesh_external = given.mesh_external;
        service.dubbo = given.dubbo;
        service.labels = label_map(given.labels);
        let addresses: Arc<[Arc<str>]> =
            given.addresses.iter().filter(|text| is_address(text)).map(|text| text.as_str().into()).collect();
        if let Some(first) = addresses.first() {
            service.default_address = first.clone();
            service.addresses.insert(self.shard.cluster.clone(), addresses);
        }
        service
    }

    /// Returns the workload of an instance; `None` if it has no usable address.
    fn workload(
        &self,
        service: &CatalogService,
        given: CatalogInstance,
        findings: &mut Findings<'_>,
    ) -> Option<Workload> {
        let addresses: Arc<[Arc<str>]> = match addresses(&given.addresses) {
            Ok(addresses) => addresses,
            Err(text) => {
                findings.note(format_args!("the instance {} is left out: {text}", names::short(&given.id)));
                return None;
            }
        };
        let name = format!("{}/{}", service.id, given.id);
        let mut workload = Workload::registered(&self.shard, service.namespace.clone(), name, addresses);
        let own = label_map(given.labels);
        let node = labels::text(&given.node);
        workload.locality = match labels::locality(&own) {
            Some(locality) if given.locality == Locality::default() => locality,
            _ => given.locality,
        };
        workload.labels =
            labels::augment(&own, &self.shard.cluster, &workload.locality, &node, &given.network);
        workload.tls_mode = labels::tls_mode(&own).unwrap_or(TlsMode::Disabled);
        workload.network = given.network;
        workload.weight = given.weight;
        workload.service_account = labels::text(&given.service_account);
        workload.identity = given.identity;
        workload.ready = is_usable(given.health);
        workload.workload_name = match &*given.workload_name {
            "" => service.id.clone(),
            own => own.into(),
        };
        workload.node = node;
        Some(workload)
    }
}

/// Finds the port of the service that describes a product's port.
fn described<'a>(ports: &'a Ports, port: &CatalogPort) -> Option<&'a Port> {
    let of = |transport| ports.get(&PortId { number: port.number, transport });
    match port.protocol.as_deref().map(Protocol::of_registry) {
        None | Some(Protocol::Unsupported) => of(Transport::Tcp).or_else(|| of(Transport::Udp)),
        Some(said) => of(said.transport()),
    }
}

fn endpoint(
    workload: &Workload,
    ports: &Ports,
    lead: &InstancePort,
    health: HealthStatus,
) -> Option<Endpoint> {
    let port = described(ports, &lead.service)?;
    if !(1..=65535).contains(&lead.number) {
        return None;
    }
    let mut endpoint = workload.endpoint(port, lead.number);
    endpoint.health = labels::health(&workload.labels, health);
    Some(endpoint)
}

fn is_usable(health: HealthStatus) -> bool {
    use HealthStatus::{Deregistering, Draining, Healthy, Unknown};
    matches!(health, Healthy | Unknown | Draining | Deregistering)
}

fn label_map(given: BTreeMap<String, String>) -> Labels {
    let (kept, _left_out) = names::labels(given);
    let kept: LabelMap = kept.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    Arc::new(kept)
}

/// Returns the addresses of an instance: its IP addresses, or one host name.
fn addresses(given: &[String]) -> Result<Arc<[Arc<str>]>, String> {
    let ips: Arc<[Arc<str>]> = given.iter().filter_map(|text| ip(text)).collect();
    if !ips.is_empty() {
        return Ok(ips);
    }
    match given.iter().find(|text| !text.is_empty()) {
        None => Err("it has no address".to_owned()),
        Some(text) if text.parse::<IpAddr>().is_ok() => Err(format!("its address {text} stands for any")),
        Some(text) => match Hostname::parse(text) {
            Ok(name) if !name.is_wildcard() => Ok(Arc::from([name.text()])),
            _ => Err(format!("its address {} is neither an IP nor a host name", names::short(text))),
        },
    }
}

fn ip(text: &str) -> Option<Arc<str>> {
    let ip: IpAddr = text.parse().ok()?;
    (!ip.is_unspecified()).then(|| ip.to_string().into())
}

fn is_address(text: &str) -> bool {
    ip(text).is_some()
}

/// Returns the name of a port without one, by its protocol.
fn port_name(protocol: Protocol) -> String {
    match protocol {
        Protocol::Unsupported => "default".to_owned(),
        known => known.as_str().to_ascii_lowercase(),
    }
}
