//! Visibility of a host for a proxy, with reasons, from the queries that generate the proxy's resources.

use super::Snapshot;
use crate::engine::{Cx, Query};
use crate::policy::destination_rule::destination_rule_for;
use crate::proxy::{Proxy, workload};
use crate::scope::{EgressOf, Scope, ServiceIn, is_visible};
use crate::xds::eds::{ConsideredFor, EndpointView, Unsent};
use pilotfish_model::{Endpoint, ExportTo, Hostname, Kind, ObjectKey, Origin, Service, ServiceKey};
use std::sync::Arc;

/// Services of a host from the perspective of a proxy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostSeen {
    /// The service that it sees.
    pub service: Option<Arc<Service>>,
    /// The other services of the host, and why they are hidden.
    pub others: Vec<(Arc<Service>, Unseen)>,
    /// The Sidecar that restricts the proxy's scope.
    pub sidecar: Option<ObjectKey>,
}

/// Reason for which a proxy does not see a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unseen {
    /// It is exported to other namespaces only, which are listed.
    NotExported(ExportTo),
    /// The proxy's Sidecar does not import it.
    OutsideSidecar,
    /// Another service with the host takes precedence.
    Overruled,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct HostFor(Arc<Proxy>, Hostname);

impl Query for HostFor {
    type Output = HostSeen;

    fn compute(&self, cx: &Cx<'_>) -> HostSeen {
        let Self(proxy, host) = self;
        let scope = Scope::of(cx, proxy);
        let service = Option::clone(&cx.get(&ServiceIn(scope.clone(), host.clone())));
        let keys = cx.namespaces_of(host).into_iter();
        let keys = keys.map(|namespace| ServiceKey { hostname: host.clone(), namespace });
        let all = keys.filter_map(|key| cx.services_of(&key));
        let mut others = Vec::new();
        for other in all.flat_map(|list| list.to_vec()) {
            let is_seen = service.as_ref().is_some_and(|seen| {
                (&seen.namespace, &seen.provenance) == (&other.namespace, &other.provenance)
            });
            if !is_seen {
                let why = unseen(cx, &scope, &other);
                others.push((other, why));
            }
        }
        let sidecar = scope.sidecar.map(|(namespace, name)| ObjectKey::new(Kind::Sidecar, namespace, name));
        HostSeen { service, others, sidecar }
    }
}

fn unseen(cx: &Cx<'_>, scope: &Scope, service: &Service) -> Unseen {
    if !is_visible(cx, service, &scope.namespace) {
        return Unseen::NotExported(service.export_to.clone());
    }
    let listeners = cx.get(&EgressOf(scope.clone()));
    let imports = listeners.iter().any(|one| one.imports.has_service(&service.namespace, &service.hostname));
    if imports { Unseen::Overruled } else { Unseen::OutsideSidecar }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct EndpointViewOf(Arc<Proxy>);

impl Query for EndpointViewOf {
    type Output = Option<EndpointView>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        EndpointView::of(cx, &self.0)
    }
}

/// A locality setting that has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unranked {
    /// The objects of the DestinationRule that applies.
    pub rule: Vec<Origin>,
}

/// Query for a DestinationRule that enables priorities by locality for a port and subset without outlier
/// detection, which they require.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct UnrankedFor {
    proxy: Arc<Proxy>,
    service: ServiceKey,
    subset: Arc<str>,
    port: u32,
}

impl Query for UnrankedFor {
    type Output = Option<Unranked>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let labels = workload::labels_of(cx, &self.proxy);
        let rule = destination_rule_for(cx, &self.proxy.namespace, &self.service, &labels)?;
        let policy = rule.policy_of(&self.subset, self.port);
        let setting = policy.load_balancer?.locality_lb_setting.as_ref()?;
        let ranks = setting.enabled != Some(false) && setting.distribute.is_empty();
        let is_unranked = ranks && policy.outlier_detection.is_none();
        is_unranked.then(|| Unranked { rule: rule.provenance.clone() })
    }
}

impl Snapshot<'_> {
    /// Returns the DestinationRule that enables priorities by locality for a port and subset (empty for the
    /// host itself) without outlier detection, so that Envoy ignores them; `None` if there is no such rule.
    #[must_use]
    pub fn unranked(
        &self,
        proxy: &Arc<Proxy>,
        service: &ServiceKey,
        subset: &str,
        port: u32,
    ) -> Option<Unranked> {
        let (proxy, service) = (proxy.clone(), service.clone());
        let query = UnrankedFor { proxy, service, subset: subset.into(), port };
        Option::clone(&self.translator.memo.get(&self.current, &query).0)
    }

    /// Returns the service of a host that a proxy sees, and the others that it does not see.
    #[must_use]
    pub fn host_seen(&self, proxy: &Arc<Proxy>, host: &Hostname) -> HostSeen {
        let query = HostFor(proxy.clone(), host.clone());
        HostSeen::clone(&self.translator.memo.get(&self.current, &query).0)
    }

    /// Returns the endpoints of a cluster's service, each with the reason why it is not sent to the proxy, if
    /// it is not.
    #[must_use]
    pub fn endpoints_considered(
        &self,
        proxy: &Arc<Proxy>,
        cluster: &str,
    ) -> Vec<(Arc<Endpoint>, Option<Unsent>)> {
        let memo = &self.translator.memo;
        let (view, _) = memo.get(&self.current, &EndpointViewOf(proxy.clone()));
        let Some(view) = Option::clone(&view) else { return Vec::new() };
        let (considered, _) = memo.get(&self.current, &ConsideredFor(view, cluster.into()));
        considered.iter().map(|one| (one.endpoint.clone(), one.unsent)).collect()
    }
}
