//! The policy of a DestinationRule for one port of the host, and for one port of a subset.

use super::MergedDestinationRule;
use crate::engine::{Cx, Query};
use pilotfish_config::mesh::DefaultTrafficPolicy;
use pilotfish_config::networking::{
    ClientTlsMode, ClientTlsSettings, ConnectionPoolSettings, ConsistentHashLb, DestinationRule,
    LoadBalancerSettings, OutlierDetection, PortTrafficPolicy, ProxyProtocol, RetryBudget, Subset,
    TrafficPolicy, TunnelSettings,
};

/// The parts of a traffic policy that are in force.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Policy<'a> {
    pub load_balancer: Option<&'a LoadBalancerSettings>,
    /// Limits of connections and requests.
    pub connection_pool: Option<&'a ConnectionPoolSettings>,
    /// Ejection of failing endpoints.
    pub outlier_detection: Option<&'a OutlierDetection>,
    /// TLS to the host.
    pub tls: Option<&'a ClientTlsSettings>,
    /// Tunnels over HTTP CONNECT (`tunnel`).
    pub tunnel: Option<&'a TunnelSettings>,
    /// Header of the PROXY protocol on connections to endpoints.
    pub proxy_protocol: Option<&'a ProxyProtocol>,
    /// Limit of concurrent retries, as a share of the requests.
    pub retry_budget: Option<&'a RetryBudget>,
}

impl<'a> Policy<'a> {
    /// The settings of a traffic policy for a port. Settings of the port replace all others: nothing is
    /// inherited.
    #[must_use]
    pub(crate) fn of(policy: &'a TrafficPolicy, port: u32) -> Self {
        match port_settings(policy, port) {
            Some(settings) => Self::of_port(settings),
            None => Self {
                load_balancer: policy.load_balancer.as_ref(),
                connection_pool: policy.connection_pool.as_ref(),
                outlier_detection: policy.outlier_detection.as_ref(),
                tls: policy.tls.as_ref(),
                tunnel: policy.tunnel.as_ref(),
                proxy_protocol: policy.proxy_protocol.as_ref(),
                retry_budget: policy.retry_budget.as_ref(),
            },
        }
    }

    /// True if its TLS settings are unusable: nothing is sent.
    #[must_use]
    pub(crate) fn is_closed(&self) -> bool {
        self.tls.is_some_and(|tls| tls.closed)
    }

    fn of_port(settings: &'a PortTrafficPolicy) -> Self {
        Self {
            load_balancer: settings.load_balancer.as_ref(),
            connection_pool: settings.connection_pool.as_ref(),
            outlier_detection: settings.outlier_detection.as_ref(),
            tls: settings.tls.as_ref(),
            ..Self::default()
        }
    }

    /// The host's policy under that of a subset: parts of the subset replace whole parts of the host. Where
    /// the subset has settings for the port, the four parts that such settings have all come from there,
    /// present or not. A retry budget is inherited whatever else the subset sets.
    fn under(self, subset: &'a TrafficPolicy, port: u32) -> Self {
        let own = Self::of(subset, port);
        let merged = Self {
            tunnel: own.tunnel.or(self.tunnel),
            proxy_protocol: own.proxy_protocol.or(self.proxy_protocol),
            retry_budget: subset.retry_budget.as_ref().or(self.retry_budget),
            ..own
        };
        if port_settings(subset, port).is_some() {
            return merged;
        }
        Self {
            load_balancer: own.load_balancer.or(self.load_balancer),
            connection_pool: own.connection_pool.or(self.connection_pool),
            outlier_detection: own.outlier_detection.or(self.outlier_detection),
            tls: own.tls.or(self.tls),
            ..merged
        }
    }
}

impl<'a> Policy<'a> {
    /// With the mesh's parts where there are none. Settings of a subset for the port leave out what they do
    /// not name, also the mesh's.
    #[must_use]
    pub(crate) fn over_mesh(self, default: Option<&'a DefaultTrafficPolicy>) -> Self {
        let Some(default) = default else { return self };
        Self {
            connection_pool: self.connection_pool.or(default.connection_pool.as_ref()),
            outlier_detection: self.outlier_detection.or(default.outlier_detection.as_ref()),
            ..self
        }
    }
}

