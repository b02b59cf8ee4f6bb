//! Endpoints from istiod's EDS, reduced to the fields of a ServiceEntry.

use pilotfish_config::networking::WorkloadEntry;
use pilotfish_proto::ValueKind;
use pilotfish_proto::envoy::config::core::v3::address::Address;
use pilotfish_proto::envoy::config::core::v3::socket_address::PortSpecifier;
use pilotfish_proto::envoy::config::core::v3::{HealthStatus, Locality, Metadata};
use pilotfish_proto::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use pilotfish_proto::envoy::config::endpoint::v3::{ClusterLoadAssignment, LbEndpoint};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Metadata key of Envoy for the transport socket of an endpoint, and the workload label in it.
const SOCKET_MATCH: &str = "envoy.transport_socket_match";
/// Metadata key of Envoy for the destination of a tunnel, as `ADDRESS:PORT`.
const ORIGINAL_DST: &str = "envoy.filters.listener.original_dst";
const TLS_MODE: &str = "security.istio.io/tlsMode";
const CANONICAL_NAME: &str = "service.istio.io/canonical-name";
const CANONICAL_REVISION: &str = "service.istio.io/canonical-revision";

/// Workload of endpoints, without the port: equal for the ports of one workload.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Workload {
    address: String,
    labels: BTreeMap<String, String>,
    locality: String,
    weight: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Assigned {
    pub(crate) workload: Workload,
    pub(crate) port: u32,
}

impl Workload {
    /// Converts it to an endpoint of a ServiceEntry, without ports.
    pub(crate) fn entry(&self) -> WorkloadEntry {
        WorkloadEntry {
            address: self.address.clone(),
            labels: self.labels.clone(),
            locality: self.locality.clone(),
            weight: self.weight,
            ..WorkloadEntry::default()
        }
    }
}

/// Usable endpoints of a cluster. A ServiceEntry cannot represent unhealthy or draining ones.
pub(crate) fn assigned(of: &ClusterLoadAssignment) -> Vec<Assigned> {
    let localities = of.endpoints.iter();
    let endpoints = localities.flat_map(|group| {
        let locality = group.locality.as_ref().map(locality).unwrap_or_default();
        group.lb_endpoints.iter().filter_map(move |endpoint| endpoint_of(endpoint, &locality))
    });
    endpoints.collect()
}

fn endpoint_of(endpoint: &LbEndpoint, locality: &str) -> Option<Assigned> {
    let usable = [HealthStatus::Unknown, HealthStatus::Healthy, HealthStatus::Degraded];
    if !usable.contains(&endpoint.health_status()) {
        return None;
    }
    let Some(HostIdentifier::Endpoint(host)) = &endpoint.host_identifier else { return None };
    let (address, port) = match host.address.as_ref()?.address.as_ref()? {
        Address::SocketAddress(socket) => match socket.port_specifier {
            Some(PortSpecifier::PortValue(port)) => (socket.address.clone(), port),
            _ => return None,
        },
        // For a waypoint, istiod sends workloads of an ambient mesh behind its tunnel.
        Address::EnvoyInternalAddress(_) => tunnelled(endpoint.metadata.as_ref()?)?,
        Address::Pipe(_) => return None,
    };
    let workload = Workload {
        address,
        labels: endpoint.metadata.as_ref().map(labels).unwrap_or_default(),
        locality: locality.to_owned(),
        weight: endpoint.load_balancing_weight.unwrap_or_default(),
    };
    Some(Assigned { workload, port })
}

/// Destination address and port of a tunnel.
fn tunnelled(metadata: &Metadata) -> Option<(String, u32)> {
    let place: SocketAddr = text(metadata, ORIGINAL_DST, "local")?.parse().ok()?;
    Some((place.ip().to_string(), place.port().into()))
}

fn text<'a>(metadata: &'a Metadata, filter: &str, field: &str) -> Option<&'a str> {
    match &metadata.filter_metadata.get(filter)?.fields.get(field)?.kind {
        Some(ValueKind::StringValue(text)) => Some(text),
        _ => None,
    }
}

/// Locality as `REGION/ZONE/SUBZONE`, without empty parts at the end.
fn locality(of: &Locality) -> String {
    let text = format!("{}/{}/{}", of.region, of.zone, of.sub_zone);
    text.trim_end_matches('/').to_owned()
}

/// Labels that istiod sends to proxies: mTLS support of the workload, and its canonical service.
fn labels(metadata: &Metadata) -> BTreeMap<String, String> {
    // NAME;NAMESPACE;CANONICAL NAME;CANONICAL REVISION;CLUSTER
    let mut workload = text(metadata, "istio", "workload").unwrap_or_default().split(';').skip(2);
    let labels = [
        (TLS_MODE, text(metadata, SOCKET_MATCH, "tlsMode")),
        (CANONICAL_NAME, workload.next()),
        (CANONICAL_REVISION, workload.next()),
    ];
    let known = labels.into_iter().filter_map(|(name, value)| Some((name, value?)));
    known
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_proto::envoy::config::core::v3 as core;
    use pilotfish_proto::envoy::config::endpoint::v3::{Endpoint, LocalityLbEndpoints};
    use pilotfish_proto::{Struct, Value};

    /// As an istiod has workloads of an ambient mesh for a waypoint.
    #[test]
    fn endpoint_behind_a_tunnel_has_the_address_that_it_leads_to() {
        let of = |local: &str| {
            let local = Value { kind: Some(ValueKind::StringValue(local.to_owned())) };
            let original = Struct { fields: [("local".to_owned(), local)].into() };
            let address = Address::EnvoyInternalAddress(core::EnvoyInternalAddress::default());
            let endpoint =
                Endpoint { address: Some(core::Address { address: Some(address) }), ..Endpoint::default() };
            let endpoint = LbEndpoint {
                host_identifier: Some(HostIdentifier::Endpoint(endpoint)),
                metadata: Some(Metadata {
                    filter_metadata: [(ORIGINAL_DST.to_owned(), original)].into(),
                    ..Metadata::default()
                }),
                ..LbEndpoint::default()
            };
            let endpoints = vec![LocalityLbEndpoints { lb_endpoints: vec![endpoint], ..Default::default() }];
            let all = assigned(&ClusterLoadAssignment { endpoints, ..ClusterLoadAssignment::default() });
            all.into_iter().map(|one| (one.workload.address, one.port)).collect::<Vec<_>>()
        };
        assert_eq!(of("10.0.0.1:8080"), [("10.0.0.1".to_owned(), 8080)]);
        assert_eq!(of("[2001:db8::1]:80"), [("2001:db8::1".to_owned(), 80)]);
        assert_eq!(of("nowhere"), []);
    }
}
