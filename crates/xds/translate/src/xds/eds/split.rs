//! Several networks (split horizon): endpoints of another network are replaced by the gateways that lead to
//! it.

use super::client_locality::ClientLocality;
use super::group::{Group, Host, Member};
use crate::services::networks::Gateways;
use pilotfish_model::topology;
use pilotfish_model::{ClusterId, Endpoint, Labels, NetworkGateway, NetworkId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One endpoint with what decides over its way.
pub(super) struct Routed {
    pub(super) network: NetworkId,
    pub(super) cluster: ClusterId,
    pub(super) is_addressed: bool,
}

impl Routed {
    pub(super) fn of(endpoint: &Endpoint) -> Self {
        Self {
            network: endpoint.attributes.network.clone(),
            cluster: endpoint.attributes.cluster.clone(),
            is_addressed: !endpoint.address().is_empty(),
        }
    }
}

/// Splits a group into what is reached directly and the gateways for the rest. All weights grow by one
/// factor, so that they divide evenly among gateways.
pub(super) fn split(
    group: Group,
    routes: &[Routed],
    gateways: &Gateways,
    client_locality: &ClientLocality,
) -> Group {
    let mut direct = Vec::new();
    let mut through: BTreeMap<&NetworkGateway, u32> = BTreeMap::new();
    for (mut member, route) in group.members.into_iter().zip(routes) {
        let weight = member.weight.saturating_mul(gateways.factor);
        let candidates = gateways.to(&route.network, &route.cluster);
        if is_near(&route.network, &client_locality.network) || candidates.is_empty() {
            if route.is_addressed {
                member.weight = weight;
                direct.push(member);
            }
            continue;
        }
        // Gateways route by the name in mutual TLS: without it there is no way.
        let reachable: Vec<_> =
            candidates.iter().filter(|gateway| client_locality.families.has(&gateway.address)).collect();
        if !member.mtls || reachable.is_empty() {
            continue;
        }
        let share = weight / u32::try_from(reachable.len()).unwrap_or(u32::MAX);
        for gateway in reachable {
            let sum = through.entry(gateway).or_default();
            *sum = sum.saturating_add(share);
        }
    }
    let gateways = through.into_iter().map(|(gateway, weight)| gateway_member(gateway, weight));
    let mut group = Group { members: direct.into_iter().chain(gateways).collect(), ..group };
    group.refresh_weight();
    group
}

/// True for an endpoint of the client's network, or of none. A client without a network is in none of those
/// that endpoints name.
fn is_near(endpoint: &NetworkId, client: &NetworkId) -> bool {
    endpoint.is_empty() || endpoint == client
}

fn gateway_member(gateway: &NetworkGateway, weight: u32) -> Member {
    let host = Host::Gateway(gateway.clone());
    Member { labels: gateway_labels(gateway), mtls: true, weight: weight.max(1), host }
}

fn gateway_labels(gateway: &NetworkGateway) -> Labels {
    let pairs =
        [(topology::NETWORK, gateway.network.as_str()), (topology::CLUSTER, gateway.cluster.as_str())];
    let set = pairs.into_iter().filter(|(_, value)| !value.is_empty());
    Arc::new(set.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
}
