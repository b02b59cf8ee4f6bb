//! Services of registries as ServiceEntries with their endpoints, which Istio calls synthetic.

use super::{ServedResource, resource};
use crate::kinds::McpKind;
use crate::resource::Metadata;
use pilotfish_model::{
    Endpoint, ExportTo, HealthStatus, Kind, Locality, Origin, Port, Protocol, Resolution, Service,
    ServiceEndpoints, TlsMode, topology,
};
use prost_types::Timestamp;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Label of endpoints that accept the mesh's mutual TLS.
const TLS_MODE: &str = "security.istio.io/tlsMode";

/// True if a service is sent as an entry of its own: not one from a ServiceEntry, which is sent itself.
pub(super) fn is_served(service: &Service) -> bool {
    let of_entry =
        |origin: &Origin| origin.as_object().is_some_and(|object| object.object.kind == Kind::ServiceEntry);
    !of_entry(&service.provenance)
}

/// Name as `NAMESPACE/synthetic-SERVICE`, as in Istio for Kubernetes Services; names of others include their
/// registry.
pub(super) fn name(service: &Service) -> Arc<str> {
    let (namespace, name) = (&service.namespace, &service.name);
    match service.provenance.as_object() {
        Some(_) => format!("{namespace}/synthetic-{name}").into(),
        None => {
            let registry = service.provider.name().to_ascii_lowercase();
            format!("{namespace}/synthetic-{registry}-{}", service.hostname.as_str()).into()
        }
    }
}

/// Entry of a service.
pub(super) fn entry(service: &Service, endpoints: Option<&Arc<ServiceEndpoints>>) -> Option<ServedResource> {
    let name = name(service);
    let labels = service.labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    let metadata = Metadata {
        name: name.to_string(),
        create_time: (service.created > 0).then_some(Timestamp { seconds: service.created, nanos: 0 }),
        version: String::new(),
        labels,
        annotations: BTreeMap::new(),
    };
    resource(McpKind::of(Kind::ServiceEntry)?, name, metadata, Some(&spec(service, endpoints)))
}

fn spec(service: &Service, endpoints: Option<&Arc<ServiceEndpoints>>) -> Value {
    let resolution = resolution(service.resolution);
    let ports: Vec<Value> = ports(&service.ports).into_iter().map(port).collect();
    let location = if service.mesh_external { "MESH_EXTERNAL" } else { "MESH_INTERNAL" };
    let mut spec = json!({
        "hosts": [service.written_host()], "ports": ports, "location": location, "resolution": resolution,
    });
    let Value::Object(fields) = &mut spec else { return spec };
    let mut addresses = addresses(service);
    // Like istiod. Without a selector, an entry with resolution NONE would have a listener for all addresses
    // of its port.
    if service.headless && resolution == "NONE" && !service.selector.is_empty() {
        addresses = vec![Service::UNSPECIFIED.into()];
        let labels: BTreeMap<&str, &str> =
            service.selector.iter().map(|(key, value)| (&**key, &**value)).collect();
        fields.insert("workloadSelector".into(), json!({"labels": labels}));
    }
    if !addresses.is_empty() {
        fields.insert("addresses".into(), json!(addresses));
    }
    if let Some(export_to) = export_to(&service.export_to) {
        fields.insert("exportTo".into(), json!(export_to));
    }
    if !service.service_accounts.is_empty() {
        fields.insert("subjectAltNames".into(), json!(service.service_accounts));
    }
    // An entry with resolution NONE must have no endpoints: its clients know the addresses.
    if resolution != "NONE"
        && let Some(endpoints) = endpoints
    {
        fields.insert("endpoints".into(), workloads(service, endpoints));
    }
    spec
}

fn resolution(resolution: Resolution) -> &'static str {
    match resolution {
        // An entry cannot be an alias of another host.
        Resolution::Alias => "NONE",
        other => other.istio_name(),
    }
}

/// Ports, each number once: an entry cannot have TCP and UDP ports with one number, and UDP is not routed
/// anyway.
fn ports(all: &[Port]) -> Vec<&Port> {
    let mut ports: Vec<&Port> = Vec::new();
    let (udp, others): (Vec<&Port>, Vec<&Port>) = all.iter().partition(|port| port.protocol == Protocol::Udp);
    for port in others.into_iter().chain(udp) {
        if ports.iter().all(|known| known.number != port.number && known.name != port.name) {
            ports.push(port);
        }
    }
    ports
}

fn port(port: &Port) -> Value {
    json!({"number": port.number, "name": port_name(&port.name), "protocol": protocol(port.protocol)})
}

/// Port name of an entry, which is required there, but optional for the only port of a Kubernetes Service.
fn port_name(name: &str) -> &str {
    if name.is_empty() { "unnamed" } else { name }
}

