//! Load assignments (EDS).
//!
//! ```text
//! cluster name ─▶ service of the scope ─▶ what the rules say of it ─┐
//!            proxy's vantage, less what does not matter here ─┴▶ AssignmentOf: endpoints ─▶ groups ─▶ networks ─▶ priorities
//! ```
//!
//! A load assignment depends on the endpoints of one service, on what rules say of one port and subset, and on as little
//! of the proxy as these rules look at. So [`AssignmentOf`] is shared by all views for which these are equal, and an endpoint
//! that changes costs one small result for each of them.

mod assignment;
mod cluster_name;
mod group;
mod lb_endpoint;
mod locality_lb;
mod select;
mod service_rule;
mod split;
mod vantage;

pub(crate) use assignment::inline_endpoints;
pub(crate) use cluster_name::ClusterName;
pub(crate) use vantage::Vantage;

use crate::engine::{Batch, Cx, Encoded};
use crate::policy::destination_rule::selector_labels;
use crate::proxy::Proxy;
use crate::proxy::locality::Place;
use crate::scope::{Scope, ServiceIn};
use crate::translator::view::Unit;
use assignment::AssignmentOf;
use pilotfish_model::{Labels, ServiceKey};
use pilotfish_proto::envoy::config::endpoint::v3::ClusterLoadAssignment;
use service_rule::ServiceRuleOf;
use std::sync::Arc;

/// The facets of a proxy that its load assignments may depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct EndpointView {
    /// Which services it sees.
    pub scope: Scope,
    /// Where it looks at endpoints from.
    pub vantage: Vantage,
    /// Its labels that workload selectors of DestinationRules name.
    pub selector_labels: Labels,
}

impl EndpointView {
    /// The view of a proxy; `None` when it is not served this type.
    #[allow(clippy::unnecessary_wraps)]
    pub(crate) fn of(cx: &Cx<'_>, proxy: &Proxy) -> Option<Self> {
        let scope = Scope::of(cx, proxy);
        let place = Place::of(cx, proxy);
        Some(Self {
            vantage: Vantage::of(cx, proxy, &place),
            selector_labels: selector_labels(cx, &scope.namespace, &place.labels),
            scope,
        })
    }

    /// Generates one unit.
    #[must_use]
    pub(crate) fn generate(&self, cx: &Cx<'_>, unit: &Unit) -> Batch {
        match unit {
            Unit::Named(name) => vec![self.assignment(cx, name)].into(),
            _ => Batch::default(),
        }
    }

    /// The load assignment of a cluster: empty, but never left out, when there is no such service or port.
    fn assignment(&self, cx: &Cx<'_>, name: &Arc<str>) -> Encoded {
        self.assignment_of(cx, name).map_or_else(|| empty(name), |query| cx.get(&query).0.clone())
    }

    fn assignment_of(&self, cx: &Cx<'_>, name: &Arc<str>) -> Option<AssignmentOf> {
        let cluster = ClusterName::parse(name)?;
        let service = cx.get(&ServiceIn(self.scope.clone(), cluster.host.clone()));
        let service = Option::as_ref(&service)?;
        let port = service.port(cluster.port)?;
        let key = ServiceKey { hostname: service.hostname.clone(), namespace: service.namespace.clone() };
        let rule = cx.get(&ServiceRuleOf {
            client: self.scope.namespace.clone(),
            service: key.clone(),
            port: cluster.port,
            subset: cluster.subset.as_str().into(),
            selector_labels: self.selector_labels.clone(),
        });
        let rule = service_rule::for_service(cx, service, &rule);
        Some(AssignmentOf {
            name: name.clone(),
            sni_dnat: cluster.sni_dnat,
            service: key,
            port: port.name.clone(),
            vantage: self.vantage.reduced(cx, &rule),
            rule,
            provenance: service.provenance.clone(),
        })
    }
}

fn empty(name: &Arc<str>) -> Encoded {
    let message = ClusterLoadAssignment { cluster_name: name.to_string(), ..Default::default() };
    Encoded::new(name.clone(), &message, Vec::new())
}
