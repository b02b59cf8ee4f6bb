//! Rules of services and DestinationRules for the endpoints of one port and subset: selection and load
//! balancing.

use super::client_locality::distribution_keys;
use crate::engine::{Cx, Query};
use crate::policy::destination_rule::MergedDestinationRule;
use crate::services::cluster_local::ClusterLocalHosts;
use pilotfish_config::networking::{
    ClientTlsMode, LocalityLoadBalancerSetting, ZoneAwareLoadBalancerSetting,
};
use pilotfish_model::{
    ClusterId, Endpoint, Origin, Provider, Service, ServiceEndpoints, ShardKey, TrafficDistribution,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A service label: clients stay with an endpoint that drains.
const PERSISTENT_SESSION: &str = "istio.io/persistent-session";

/// Everything but the endpoints and the proxy that a load assignment depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ServiceRule {
    /// Labels of the subset; empty for all endpoints.
    pub(super) subset: BTreeMap<String, String>,
    /// The TLS mode of the client, where a rule sets one.
    pub(super) tls: Option<ClientTlsMode>,
    /// Distribution of traffic over localities.
    pub(super) balance: Balance,
    /// True if unready endpoints are sent, marked as such.
    pub(super) unready: bool,
    /// True if draining endpoints are sent, marked as such.
    pub(super) draining: bool,
    /// True if only endpoints of the client's cluster count.
    pub(super) cluster_local: bool,
    /// The type of registry whose endpoints `confined` is about: the service's own.
    pub(super) provider: Option<Provider>,
    /// Clusters whose endpoints only their own clients are sent.
    pub(super) confined: BTreeSet<ClusterId>,
    /// True if only endpoints of the client's node count.
    pub(super) node_local: bool,
    /// The ServiceEntries whose endpoints count, where that makes a difference.
    pub(super) entries: BTreeSet<Arc<str>>,
    /// Objects that the rule is made of.
    pub(super) provenance: Vec<Origin>,
}

impl ServiceRule {
    /// The endpoints in the shards that clients of a cluster may see.
    pub(super) fn visible<'a>(
        &'a self,
        endpoints: &'a ServiceEndpoints,
        client: &'a ClusterId,
    ) -> impl Iterator<Item = &'a Arc<Endpoint>> {
        let hidden = move |shard: &ShardKey| {
            Some(shard.provider) == self.provider
                && shard.cluster != *client
                && self.confined.contains(&shard.cluster)
        };
        endpoints.shards.iter().filter(move |(shard, _)| !hidden(shard)).flat_map(|(_, list)| list.iter())
    }
}

/// Distribution of traffic over localities.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Balance {
    /// By the weights of the endpoints alone.
    #[default]
    Even,
    /// By shares of localities, for clients of some localities: `from` and the percentages by `to`.
    Shares(Vec<(String, BTreeMap<String, u32>)>),
    /// By priorities: labels that are compared in order, then (or if there are none) the distance from the
    /// client, with the regions that take over from another.
    Priorities {
        /// Label keys, or `key=value`.
        labels: Vec<String>,
        /// True if the distance counts.
        distance: bool,
        /// Regions that take over, as `(from, to)`.
        regions: Vec<(String, String)>,
    },
    /// By priorities of regions, within which Envoy prefers its own zone: labels that are compared first, and
    /// regions that take over, as `(from, to)`.
    Regions { labels: Vec<String>, takes_over: Vec<(String, String)> },
}

impl Balance {
    /// Distribution by a setting. Priorities need `outlier`, which finds failing endpoints.
    pub(super) fn of(setting: Option<&LocalityLoadBalancerSetting>, outlier: bool) -> Self {
        let Some(setting) = setting.filter(|setting| setting.enabled != Some(false)) else {
            return Self::Even;
        };
        if !setting.distribute.is_empty() {
            let shares = setting.distribute.iter().map(|share| (share.from.clone(), share.to.clone()));
            return Self::Shares(shares.collect());
        }
        if !outlier {
            return Self::Even;
        }
        let regions = setting.failover.iter().map(|failover| (failover.from.clone(), failover.to.clone()));
        Self::Priorities {
            labels: setting.failover_priority.clone(),
            distance: setting.failover_priority.is_empty() || !setting.failover.is_empty(),
            regions: regions.collect(),
        }
    }

    /// The meaning of a setting by zones. It needs nothing that notices failing endpoints.
    pub(super) fn of_zones(setting: &ZoneAwareLoadBalancerSetting) -> Self {
        if setting.enabled == Some(false) {
            return Self::Even;
        }
        let regions = setting.failover.iter().map(|failover| (failover.from.clone(), failover.to.clone()));
        Self::Regions { labels: setting.failover_priority.clone(), takes_over: regions.collect() }
    }