/// Empty if the proxy detects the protocol.
fn protocol(protocol: Protocol) -> &'static str {
    match protocol {
        // Istio has no name for it.
        Protocol::Dubbo => "TCP",
        Protocol::Unsupported => "",
        other => other.istio_name(),
    }
}

/// Virtual addresses of all clusters, the default one first.
fn addresses(service: &Service) -> Vec<Arc<str>> {
    let mut all: Vec<Arc<str>> = Vec::new();
    let of_clusters = service.addresses.values().flat_map(|addresses| addresses.iter());
    for address in std::iter::once(&service.default_address).chain(of_clusters) {
        let is_address = !address.is_empty() && &**address != Service::UNSPECIFIED;
        if is_address && !all.contains(address) {
            all.push(address.clone());
        }
    }
    all
}

fn export_to(export_to: &ExportTo) -> Option<Vec<&str>> {
    match export_to {
        ExportTo::Unset => None,
        ExportTo::Public => Some(vec!["*"]),
        ExportTo::Nobody => Some(vec!["~"]),
        ExportTo::Namespaces(namespaces) => Some(namespaces.iter().map(|name| name.as_str()).collect()),
    }
}

/// Usable endpoints, those of one workload merged.
fn workloads(service: &Service, endpoints: &ServiceEndpoints) -> Value {
    let mut workloads: Vec<(&Endpoint, BTreeMap<&str, u32>)> = Vec::new();
    let mut places: BTreeMap<(&str, usize), usize> = BTreeMap::new();
    for endpoint in endpoints.iter().filter(|endpoint| is_usable(endpoint.health)) {
        let attributes = Arc::as_ptr(&endpoint.attributes) as usize;
        let place = *places.entry((endpoint.address(), attributes)).or_insert_with(|| {
            workloads.push((endpoint, BTreeMap::new()));
            workloads.len() - 1
        });
        if let Some((_, ports)) = workloads.get_mut(place) {
            ports.insert(port_name(&endpoint.service_port), endpoint.port);
        }
    }
    workloads.iter().map(|(endpoint, ports)| workload(service, endpoint, ports)).collect()
}

fn is_usable(health: HealthStatus) -> bool {
    matches!(health, HealthStatus::Healthy | HealthStatus::Unknown)
}

fn workload(service: &Service, endpoint: &Endpoint, ports: &BTreeMap<&str, u32>) -> Value {
    let attributes = &endpoint.attributes;
    let mut fields = Map::new();
    let is_path = endpoint.address().starts_with('/');
    let address =
        if is_path { format!("unix://{}", endpoint.address()) } else { endpoint.address().to_owned() };
    fields.insert("address".into(), json!(address));
    if !is_path {
        fields.insert("ports".into(), json!(ports));
    }
    // The receiver is another cluster, and derives the other topology labels from the locality and network
    // below.
    let mut labels: BTreeMap<&str, &str> = attributes
        .labels
        .iter()
        .map(|(key, value)| (&**key, &**value))
        .filter(|(key, _)| *key != topology::CLUSTER)
        .collect();
    // Without the label, an endpoint with a service account counts as one with a proxy.
    match attributes.tls_mode {
        TlsMode::Istio => drop(labels.insert(TLS_MODE, "istio")),
        TlsMode::Disabled if service_account(service, endpoint).is_some() => {
            labels.insert(TLS_MODE, "disabled");
        }
        TlsMode::Disabled => {}
    }
    fields.insert("labels".into(), json!(labels));
    for (name, value) in [
        ("locality", locality(&attributes.locality)),
        ("network", attributes.network.as_str().to_owned()),
        ("serviceAccount", service_account(service, endpoint).unwrap_or_default().to_owned()),
    ] {
        if !value.is_empty() {
            fields.insert(name.into(), json!(value));
        }
    }
    if attributes.weight > 0 {
        fields.insert("weight".into(), json!(attributes.weight));
    }
    Value::Object(fields)
}

fn locality(locality: &Locality) -> String {
    let text = format!("{}/{}/{}", locality.region, locality.zone, locality.sub_zone);
    text.trim_end_matches('/').to_owned()
}

/// Service account of the endpoint's identity, if it is in the service's namespace: an entry cannot name
/// others.
fn service_account<'a>(service: &Service, endpoint: &'a Endpoint) -> Option<&'a str> {
    let identity = endpoint.attributes.identity.as_ref()?.as_str();
    let (_, path) = identity.strip_prefix("spiffe://")?.split_once("/ns/")?;
    let (namespace, account) = path.split_once("/sa/")?;
    (namespace == service.namespace.as_str()).then_some(account)
}
