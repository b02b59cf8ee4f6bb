//! Endpoints as an istiod gives them by EDS: what a ServiceEntry can say of them.

use pilotfish_config::networking::WorkloadEntry;
use pilotfish_proto::ValueKind;
use pilotfish_proto::envoy::config::core::v3::address::Address;
use pilotfish_proto::envoy::config::core::v3::socket_address::PortSpecifier;
use pilotfish_proto::envoy::config::core::v3::{HealthStatus, Locality, Metadata};
use pilotfish_proto::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use pilotfish_proto::envoy::config::endpoint::v3::{ClusterLoadAssignment, LbEndpoint};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Where Envoy finds how an endpoint is spoken to, and the label of a workload that says so.
const SOCKET_MATCH: &str = "envoy.transport_socket_match";
/// Where Envoy finds the address that a tunnel leads to, as `ADDRESS:PORT`.
const ORIGINAL_DST: &str = "envoy.filters.listener.original_dst";
const TLS_MODE: &str = "security.istio.io/tlsMode";
const CANONICAL_NAME: &str = "service.istio.io/canonical-name";
const CANONICAL_REVISION: &str = "service.istio.io/canonical-revision";

/// Who serves, without the port: endpoints of several ports of one workload are equal in this.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Workload {
    address: String,
    labels: BTreeMap<String, String>,
    locality: String,
    weight: u32,
}

/// An endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Assigned {
    pub(crate) workload: Workload,
    pub(crate) port: u32,
}

impl Workload {
    /// As an endpoint of a ServiceEntry, without ports.
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

/// The endpoints of a cluster that may be used. A ServiceEntry cannot say that one is unhealthy or drains.
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
        // To a waypoint, an istiod gives workloads of an ambient mesh behind its tunnel.
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

/// The address and port that a tunnel leads to.
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

/// `REGION/ZONE/SUBZONE`, without what is empty at the end.
fn locality(of: &Locality) -> String {
    let text = format!("{}/{}/{}", of.region, of.zone, of.sub_zone);
    text.trim_end_matches('/').to_owned()
}

/// The labels that an istiod lets proxies know: whether the workload speaks mTLS, and its canonical service.
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
