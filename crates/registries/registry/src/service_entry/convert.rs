//! Conversion of ServiceEntries to services and inline endpoints of the model.

use crate::labels;
use crate::settings::RegistrySettings;
use ipnet::IpNet;
use pilotfish_config::networking::{self, Location, Resolution as Written, ServiceEntry, WorkloadEntry};
use pilotfish_model::{
    ClusterAddresses, Endpoint, EndpointAttributes, ExportTo, HealthStatus, Hostname, InboundBy, LabelMap,
    Labels, Locality, Namespace, NetworkId, Origin, Port, Protocol, Provider, Resolution, Service, SpiffeId,
    TargetPort, TlsMode, Typed, Workload,
};
use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::net::IpAddr;
use std::sync::Arc;

const CONNECT_STRATEGY: &str = "istio.io/connect-strategy";
const UNIX: &str = "unix://";

/// Inputs of a ServiceEntry's conversion beside the ServiceEntry.
pub(super) struct Context<'a> {
    pub(super) provider: Provider,
    pub(super) settings: &'a RegistrySettings,
    pub(super) trust_domain: &'a str,
    /// Traffic distribution annotation of the namespace.
    pub(super) namespace_distribution: Option<&'a str>,
}

/// True if the proxy resolves names of endpoints, so that they may have a host name as address.
pub(super) fn resolves_names(entry: &ServiceEntry) -> bool {
    matches!(entry.resolution, Written::Dns | Written::DnsRoundRobin)
}

fn resolution(written: Written) -> Resolution {
    match written {
        Written::None => Resolution::Passthrough,
        Written::Static => Resolution::ClientSideLB,
        Written::Dns => Resolution::DNSLB,
        Written::DnsRoundRobin => Resolution::DNSRoundRobin,
        Written::DynamicDns => Resolution::DynamicDns,
    }
}

/// Services of an entry by host, one for each of the entry's addresses. Their names have the first spelling
/// of the host.
pub(super) type Hosts = Arc<BTreeMap<Hostname, Vec<Arc<Service>>>>;

/// Returns the services of an entry. Addresses in the entry's status are included, addresses computed from
/// the name are not.
pub(super) fn services(object: &Typed<ServiceEntry>, context: &Context<'_>) -> Hosts {
    let addresses = addresses(&object.addresses);
    let common = Common::of(object);
    let mut hosts = BTreeMap::new();
    for host in &object.hosts {
        let hostname = match Hostname::parse(host) {
            Ok(hostname) => hostname,
            Err(error) => {
                tracing::warn!(
                    object = %object.key(), %host, %error,
                    "the host of a ServiceEntry is not a valid host name; it is ignored"
                );
                continue;
            }
        };
        let Entry::Vacant(new) = hosts.entry(hostname) else { continue };
        let service = service(object, context, &common, (new.key(), written(host, new.key())));
        let at =
            |address: &Arc<str>| Arc::new(Service { default_address: address.clone(), ..service.clone() });
        new.insert(addresses.iter().map(at).collect());
    }
    Arc::new(hosts)
}

/// Returns a host in its original spelling, without the trailing dot.
fn written(text: &str, hostname: &Hostname) -> Arc<str> {
    let text = text.strip_suffix('.').unwrap_or(text);
    if text == hostname.as_str() { hostname.text() } else { text.into() }
}

/// Returns the number of endpoints of an entry: each host has those that the entry lists and selects, for
/// each address and port. The list of each namespace that the hosts are exported to counts, too.
#[must_use]
pub fn endpoint_count(entry: &ServiceEntry, selected: usize) -> usize {
    let endpoints = entry.endpoints.len().saturating_add(selected);
    let product = |counts: &[usize]| {
        counts.iter().fold(entry.hosts.len().max(1), |product, count| product.saturating_mul((*count).max(1)))
    };
    product(&[entry.addresses.len(), entry.ports.len(), endpoints]).max(product(&[entry.export_to.len()]))
}

/// Values that all services of an entry share.
struct Common {
    ports: Arc<[Port]>,
    selector: Labels,
    service_accounts: Arc<[Arc<str>]>,
    export_to: ExportTo,
    /// Addresses in the status by host.
    of_status: BTreeMap<Hostname, [Arc<str>; 2]>,
}

impl Common {
    fn of(entry: &Typed<ServiceEntry>) -> Self {
        let selector = entry.workload_selector.as_ref();
        Self {
            ports: entry.ports.iter().map(port).collect(),
            selector: selector.map(|it| Arc::new(LabelMap::from(&it.labels))).unwrap_or_default(),
            service_accounts: entry.subject_alt_names.iter().map(|name| name.as_str().into()).collect(),
            export_to: ExportTo::parse(entry.export_to.iter().map(String::as_str), entry.namespace()),
            of_status: status_addresses(entry),
        }
    }
}