impl MergedDestinationRule {
    /// The policy of a port of the host.
    #[must_use]
    pub(crate) fn policy(&self, port: u32) -> Policy<'_> {
        self.policy.as_ref().map_or_else(Policy::default, |policy| Policy::of(policy, port))
    }

    /// True if nothing is sent to a port and subset (empty for the host as a whole).
    #[must_use]
    pub(crate) fn closes(&self, subset: &str, port: u32) -> bool {
        self.closed || self.policy_of(subset, port).is_closed()
    }

    /// The policy of a port of a subset.
    #[must_use]
    pub(crate) fn subset_policy<'a>(&'a self, subset: &'a Subset, port: u32) -> Policy<'a> {
        match &subset.traffic_policy {
            None => self.policy(port),
            Some(own) => self.policy(port).under(own, port),
        }
    }

    /// The policy of a port of a subset, which is over that of the mesh.
    #[must_use]
    pub(crate) fn subset_policy_over_mesh<'a>(
        &'a self,
        subset: &'a Subset,
        port: u32,
        default: Option<&'a DefaultTrafficPolicy>,
    ) -> Policy<'a> {
        let host = self.policy(port).over_mesh(default);
        match &subset.traffic_policy {
            None => host,
            Some(own) => host.under(own, port),
        }
    }

    /// The policy of a port of the subset of that name; of the host when there is no such subset.
    #[must_use]
    pub(crate) fn policy_of(&self, subset: &str, port: u32) -> Policy<'_> {
        match self.subset(subset) {
            Some(subset) => self.subset_policy(subset, port),
            None => self.policy(port),
        }
    }

    /// The TLS mode that clients use for endpoints of a port and subset: that of the subset, else that of the
    /// host. In both, a port without a mode of its own has the one for all ports.
    #[must_use]
    pub(crate) fn endpoint_tls_mode(&self, subset: &str, port: u32) -> Option<ClientTlsMode> {
        let subset = self.subset(subset).and_then(|subset| subset.traffic_policy.as_ref());
        [subset, self.policy.as_ref()].into_iter().flatten().find_map(|policy| {
            let of_port = port_settings(policy, port).and_then(|settings| settings.tls.as_ref());
            of_port.or(policy.tls.as_ref()).map(|tls| tls.mode)
        })
    }

    /// True if the TLS settings of a port and subset come from a BackendTLSPolicy: connections without them
    /// must not be made.
    #[must_use]
    pub(crate) fn requires_tls(&self, subset: &str, port: u32) -> bool {
        let made = self.made.as_ref().and_then(|made| Policy::of(made, port).tls);
        made.is_some() && self.policy_of(subset, port).tls == made
    }

    /// The keys of consistent hashing for requests to a port and subset: the most specific place that has
    /// any. `None` as port stands for a destination that names none, for which settings of ports do not
    /// count.
    #[must_use]
    pub(crate) fn consistent_hash(&self, port: Option<u32>, subset: &str) -> Option<&ConsistentHashLb> {
        let own = self.subset(subset).and_then(|subset| subset.traffic_policy.as_ref());
        [own, self.policy.as_ref()].into_iter().flatten().find_map(|policy| {
            let settings = port.and_then(|port| port_settings(policy, port));
            let of_port = settings.and_then(|settings| hash(settings.load_balancer.as_ref()));
            of_port.or_else(|| hash(policy.load_balancer.as_ref()))
        })
    }
}

/// The load balancer and the outlier detection of one level of a rule.
type Part<'a> = (&'a Option<LoadBalancerSettings>, &'a Option<OutlierDetection>);

/// Load balancers and outlier detections of all levels of a rule.
pub(crate) fn parts(rule: &DestinationRule) -> impl Iterator<Item = Part<'_>> {
    let subsets = rule.subsets.iter().filter_map(|subset| subset.traffic_policy.as_ref());
    rule.traffic_policy.iter().chain(subsets).flat_map(|policy| {
        let ports = policy.port_level_settings.iter();
        let ports = ports.map(|port| (&port.load_balancer, &port.outlier_detection));
        std::iter::once((&policy.load_balancer, &policy.outlier_detection)).chain(ports)
    })
}

/// True if any rule balances requests by their content. If none does, as in most meshes, no host needs a
/// result of its own for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AnyConsistentHash;

impl Query for AnyConsistentHash {
    type Output = bool;

    fn compute(&self, cx: &Cx<'_>) -> bool {
        let is_hash =
            |rule: &DestinationRule| parts(rule).any(|(balancer, _)| hash(balancer.as_ref()).is_some());
        cx.objects::<DestinationRule>().any(|rule| is_hash(&rule))
    }
}

/// The policy of a written rule over one made of a BackendTLSPolicy: each field that is written wins as a
/// whole, settings of ports field by field (Istio 1.31).
pub(super) fn over_made(written: TrafficPolicy, made: &TrafficPolicy) -> TrafficPolicy {
    let mut ports = written.port_level_settings;
    for below in &made.port_level_settings {
        match ports.iter_mut().find(|settings| settings.port == below.port) {
            None => ports.push(below.clone()),
            Some(settings) => {
                let own = std::mem::take(settings);
                *settings = PortTrafficPolicy {
                    port: own.port,
                    load_balancer: own.load_balancer.or_else(|| below.load_balancer.clone()),
                    connection_pool: own.connection_pool.or_else(|| below.connection_pool.clone()),
                    outlier_detection: own.outlier_detection.or_else(|| below.outlier_detection.clone()),
                    tls: own.tls.or_else(|| below.tls.clone()),
                };
            }
        }
    }
    TrafficPolicy {
        load_balancer: written.load_balancer.or_else(|| made.load_balancer.clone()),
        connection_pool: written.connection_pool.or_else(|| made.connection_pool.clone()),
        outlier_detection: written.outlier_detection.or_else(|| made.outlier_detection.clone()),
        tls: written.tls.or_else(|| made.tls.clone()),
        tunnel: written.tunnel.or_else(|| made.tunnel.clone()),
        proxy_protocol: written.proxy_protocol.or_else(|| made.proxy_protocol.clone()),
        retry_budget: written.retry_budget.or_else(|| made.retry_budget.clone()),
        port_level_settings: ports,
    }
}

fn hash(settings: Option<&LoadBalancerSettings>) -> Option<&ConsistentHashLb> {
    settings?.consistent_hash.as_ref()
}

fn port_settings(policy: &TrafficPolicy, port: u32) -> Option<&PortTrafficPolicy> {
    let is_for = |settings: &&PortTrafficPolicy| settings.port.as_ref().is_some_and(|p| p.number == port);
    policy.port_level_settings.iter().find(is_for)
}
