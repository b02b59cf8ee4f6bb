//! Gateways of a router, and reasons for it, from the query that generates its listeners.

use super::Snapshot;
use crate::engine::{Cx, Query};
use crate::proxy::{Proxy, workload};
use crate::routing::gateway::{AllGateways, GatewayOf, RouterGateways};
use crate::routing::ir::Selection;
use pilotfish_model::{Hostname, Labels, Namespace, Origin};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// All gateways from the perspective of one router.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GatewaysConsidered {
    /// The labels by which gateways select the router.
    pub labels: Labels,
    /// All gateways, in order of precedence.
    pub all: Vec<GatewayConsidered>,
}

/// A gateway, and its relation to a router.
#[derive(Clone, Debug, PartialEq)]
pub struct GatewayConsidered {
    /// The objects that made it.
    pub objects: Vec<Origin>,
    /// The ports of its servers.
    pub ports: BTreeSet<u32>,
    /// Routers that the gateway applies to.
    pub selection: GatewaySelection,
    /// True if the gateway applies to this router.
    pub has: bool,
}

/// Routers to which a gateway applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GatewaySelection {
    /// Routers with these labels; all routers if empty.
    Labels(BTreeMap<String, String>),
    /// Routers that are endpoints of these Services (Gateway API).
    Services(Vec<Hostname>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct GatewaysFor(Arc<Proxy>);

impl Query for GatewaysFor {
    type Output = GatewaysConsidered;

    fn compute(&self, cx: &Cx<'_>) -> GatewaysConsidered {
        let own = RouterGateways::of(cx, &self.0);
        let consider = |header: &crate::routing::ir::GatewayHeader| {
            let gateway = cx.get(&GatewayOf(header.id.clone()));
            let gateway = Option::clone(&gateway)?;
            Some(GatewayConsidered {
                objects: gateway.provenance.clone(),
                ports: gateway
                    .servers
                    .iter()
                    .filter_map(|server| Some(server.port.as_ref()?.number))
                    .collect(),
                selection: match &header.selection {
                    Selection::Labels(labels) => GatewaySelection::Labels(labels.clone()),
                    Selection::Services(hosts) => GatewaySelection::Services(hosts.clone()),
                },
                has: own.gateways.contains(&header.id),
            })
        };
        let all = cx.get(&AllGateways).iter().filter_map(consider).collect();
        GatewaysConsidered { labels: workload::labels_of(cx, &self.0), all }
    }
}

/// True if a gateway applies to this router in particular, and not to all routers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct IsGateway(Arc<Proxy>);

impl Query for IsGateway {
    type Output = bool;

    fn compute(&self, cx: &Cx<'_>) -> bool {
        let own = RouterGateways::of(cx, &self.0);
        let all = cx.get(&AllGateways);
        let any = |selection: &Selection| matches!(selection, Selection::Labels(labels) if labels.is_empty());
        all.iter().any(|header| !any(&header.selection) && own.gateways.contains(&header.id))
    }
}

/// The labels by which gateways select routers, with the namespace of the first gateway of each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct GatewaySelectors;

impl Query for GatewaySelectors {
    type Output = BTreeMap<BTreeMap<String, String>, Namespace>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let mut selectors = BTreeMap::new();
        for header in cx.get(&AllGateways).iter() {
            if let Selection::Labels(labels) = &header.selection {
                selectors.entry(labels.clone()).or_insert_with(|| header.id.namespace.clone());
            }
        }
        selectors
    }
}

impl Snapshot<'_> {
    /// Returns all gateways, with those that apply to the router.
    #[must_use]
    pub fn gateways_considered(&self, proxy: &Arc<Proxy>) -> Arc<GatewaysConsidered> {
        self.translator.memo.get(&self.current, &GatewaysFor(proxy.clone())).0
    }

    /// Returns true if a gateway selects this router by labels, or a Service of a gateway leads to it. A
    /// gateway without a selector applies to all routers and does not count.
    #[must_use]
    pub fn is_gateway(&self, proxy: &Arc<Proxy>) -> bool {
        *self.translator.memo.get(&self.current, &IsGateway(proxy.clone())).0
    }

    /// The labels by which gateways select routers, each with the namespace of the first gateway that has
    /// them.
    #[must_use]
    pub fn gateway_selectors(&self) -> Arc<BTreeMap<BTreeMap<String, String>, Namespace>> {
        self.translator.memo.get(&self.current, &GatewaySelectors).0
    }
}
