//! An endpoint as an Envoy message: address, health, weight, and metadata for TLS and telemetry.

use super::group::{Host, Member};
use super::select::is_draining;
use crate::envoy::metadata::{fields, set_istio, text};
use pilotfish_model::{Endpoint, HealthStatus, LabelMap};
use pilotfish_proto::envoy::config::core::v3::{
    Address, HealthStatus as EnvoyHealth, Metadata, Pipe, SocketAddress, address::Address as Kind,
    socket_address::PortSpecifier,
};
use pilotfish_proto::envoy::config::endpoint::v3::{
    Endpoint as EnvoyEndpoint, LbEndpoint, lb_endpoint::HostIdentifier,
};

/// The metadata name under which a cluster's transport socket matches read the endpoint's TLS mode.
const SOCKET_MATCH: &str = "envoy.transport_socket_match";

/// An endpoint without its metadata.
pub(super) fn of(member: &Member) -> LbEndpoint {
    let (health_status, host_identifier) = match &member.host {
        Host::Workload(endpoint) => (health(endpoint).into(), host(endpoint.address(), endpoint.port)),
        Host::Gateway(gateway) => (0, host(&gateway.address, gateway.port)),
    };
    LbEndpoint { health_status, load_balancing_weight: Some(member.weight), host_identifier, metadata: None }
}

/// Contents of an endpoint's metadata: mutual TLS, and the identity of the workload for telemetry.
#[derive(Debug, PartialEq)]
pub(super) struct Identity {
    mtls: bool,
    telemetry: String,
}

impl Identity {
    pub(super) fn of(member: &Member) -> Self {
        let telemetry = match &member.host {
            Host::Workload(endpoint) => telemetry(
                &endpoint.attributes.workload_name,
                endpoint.attributes.namespace.as_str(),
                &endpoint.attributes.labels,
                endpoint.attributes.cluster.as_str(),
            ),
            Host::Gateway(gateway) => telemetry("", "", &LabelMap::default(), gateway.cluster.as_str()),
        };
        Self { mtls: member.mtls, telemetry }
    }

    pub(super) fn metadata(&self) -> Option<Metadata> {
        metadata(self.mtls, &self.telemetry)
    }
}

fn health(endpoint: &Endpoint) -> EnvoyHealth {
    match endpoint.health {
        _ if is_draining(endpoint) => EnvoyHealth::Draining,
        HealthStatus::Healthy => EnvoyHealth::Healthy,
        HealthStatus::Draining | HealthStatus::Deregistering => EnvoyHealth::Draining,
        HealthStatus::Unhealthy | HealthStatus::Terminating => EnvoyHealth::Unhealthy,
        HealthStatus::Unknown => EnvoyHealth::Unknown,
    }
}

fn host(address: &str, port: u32) -> Option<HostIdentifier> {
    let address = Some(Address { address: Some(address_kind(address, port)) });
    Some(HostIdentifier::Endpoint(EnvoyEndpoint { address, ..Default::default() }))
}

fn address_kind(address: &str, port: u32) -> Kind {
    if port == 0 {
        let path = address.strip_prefix("unix://").unwrap_or(address).to_owned();
        return Kind::Pipe(Pipe { path, ..Default::default() });
    }
    Kind::SocketAddress(SocketAddress {
        address: address.to_owned(),
        port_specifier: Some(PortSpecifier::PortValue(port)),
        ..Default::default()
    })
}

fn metadata(mtls: bool, telemetry: &str) -> Option<Metadata> {
    let mut metadata = None;
    set_istio(&mut metadata, "workload", text(telemetry));
    if mtls {
        let parts = &mut metadata.get_or_insert_default().filter_metadata;
        parts.insert(SOCKET_MATCH.to_owned(), fields([("tlsMode", text("istio"))]));
    }
    metadata
}

/// The identity of an endpoint, for clients that cannot exchange metadata with its proxy: workload,
/// namespace, canonical service and revision, cluster. The revision `latest`, which is the default, is left
/// out.
fn telemetry(workload: &str, namespace: &str, labels: &LabelMap, cluster: &str) -> String {
    let first = |keys: &[&str]| keys.iter().find_map(|key| labels.get(key));
    let service = first(&["service.istio.io/canonical-name", "app.kubernetes.io/name", "app"]);
    let revision = first(&["service.istio.io/canonical-revision", "app.kubernetes.io/version", "version"]);
    let revision = revision.filter(|revision| *revision != "latest").unwrap_or_default();
    format!("{workload};{namespace};{};{revision};{cluster}", service.unwrap_or(workload))
}