/// Returns the service of a host without its address.
fn service(
    object: &Typed<ServiceEntry>,
    context: &Context<'_>,
    common: &Common,
    (hostname, name): (&Hostname, Arc<str>),
) -> Service {
    let meta = object.meta();
    let takes_addresses = object.takes_addresses(&meta.labels, hostname);
    let auto_addresses = common.of_status.get(hostname).filter(|_| takes_addresses);
    Service {
        hostname: hostname.clone(),
        namespace: object.namespace().clone(),
        name,
        object_name: meta.key.name.clone(),
        provider: context.provider,
        inbound: InboundBy::Address,
        has_short_name: false,
        headless: false,
        names_for_tls: true,
        resolution: resolution(object.resolution),
        ports: common.ports.clone(),
        addresses: ClusterAddresses::new(),
        auto_addresses_stored: auto_addresses.is_some(),
        dubbo: None,
        auto_addresses: auto_addresses.cloned().unwrap_or_default(),
        default_address: Arc::default(),
        mesh_external: object.location == Location::MeshExternal,
        export_to: common.export_to.clone(),
        entries: BTreeSet::new(),
        labels: meta.labels.clone(),
        selector: common.selector.clone(),
        service_accounts: common.service_accounts.clone(),
        traffic_distribution: labels::traffic_distribution(&meta.annotations, context.namespace_distribution),
        race_first_tcp_connect: meta
            .annotations
            .get(CONNECT_STRATEGY)
            .is_some_and(|strategy| strategy.eq_ignore_ascii_case("RACE_FIRST_TCP_CONNECT")),
        kubernetes: None,
        created: meta.created,
        provenance: Origin::object(meta.key.clone(), context.settings.cluster.clone()),
    }
}

fn port(port: &networking::ServicePort) -> Port {
    Port {
        number: port.number,
        name: port.name.as_str().into(),
        protocol: Protocol::parse(&port.protocol),
        target_port: (port.target_port > 0).then_some(TargetPort::Number(port.target_port)),
    }
}

/// Returns the addresses of an entry: IP addresses and ranges, where a range of one address becomes that
/// address. Other texts are dropped, so an entry with nothing else has no service. An entry without addresses
/// has the unspecified address.
fn addresses(written: &[String]) -> Vec<Arc<str>> {
    if written.is_empty() {
        return vec![Service::UNSPECIFIED.into()];
    }
    written
        .iter()
        .filter_map(|text| match (text.parse::<IpAddr>(), text.parse::<IpNet>()) {
            (Ok(_), _) => Some(text.as_str().into()),
            (_, Ok(range)) if range.prefix_len() == range.max_prefix_len() => {
                Some(range.addr().to_string().into())
            }
            (_, Ok(_)) => Some(text.as_str().into()),
            _ => {
                tracing::warn!(
                    address = %text,
                    "the address of a ServiceEntry is neither an IP address nor a range; it is ignored"
                );
                None
            }
        })
        .collect()
}

/// Returns the first IPv4 and IPv6 address in the status by host.
fn status_addresses(entry: &ServiceEntry) -> BTreeMap<Hostname, [Arc<str>; 2]> {
    let mut hosts: BTreeMap<Hostname, [Arc<str>; 2]> = BTreeMap::new();
    for address in &entry.status.addresses {
        let (Ok(host), Ok(ip)) = (Hostname::parse(&address.host), address.value.parse::<IpAddr>()) else {
            continue;
        };
        let [v4, v6] = hosts.entry(host).or_default();
        let known = if ip.is_ipv4() { v4 } else { v6 };
        if known.is_empty() {
            *known = address.value.as_str().into();
        }
    }
    hosts
}

/// True if the host of a service without an address may get one that is derived from its name.
pub(super) fn takes_address(service: &Service) -> bool {
    &*service.default_address == Service::UNSPECIFIED
        && !service.hostname.is_wildcard()
        && service.resolution != Resolution::Passthrough
}

/// True for an entry whose hosts are their own endpoints, resolved by DNS.
pub(super) fn is_own_endpoint(entry: &ServiceEntry) -> bool {
    entry.endpoints.is_empty() && entry.workload_selector.is_none() && resolves_names(entry)
}

/// Returns the endpoints of an entry without a selector, which are equal for each of its addresses. `host` is
/// the host in its original spelling.
pub(super) fn endpoints(
    object: &Typed<ServiceEntry>,
    host: &str,
    context: &Context<'_>,
) -> Vec<Arc<Endpoint>> {
    let provenance = Origin::object(object.key().clone(), context.settings.cluster.clone());
    if is_own_endpoint(object) {
        let host = WorkloadEntry { address: host.to_owned(), ..WorkloadEntry::default() };
        return of_inline(object, &host, object.name().into(), &provenance, context);
    }
    let name = |position| format!("{}-{position}", object.name()).into();
    let inline = object.endpoints.iter().enumerate();
    inline.flat_map(|(at, inline)| of_inline(object, inline, name(at), &provenance, context)).collect()
}

