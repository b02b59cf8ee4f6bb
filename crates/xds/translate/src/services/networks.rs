//! Gateways between networks.

use crate::engine::{Cx, Query};
use pilotfish_model::{ClusterId, NetworkGateway, NetworkId};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Gateways that route mutual TLS, by network and cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Gateways {
    by_network: BTreeMap<NetworkId, Vec<NetworkGateway>>,
    by_cluster: BTreeMap<(NetworkId, ClusterId), Vec<NetworkGateway>>,
    /// Least common multiple of the numbers of gateways: weights that are multiplied by it divide evenly.
    pub factor: u32,
}

impl Gateways {
    fn new(all: &[NetworkGateway]) -> Self {
        let mut out = Self { factor: 1, ..Self::default() };
        for gateway in all.iter().filter(|gateway| gateway.port != 0 && is_address(gateway)) {
            let (network, cluster) = (&gateway.network, &gateway.cluster);
            out.by_network.entry(network.clone()).or_default().push(gateway.clone());
            out.by_cluster.entry((network.clone(), cluster.clone())).or_default().push(gateway.clone());
        }
        let counts = out.by_network.values().chain(out.by_cluster.values()).map(Vec::len);
        out.factor = counts.map(|count| u32::try_from(count).unwrap_or(1)).fold(1, lowest_common_multiple);
        out
    }

    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.by_network.is_empty()
    }

    /// The gateways to a network and cluster, or else to the network.
    #[must_use]
    pub(crate) fn to(&self, network: &NetworkId, cluster: &ClusterId) -> &[NetworkGateway] {
        let of_cluster = self.by_cluster.get(&(network.clone(), cluster.clone()));
        of_cluster.or_else(|| self.by_network.get(network)).map_or(&[], Vec::as_slice)
    }
}

/// Returns true if the gateway has an IP address. A proxy would reject a load assignment with an unresolved
/// host name.
fn is_address(gateway: &NetworkGateway) -> bool {
    gateway.address.parse::<IpAddr>().is_ok()
}

/// The gateways between networks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NetworkGatewaysOf;

impl Query for NetworkGatewaysOf {
    type Output = Gateways;

    fn compute(&self, cx: &Cx<'_>) -> Gateways {
        Gateways::new(&cx.network_gateways())
    }
}

/// Returns the larger number if the result would overflow a weight.
fn lowest_common_multiple(a: u32, b: u32) -> u32 {
    let (mut x, mut y) = (a.max(1), b.max(1));
    while y != 0 {
        (x, y) = (y, x % y);
    }
    (a.max(1) / x).checked_mul(b.max(1)).unwrap_or(a.max(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gateway(network: &str, cluster: &str, address: &str, port: u32) -> NetworkGateway {
        NetworkGateway {
            network: network.into(),
            cluster: cluster.into(),
            address: address.into(),
            port,
            hbone_port: 0,
            service_account: "".into(),
        }
    }

    #[test]
    fn gateways_of_the_cluster_come_before_those_of_the_network() {
        let all = [
            gateway("a", "", "192.0.2.1", 15443),
            gateway("a", "c1", "192.0.2.2", 15443),
            gateway("a", "c1", "192.0.2.3", 15443),
            gateway("b", "", "192.0.2.4", 15443),
            gateway("b", "", "192.0.2.5", 0),
            gateway("c", "", "gateway.example.com", 15443),
        ];
        let gateways = Gateways::new(&all);
        assert_eq!(gateways.to(&"a".into(), &"c1".into()).len(), 2);
        assert_eq!(gateways.to(&"a".into(), &"c2".into()).len(), 3);
        assert_eq!(gateways.to(&"b".into(), &"c1".into()).len(), 1);
        assert_eq!(gateways.to(&"c".into(), &"c1".into()).len(), 0);
        assert_eq!(gateways.factor, 6);
        assert!(Gateways::new(&[]).is_empty());
    }

    #[test]
    fn the_factor_never_overflows() {
        assert_eq!(lowest_common_multiple(4, 6), 12);
        assert_eq!(lowest_common_multiple(0, 5), 5);
        assert_eq!(lowest_common_multiple(u32::MAX, u32::MAX - 1), u32::MAX);
    }
}
