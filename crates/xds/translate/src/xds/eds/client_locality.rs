//! Locality of a client of endpoints, with its cluster, network, node and labels; each only if some
//! configuration uses it.

use super::service_rule::{Balance, ServiceRule};
use crate::engine::{ByContent, Cx, Query};
use crate::policy::destination_rule::parts;
use crate::proxy::locality::ProxyLocality;
use crate::proxy::{IpFamilies, Proxy};
use crate::services::cluster_local::ClusterLocalHosts;
use crate::services::networks::NetworkGatewaysOf;
use pilotfish_config::networking::DestinationRule;
use pilotfish_model::topology;
use pilotfish_model::{ClusterId, Labels, Locality, NetworkId, TrafficDistribution};
use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

/// Locality of a client of endpoints. Every facet that no configuration uses is left at its default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ClientLocality {
    pub cluster: ClusterId,
    pub network: NetworkId,
    /// The networks whose endpoints it wants to see (`REQUESTED_NETWORK_VIEW`); empty for all.
    pub network_view: BTreeSet<NetworkId>,
    pub families: IpFamilies,
    pub node: Arc<str>,
    pub locality: Locality,
    /// Its labels that priorities compare.
    pub labels: Labels,
}

impl ClientLocality {
    /// Locality for queries whose result is the same for all clients.
    pub(crate) fn anywhere() -> &'static ByContent<Self> {
        static ANYWHERE: LazyLock<ByContent<ClientLocality>> =
            LazyLock::new(|| ByContent::new(Arc::default(), &()));
        &ANYWHERE
    }

    /// The locality of a proxy, for any service.
    #[must_use]
    pub(crate) fn of(cx: &Cx<'_>, proxy: &Proxy, place: &ProxyLocality) -> Self {
        let used = cx.get(&UsedFacetsOf);
        let networks = !cx.get(&NetworkGatewaysOf).is_empty();
        let whole = Self {
            cluster: proxy.cluster.clone(),
            network: proxy.network.clone(),
            network_view: network_view(proxy),
            families: IpFamilies::of(proxy),
            node: place.node.clone(),
            locality: place.locality.clone(),
            labels: place.labels.clone(),
        };
        whole.narrowed(networks, &used)
    }

    /// Returns only the facets that matter for one service.
    #[must_use]
    pub(super) fn reduced(&self, cx: &Cx<'_>, rule: &ServiceRule) -> Self {
        let used = UsedFacets {
            cluster: rule.cluster_local || rule.node_local || !rule.confined.is_empty(),
            node: rule.node_local,
            locality: rule.balance.depends_on_locality(),
            label_keys: rule.balance.label_keys(),
        };
        self.clone().narrowed(!cx.get(&NetworkGatewaysOf).is_empty(), &used)
    }

    fn narrowed(self, networks: bool, used: &UsedFacets) -> Self {
        let labels = self.labels.only(|key| used.label_keys.contains(key));
        let none = Self::default();
        Self {
            cluster: if used.cluster { self.cluster } else { none.cluster },
            network: if networks { self.network } else { none.network },
            network_view: self.network_view,
            families: if networks { self.families } else { none.families },
            node: if used.node { self.node } else { none.node },
            locality: if used.locality { self.locality } else { none.locality },
            labels: Arc::new(labels),
        }
    }
}

fn network_view(proxy: &Proxy) -> BTreeSet<NetworkId> {
    let listed = proxy.meta("REQUESTED_NETWORK_VIEW").split(',').map(str::trim);
    listed.filter(|network| !network.is_empty()).map(NetworkId::from).collect()
}

/// Query for the facets that any service or rule uses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct UsedFacetsOf;

/// The answer to [`UsedFacetsOf`].
#[derive(Clone, Debug, Default, PartialEq)]
struct UsedFacets {
    cluster: bool,
    node: bool,
    locality: bool,
    label_keys: BTreeSet<String>,
}

impl Query for UsedFacetsOf {
    type Output = UsedFacets;

    fn compute(&self, cx: &Cx<'_>) -> UsedFacets {
        let mut used = UsedFacets::default();
        by_services(cx, &mut used);
        let rules = cx.get(&FacetsUsedByRules);
        used.locality |= rules.locality;
        used.label_keys.extend(rules.label_keys.iter().cloned());
        used
    }
}

fn by_services(cx: &Cx<'_>, used: &mut UsedFacets) {
    let cluster_local = cx.get(&ClusterLocalHosts);
    for (key, services) in cx.services() {
        let attributes = || services.iter().filter_map(|service| service.kubernetes.as_ref());
        let node_local = attributes().any(|kubernetes| kubernetes.node_local);
        used.node |= node_local;
        let confined = attributes().any(|kubernetes| !kubernetes.confined.is_empty());
        used.cluster |= node_local || confined || cluster_local.contains(&key.hostname);
        for service in services.iter() {
            used.label_keys.extend(distribution_keys(service.traffic_distribution).map(str::to_owned));
        }
    }
}

/// The labels that a traffic distribution compares, in order.
pub(super) fn distribution_keys(distribution: TrafficDistribution) -> impl Iterator<Item = &'static str> {
    const KEYS: [&str; 5] =
        [topology::NETWORK, topology::REGION, topology::ZONE, topology::SUB_ZONE, topology::HOSTNAME];
    let count = match distribution {
        TrafficDistribution::Any => 0,
        TrafficDistribution::PreferSameZone => 3,
        TrafficDistribution::PreferSameNode => 5,
    };
    KEYS.into_iter().take(count)
}

/// Facets that locality settings of DestinationRules and of the mesh use. Settings and outlier detection may
/// meet from different levels of a rule, so what one could use in any combination counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FacetsUsedByRules;

impl Query for FacetsUsedByRules {
    type Output = UsedFacets;

    fn compute(&self, cx: &Cx<'_>) -> UsedFacets {
        let rules: Vec<_> = cx.objects::<DestinationRule>().collect();
        let parts: Vec<_> = rules.iter().flat_map(|rule| parts(rule)).collect();
        let outlier = parts.iter().any(|(_, outlier)| outlier.is_some());
        let mesh = cx.mesh();
        let own = parts.iter().filter_map(|(balancer, _)| balancer.as_ref()?.locality_lb_setting.as_ref());
        let mut used = UsedFacets::default();
        let zones =
            parts.iter().filter_map(|(balancer, _)| balancer.as_ref()?.zone_aware_lb_setting.as_ref());
        let balances = own
            .chain(&mesh.locality_lb_setting)
            .map(|setting| Balance::of(Some(setting), outlier))
            .chain(zones.chain(&mesh.zone_aware_lb_setting).map(Balance::of_zones));
        for balance in balances {
            used.locality |= balance.depends_on_locality();
            used.label_keys.extend(balance.label_keys());
        }
        used
    }
}