fn of_inline(
    object: &Typed<ServiceEntry>,
    inline: &WorkloadEntry,
    workload_name: Arc<str>,
    provenance: &Origin,
    context: &Context<'_>,
) -> Vec<Arc<Endpoint>> {
    let parts = parts(inline, &LabelMap::from(&inline.labels), object.namespace(), context);
    let attributes = EndpointAttributes {
        namespace: object.namespace().clone(),
        workload_name,
        labels: parts.labels,
        locality: parts.locality,
        network: parts.network,
        weight: inline.weight,
        identity: parts.identity,
        tls_mode: parts.tls_mode,
        ..EndpointAttributes::of(context.settings.cluster.clone(), provenance.clone())
    };
    let addresses = Arc::from([inline.address.as_str().into()]);
    let template = template(addresses, HealthStatus::Unknown, attributes);
    let port_of = |name: &str| inline.ports.get(name).copied();
    object.ports.iter().map(|port| with_port(&template, port, port_of(&port.name))).collect()
}

/// Returns the endpoints of a selected workload for an entry.
pub(super) fn of_workload(
    object: &Typed<ServiceEntry>,
    workload: &Workload,
    dual_stack: bool,
) -> Vec<Arc<Endpoint>> {
    let is_pod = workload.key.kind == pilotfish_model::WorkloadKind::Pod;
    let addresses = if dual_stack || workload.addresses.len() < 2 {
        workload.addresses.clone()
    } else {
        Arc::from([workload.address().into()])
    };
    let attributes = workload.endpoint_attributes();
    let health = if is_pod { HealthStatus::Healthy } else { HealthStatus::Unknown };
    let template = template(addresses, health, attributes);
    let port_of = |name: &str| workload.ports.get(name).copied();
    object.ports.iter().map(|port| with_port(&template, port, port_of(&port.name))).collect()
}

/// Returns an endpoint with all fields that do not depend on the port.
fn template(addresses: Arc<[Arc<str>]>, health: HealthStatus, attributes: EndpointAttributes) -> Endpoint {
    Endpoint {
        addresses,
        port: 0,
        service_port: Arc::default(),
        service_port_id: None,
        health,
        attributes: Arc::new(attributes),
    }
}

/// Returns the endpoint for one port of the entry. A Unix socket has no port; otherwise the endpoint's own
/// port with that name counts, then the entry's target port, then the port itself.
fn with_port(template: &Endpoint, port: &networking::ServicePort, own: Option<u32>) -> Arc<Endpoint> {
    let socket = template.address().strip_prefix(UNIX).map(Arc::<str>::from);
    let target = if port.target_port > 0 { port.target_port } else { port.number };
    let number = own.filter(|own| *own > 0).unwrap_or(target);
    Arc::new(Endpoint {
        port: if socket.is_some() { 0 } else { number },
        addresses: socket.map_or_else(|| template.addresses.clone(), |path| Arc::from([path])),
        service_port: port.name.as_str().into(),
        service_port_id: Some(self::port(port).id()),
        health: labels::health(&template.attributes.labels, template.health),
        ..template.clone()
    })
}

/// Values derived from the fields and labels of a WorkloadEntry or inline endpoint.
pub(super) struct Parts {
    pub(super) labels: Labels,
    pub(super) locality: Locality,
    pub(super) network: NetworkId,
    pub(super) identity: Option<SpiffeId>,
    pub(super) tls_mode: TlsMode,
}

/// Derives the values of a WorkloadEntry. Its labels may be more than those of its `spec`.
pub(super) fn parts(
    entry: &WorkloadEntry,
    own_labels: &LabelMap,
    namespace: &Namespace,
    context: &Context<'_>,
) -> Parts {
    let locality = if entry.locality.is_empty() {
        labels::locality(own_labels).unwrap_or_default()
    } else {
        Locality::parse(&entry.locality)
    };
    let network = NetworkId::from(entry.network.as_str());
    let has_account = !entry.service_account.is_empty();
    let identity = || SpiffeId::new(context.trust_domain, namespace.as_str(), &entry.service_account);
    let by_account = if has_account { TlsMode::Istio } else { TlsMode::Disabled };
    Parts {
        tls_mode: labels::tls_mode(own_labels).unwrap_or(by_account),
        labels: labels::augment(own_labels, &context.settings.cluster, &locality, &Arc::default(), &network),
        locality,
        network,
        identity: has_account.then(identity),
    }
}
