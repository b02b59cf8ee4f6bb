//! Load assignments (EDS).
//!
//! ```text
//! cluster name ─▶ service of the scope ─▶ its DestinationRules ─┐
//!              ClientLocality, only the parts that matter here ─┴▶ AssignmentOf: endpoints ─▶ groups
//!                                                                       priorities ◀─ networks ◀─┘
//! ```
//!
//! A load assignment depends on the endpoints of one service, on the DestinationRules for one port and
//! subset, and on the facets of the proxy that these rules match. So [`AssignmentOf`] is shared by all views
//! in which these are equal, and a changed endpoint causes one small recomputation for each such group.

mod assignment;
mod client_locality;
mod considered;
mod encode;
mod group;
mod lb_endpoint;
mod local_cluster;
mod locality_lb;
mod select;
mod service_rule;
mod split;

pub(crate) use assignment::inline_endpoints;
pub(crate) use client_locality::ClientLocality;
pub(crate) use considered::ConsideredFor;
pub use select::Unsent;

use crate::engine::{Cx, EncodedResource, ResourceBatch, ResourceBatchKey};
use crate::envoy::ClusterName;
use crate::policy::destination_rule::{destination_rule_for, selected_labels};
use crate::proxy::Proxy;
use crate::proxy::locality::ProxyLocality;
use crate::scope::{Scope, ServiceIn};
use assignment::AssignmentOf;
use local_cluster::{LOCAL_CLUSTER, OwnWorkload};
use pilotfish_model::{Hostname, Labels, PortId};
use pilotfish_proto::envoy::config::endpoint::v3::ClusterLoadAssignment;
use service_rule::Ruled;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The facets of a proxy that its load assignments may depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct EndpointView {
    pub scope: Scope,
    /// The locality and network of the client.
    pub client_locality: ClientLocality,
    /// Its labels by which workload selectors of DestinationRules select it.
    pub selector_labels: Labels,
    /// Its own workload, if it wants to know the other replicas.
    pub workload: Option<Arc<OwnWorkload>>,
}

impl EndpointView {
    /// The view of a proxy; `None` when it is not served this type.
    #[allow(clippy::unnecessary_wraps)]
    pub(crate) fn of(cx: &Cx<'_>, proxy: &Proxy) -> Option<Self> {
        let scope = Scope::of(cx, proxy);
        let place = ProxyLocality::of(cx, proxy);
        Some(Self {
            client_locality: ClientLocality::of(cx, proxy, &place),
            selector_labels: selected_labels(cx, &scope.namespace, &place.labels),
            workload: OwnWorkload::of(cx, proxy, &place).map(Arc::new),
            scope,
        })
    }

    /// True for the name of the replicas of the proxy's own workload, if the proxy asks for them.
    #[must_use]
    pub(crate) fn names_own_workload(&self, name: &str) -> bool {
        self.workload.is_some() && name == LOCAL_CLUSTER
    }

    /// Generates the resources of one batch.
    #[must_use]
    pub(crate) fn generate(&self, cx: &Cx<'_>, batch_key: &ResourceBatchKey) -> ResourceBatch {
        match batch_key {
            ResourceBatchKey::Named(name) => vec![self.assignment(cx, name)].into(),
            _ => ResourceBatch::default(),
        }
    }

    /// Returns the load assignment of a cluster; an empty one if there is no such service or port.
    fn assignment(&self, cx: &Cx<'_>, name: &Arc<str>) -> EncodedResource {
        if let Some(workload) = self.workload.as_ref().filter(|_| self.names_own_workload(name)) {
            return workload.assignment(cx);
        }
        self.assignment_of(cx, name).map_or_else(|| empty(name), |query| cx.get(&query).0.clone())
    }

    /// Returns the subsets of a host in the DestinationRule that applies to the client.
    #[must_use]
    pub(crate) fn subsets(&self, cx: &Cx<'_>, host: &Hostname) -> BTreeSet<String> {
        let service = cx.get(&ServiceIn(self.scope.clone(), host.clone()));
        let Some(service) = Option::as_ref(&service) else { return BTreeSet::new() };
        let key = service.key();
        let rule = destination_rule_for(cx, &self.scope.namespace, &key, &self.selector_labels);
        let subsets = rule.iter().flat_map(|rule| &rule.subsets);
        subsets.map(|subset| subset.name.clone()).collect()
    }

    fn assignment_of(&self, cx: &Cx<'_>, name: &Arc<str>) -> Option<AssignmentOf> {
        let cluster = ClusterName::parse(name)?;
        let service = cx.get(&ServiceIn(self.scope.clone(), cluster.host.clone()));
        let service = Option::as_ref(&service)?;
        let port = service.port(PortId::tcp(cluster.port))?;
        let key = service.key();
        let rule = destination_rule_for(cx, &self.scope.namespace, &key, &self.selector_labels);
        let ruled = rule.map_or_else(Ruled::default, |rule| Ruled::of(&rule, &cluster.subset, cluster.port));
        // No cluster has a subset without a rule. Returning all endpoints for it would let clients create
        // large resources by inventing names.
        if !cluster.subset.is_empty() && !ruled.has_subset() {
            return None;
        }
        let rule = service_rule::for_service(cx, service, ruled);
        Some(AssignmentOf {
            name: name.clone(),
            sni_dnat: cluster.sni_dnat,
            service: key,
            port: port.name.clone(),
            client_locality: cx.shared().by_content(self.client_locality.reduced(cx, &rule)),
            rule: cx.shared().by_content(rule),
            provenance: service.provenance.clone(),
        })
    }
}

/// Returns the load assignment of a cluster that does not exist.
pub(crate) fn empty(name: &Arc<str>) -> EncodedResource {
    let message = ClusterLoadAssignment { cluster_name: name.to_string(), ..Default::default() };
    EncodedResource::new(name.clone(), &message, Vec::new()).standing_in()
}
