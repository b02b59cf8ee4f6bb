//! Services and Gateways that are gateways between networks.

use super::node::Nodes;
use super::service::NODE_SELECTOR;
use crate::labels;
use crate::links::Name;
use crate::networks::Networks;
use pilotfish_config::gateway_api::{DEFAULT_GATEWAY_PORT, GATEWAY_PORT, is_auto_passthrough};
use pilotfish_config::{gateway_api, kubernetes};
use pilotfish_model::{ClusterId, Kind, NetworkGateway, NetworkId, PortId, Service, Typed};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const HBONE_PORT: u32 = 15008;
const SERVICE_ACCOUNT: &str = "gateway.istio.io/service-account";
const REMOTE_CLASS: &str = "istio-remote";

/// Network behind a gateway, its port for mutual TLS and its port for HBONE; 0 for none.
type Ports = (NetworkId, u32, u32);

/// Gateways of a cluster by their objects, and the last update.
#[derive(Clone, Default)]
pub(super) struct GatewaySet {
    by_object: BTreeMap<(Kind, Name), Vec<NetworkGateway>>,
    offered: Arc<[NetworkGateway]>,
    changed: bool,
}

impl GatewaySet {
    /// Sets the gateways of an object.
    pub(super) fn set(&mut self, object: (Kind, Name), gateways: Vec<NetworkGateway>) {
        self.changed |= self.by_object.get(&object).map_or(&[][..], Vec::as_slice) != gateways;
        if gateways.is_empty() {
            self.by_object.remove(&object);
        } else {
            self.by_object.insert(object, gateways);
        }
    }

    /// Returns all gateways, sorted, if they have changed.
    pub(super) fn settle(&mut self) -> Option<Arc<[NetworkGateway]>> {
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        let all: BTreeSet<&NetworkGateway> = self.by_object.values().flatten().collect();
        let all: Arc<[NetworkGateway]> = all.into_iter().cloned().collect();
        (all != self.offered).then(|| {
            self.offered = all.clone();
            all
        })
    }
}

/// Returns the gateways of a Service, one for each of its external addresses.
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
        service_account: Arc::default(),
    };
    addresses.iter().flat_map(|address| behind.iter().map(move |ports| gateway(address, ports))).collect()
}

/// Returns the selector of the nodes through which a NodePort Service is reached.
pub(super) fn node_selector(object: &Typed<kubernetes::Service>) -> Option<&str> {
    let selector = object.meta().annotations.get(NODE_SELECTOR)?;
    (object.spec.r#type == kubernetes::ServiceType::NodePort).then_some(selector)
}

/// Returns the gateways of a Gateway of the Gateway API: one for each of its addresses and each listener that
/// forwards mutual TLS by SNI or accepts HBONE. `remotes` is true if Gateways of the class for gateways of
/// other clusters count.
pub(super) fn of_gateway(
    object: &Typed<gateway_api::Gateway>,
    cluster: &ClusterId,
    remotes: bool,
) -> Vec<NetworkGateway> {
    let (meta, spec) = (object.meta(), &object.spec);
    let Some(network) = meta.labels.get(labels::NETWORK).filter(|network| !network.is_empty()) else {
        return Vec::new();
    };
    let is_remote = spec.gateway_class_name == REMOTE_CLASS;
    if is_remote && !remotes {
        return Vec::new();
    }
    let own_name =
        if is_remote { format!("{}-{REMOTE_CLASS}", object.name()) } else { object.name().to_owned() };
    let account = meta.annotations.get(SERVICE_ACCOUNT).unwrap_or(&own_name);
    let addresses = spec.addresses.iter().filter(|address| {
        matches!(address.r#type.as_str(), "IPAddress" | "Hostname") && !address.value.is_empty()
    });
    let mut gateways = Vec::new();
    for address in addresses {
        for listener in &spec.listeners {
            let hbone = listener.protocol == "HBONE";
            if !hbone && !is_auto_passthrough(&meta.labels, listener) {
                continue;
            }
            let port = u32::from(listener.port);
            gateways.push(NetworkGateway {
                network: network.into(),
                cluster: cluster.clone(),
                address: address.value.as_str().into(),
                port,
                hbone_port: if hbone { port } else { 0 },
                service_account: format!("{}/{account}", object.namespace()).into(),
            });
        }
    }
    gateways
}

/// Returns the networks behind a Service: by its label, else by MeshNetworks.
fn behind(service: &Service, networks: &Networks) -> Vec<Ports> {
    let Some(network) = service.labels.get(labels::NETWORK).filter(|network| !network.is_empty()) else {
        let named = networks.gateways_of(service.hostname.as_str());
        return named.iter().map(|(network, port)| (network.clone(), *port, 0)).collect();
    };
    let default = u32::from(DEFAULT_GATEWAY_PORT);
    let wanted = service.labels.get(GATEWAY_PORT).map_or(default, |text| {
        text.parse().unwrap_or_else(|error| {
            tracing::warn!(service = %service.hostname, label = GATEWAY_PORT, value = %text, %error,
                "the label is not a port number; {default} is used");
            default
        })
    });
    let existing = |number: u32| service.port(PortId::tcp(number)).map_or(0, |port| port.number);
    match (existing(wanted), existing(HBONE_PORT)) {
        (0, 0) => Vec::new(),
        (port, hbone) => vec![(network.into(), port, hbone)],
    }
}
