//! Services that are gateways between networks.

use super::node::Nodes;
use super::service::NODE_SELECTOR;
use crate::labels;
use crate::networks::Networks;
use pilotfish_config::kubernetes;
use pilotfish_model::{ClusterId, NetworkGateway, NetworkId, Service, Typed};
use std::sync::Arc;

const GATEWAY_PORT: &str = "networking.istio.io/gatewayPort";
const DEFAULT_PORT: u32 = 15443;
const HBONE_PORT: u32 = 15008;

/// The network behind a gateway, its port for mutual TLS and its port for HBONE; 0 for none.
type Ports = (NetworkId, u32, u32);

/// The gateways that a Service is: one for each of its external addresses.
pub(super) fn of(
    object: &Typed<kubernetes::Service>,
    service: &Service,
    cluster: &ClusterId,
    networks: &Networks,
    nodes: &Nodes,
) -> Vec<NetworkGateway> {
    let behind = behind(service, networks);
    let Some(attributes) = service.kubernetes.as_ref().filter(|_| !behind.is_empty()) else {
        return Vec::new();
    };
    let node_ports = attributes.node_ports.get(cluster);
    let mapped = |port: u32| node_ports.and_then(|ports| ports.get(&port)).copied().unwrap_or(port);
    let mut addresses: Vec<Arc<str>> =
        attributes.external_addresses.get(cluster).map(|addresses| addresses.to_vec()).unwrap_or_default();
    if let Some(selector) = node_selector(object) {
        addresses.extend(nodes.addresses(selector));
    }
    let gateway = |address: &Arc<str>, (network, port, hbone): &Ports| NetworkGateway {
        network: network.clone(),
        cluster: cluster.clone(),
        address: address.clone(),
        port: mapped(*port),
        hbone_port: mapped(*hbone),
        service_account: "".into(),
    };
    addresses.iter().flat_map(|address| behind.iter().map(move |ports| gateway(address, ports))).collect()
}

/// The selector of the nodes through which a NodePort Service is reached.
pub(super) fn node_selector(object: &Typed<kubernetes::Service>) -> Option<&str> {
    let selector = object.meta().annotations.get(NODE_SELECTOR)?;
    (object.spec.r#type == kubernetes::ServiceType::NodePort).then_some(selector)
}

/// The networks behind a Service: by its label, else by MeshNetworks.
fn behind(service: &Service, networks: &Networks) -> Vec<Ports> {
    let Some(network) = service.labels.get(labels::NETWORK).filter(|network| !network.is_empty()) else {
        let named = networks.gateways_of(service.hostname.as_str());
        return named.iter().map(|(network, port)| (network.clone(), *port, 0)).collect();
    };
    let wanted = service.labels.get(GATEWAY_PORT).map_or(DEFAULT_PORT, |text| {
        text.parse().unwrap_or_else(|error| {
            tracing::warn!(service = %service.hostname, label = GATEWAY_PORT, value = %text, %error,
                "the label is no port number, {DEFAULT_PORT} is taken");
            DEFAULT_PORT
        })
    });
    let existing = |number: u32| service.port(number).map_or(0, |port| port.number);
    match (existing(wanted), existing(HBONE_PORT)) {
        (0, 0) => Vec::new(),
        (port, hbone) => vec![(network.as_str().into(), port, hbone)],
    }
}