    /// The priorities of a service's traffic distribution.
    fn of_distribution(distribution: TrafficDistribution) -> Self {
        let labels = distribution_keys(distribution).map(str::to_owned).collect();
        Self::Priorities { labels, distance: false, regions: Vec::new() }
    }

    /// True if the client's locality counts.
    pub(super) fn depends_on_locality(&self) -> bool {
        match self {
            Self::Even => false,
            Self::Shares(_) | Self::Regions { .. } => true,
            Self::Priorities { distance, .. } => *distance,
        }
    }

    /// The client's labels that count.
    pub(super) fn label_keys(&self) -> BTreeSet<String> {
        match self {
            Self::Priorities { labels, .. } | Self::Regions { labels, .. } => {
                labels.iter().filter(|label| !label.contains('=')).cloned().collect()
            }
            Self::Even | Self::Shares(_) => BTreeSet::new(),
        }
    }
}

/// The settings of a DestinationRule for the endpoints of one port and subset.
#[derive(Debug, Default)]
pub(super) struct Ruled {
    /// True if the rule has the subset.
    has_subset: bool,
    subset: BTreeMap<String, String>,
    tls: Option<ClientTlsMode>,
    /// The rule's own setting, which counts even where it is switched off.
    setting: Option<LocalityLoadBalancerSetting>,
    /// The rule's own setting by zones.
    zones: Option<ZoneAwareLoadBalancerSetting>,
    outlier: bool,
    /// True if outlier detection sets a minimum share of healthy endpoints, below which Envoy panics.
    panics: bool,
    provenance: Vec<Origin>,
}

impl Ruled {
    /// True if the rule has the requested subset.
    pub(super) fn has_subset(&self) -> bool {
        self.has_subset
    }

    /// The settings of a rule for one port and subset.
    pub(super) fn of(rule: &MergedDestinationRule, subset: &str, port: u32) -> Self {
        let policy = rule.policy_of(subset, port);
        Self {
            has_subset: rule.subset(subset).is_some(),
            subset: rule.subset(subset).map(|subset| subset.labels.clone()).unwrap_or_default(),
            tls: rule.endpoint_tls_mode(subset, port),
            setting: policy.load_balancer.and_then(|balancer| balancer.locality_lb_setting.clone()),
            zones: policy.load_balancer.and_then(|balancer| balancer.zone_aware_lb_setting.clone()),
            outlier: policy.outlier_detection.is_some(),
            panics: policy.outlier_detection.is_some_and(|outlier| outlier.min_health_percent > 0),
            provenance: rule.provenance.clone(),
        }
    }
}

/// Joins the settings of rules, service and mesh.
pub(super) fn for_service(cx: &Cx<'_>, service: &Service, ruled: Ruled) -> ServiceRule {
    let distributed = service.traffic_distribution != TrafficDistribution::Any;
    let balance = match (&ruled.zones, &ruled.setting) {
        (Some(zones), _) => Balance::of_zones(zones),
        (None, Some(setting)) => Balance::of(Some(setting), ruled.outlier),
        (None, None) if distributed => Balance::of_distribution(service.traffic_distribution),
        (None, None) => {
            let (zones, setting) = &*cx.get(&MeshLocality);
            let by_setting = || Balance::of(setting.as_ref(), ruled.outlier);
            zones.as_ref().map_or_else(by_setting, Balance::of_zones)
        }
    };
    ServiceRule {
        subset: ruled.subset,
        tls: ruled.tls,
        balance,
        // In panic Envoy would send requests to them. Priorities go by the share of healthy endpoints, so
        // with them all must be seen.
        unready: distributed || cx.switches().unhealthy_endpoints && !ruled.panics,
        draining: service.labels.get(PERSISTENT_SESSION).is_some_and(|value| !value.is_empty()),
        cluster_local: cx.get(&ClusterLocalHosts).contains(&service.hostname),
        provider: Some(service.provider),
        confined: service.kubernetes.as_ref().map(|k| k.confined.clone()).unwrap_or_default(),
        entries: service.entries.clone(),
        node_local: service.kubernetes.as_ref().is_some_and(|kubernetes| kubernetes.node_local),
        provenance: ruled.provenance,
    }
}

/// The mesh-wide settings for zones and localities.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct MeshLocality;

impl Query for MeshLocality {
    type Output = (Option<ZoneAwareLoadBalancerSetting>, Option<LocalityLoadBalancerSetting>);

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let mesh = cx.mesh();
        (mesh.zone_aware_lb_setting.clone(), mesh.locality_lb_setting.clone())
    }
}
