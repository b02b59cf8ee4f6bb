//! MeshNetworks from the view of one cluster: the networks of its endpoints, and the gateways of these
//! networks.

use ipnet::IpNet;
use pilotfish_config::mesh::MeshNetworks;
use pilotfish_model::{ClusterId, NetworkGateway, NetworkId};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Gateway that is given as a service: the network behind it, and the port.
pub(crate) type ServiceGateway = (NetworkId, u32);

/// MeshNetworks from the view of one cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Networks {
    registry: Option<NetworkId>,
    ranges: Vec<(IpNet, NetworkId)>,
    service_gateways: BTreeMap<Arc<str>, Vec<ServiceGateway>>,
}

impl Networks {
    /// Reads the settings for one cluster. Networks take precedence in the order of their names.
    pub(crate) fn of(settings: Option<&MeshNetworks>, cluster: &ClusterId) -> Self {
        let mut networks = Self::default();
        for (name, network) in settings.into_iter().flat_map(|settings| &settings.networks) {
            let id = NetworkId::from(name.as_str());
            let registries = network.endpoints.iter().filter_map(|part| part.from_registry.as_deref());
            let is_here = registries.into_iter().any(|registry| *cluster == *registry);
            for range in network.endpoints.iter().filter_map(|part| part.from_cidr.as_deref()) {
                match range.parse::<IpNet>() {
                    Ok(range) => networks.ranges.push((range, id.clone())),
                    Err(error) => {
                        tracing::warn!(
                            network = %name, %range, %error,
                            "fromCidr of MeshNetworks is not a range of IP addresses; it is ignored"
                        );
                    }
                }
            }
            if !is_here {
                continue;
            }
            for gateway in &network.gateways {
                if let Some(service) = &gateway.registry_service_name {
                    let gateways = networks.service_gateways.entry(service.as_str().into()).or_default();
                    gateways.push((id.clone(), gateway.port));
                }
            }
            networks.registry.get_or_insert(id);
        }
        networks
    }

    /// Returns the network of an address in this cluster; empty if the settings have none for it.
    pub(crate) fn network_of(&self, address: &str) -> NetworkId {
        if let Some(registry) = &self.registry {
            return registry.clone();
        }
        if self.ranges.is_empty() {
            return NetworkId::default();
        }
        let Ok(address) = address.parse::<IpAddr>() else { return NetworkId::default() };
        let found = self.ranges.iter().find(|(range, _)| range.contains(&address));
        found.map(|(_, network)| network.clone()).unwrap_or_default()
    }

    /// Returns the gateways that are given as the service with that host.
    pub(crate) fn gateways_of(&self, hostname: &str) -> &[ServiceGateway] {
        self.service_gateways.get(hostname).map_or(&[], Vec::as_slice)
    }
}

/// Returns the gateways that the settings give by address. They belong to no cluster.
pub(crate) fn static_gateways(settings: Option<&MeshNetworks>) -> impl Iterator<Item = NetworkGateway> {
    settings.into_iter().flat_map(|settings| &settings.networks).flat_map(|(name, network)| {
        network.gateways.iter().filter_map(move |gateway| {
            let address = gateway.address.as_deref().filter(|address| !address.is_empty())?;
            Some(NetworkGateway {
                network: name.as_str().into(),
                cluster: ClusterId::default(),
                address: address.into(),
                port: gateway.port,
                hbone_port: 0,
                service_account: Arc::default(),
            })
        })
    })
}
