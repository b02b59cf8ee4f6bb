//! What a proxy sees of a host and why, by the same queries that make its resources.

use super::Snapshot;
use crate::engine::{Cx, Query};
use crate::policy::destination_rule::destination_rule_for;
use crate::proxy::{Proxy, workload};
use crate::scope::{EgressOf, Scope, ServiceIn, is_visible};
use crate::xds::eds::{ConsideredFor, EndpointView, Unsent};
use pilotfish_model::{Endpoint, ExportTo, Hostname, Kind, ObjectKey, Origin, Service, ServiceKey};
use std::sync::Arc;

/// What a proxy sees of a host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostSeen {
    /// The service that it sees.
    pub service: Option<Arc<Service>>,
    /// The other services of the host, and why it does not see them.
    pub others: Vec<(Arc<Service>, Unseen)>,
    /// The Sidecar that narrows what it sees.
    pub sidecar: Option<ObjectKey>,
}

/// Why a proxy does not see a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unseen {
    /// It is not exported to the proxy's namespace: what it says.
    NotExported(ExportTo),
    /// The Sidecar of the proxy does not import it.
    OutsideSidecar,
    /// Another service of the host is in its place.
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

/// Localities that are asked to be ranked and are not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unranked {
    /// The objects of the DestinationRule that applies.
    pub rule: Vec<Origin>,
}

/// Whether the rule of a proxy for a port and subset asks for priorities by locality and cannot have them.
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
    /// The DestinationRule by which a proxy asks for priorities by locality of a port and subset (empty for the host itself) without noticing
    /// endpoints that fail, so that it gets none. `None` where it does not ask, or gets them.
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

    /// What a proxy sees of a host, and which services of it it does not see.
    #[must_use]
    pub fn host_seen(&self, proxy: &Arc<Proxy>, host: &Hostname) -> HostSeen {
        let query = HostFor(proxy.clone(), host.clone());
        HostSeen::clone(&self.translator.memo.get(&self.current, &query).0)
    }

    /// The endpoints of the service of a cluster, and why a proxy does not get them; `None` for those that it gets.
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
