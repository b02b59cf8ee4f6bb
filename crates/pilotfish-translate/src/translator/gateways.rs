//! Which gateways a router has, by the query that makes its listeners: for those who ask why, or who would be one.

use super::Snapshot;
use crate::engine::{Cx, Query};
use crate::proxy::{Proxy, workload};
use crate::routing::gateway::{AllGateways, GatewayOf, RouterGateways};
use crate::routing::ir::Selection;
use pilotfish_model::{Hostname, Labels, Namespace, Origin};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The gateways that there are, as one router stands to them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GatewaysConsidered {
    /// The labels by which gateways select the router.
    pub labels: Labels,
    /// All gateways, in order of precedence.
    pub all: Vec<GatewayConsidered>,
}

/// A gateway, and whether a router has it.
#[derive(Clone, Debug, PartialEq)]
pub struct GatewayConsidered {
    /// The objects that made it.
    pub objects: Vec<Origin>,
    /// The ports of its servers.
    pub ports: BTreeSet<u32>,
    /// Which routers have it.
    pub selection: GatewaySelection,
    /// Whether this router has it.
    pub has: bool,
}

/// Which routers have a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GatewaySelection {
    /// Those with these labels; all for none.
    Labels(BTreeMap<String, String>),
    /// Those that these Services lead to (Gateway API).
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

/// Whether some gateway is for this router rather than for any.
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
    /// All gateways, and which of them a router has.
    #[must_use]
    pub fn gateways_considered(&self, proxy: &Arc<Proxy>) -> Arc<GatewaysConsidered> {
        self.translator.memo.get(&self.current, &GatewaysFor(proxy.clone())).0
    }

    /// Whether a gateway selects this router by labels, or a Service of one leads to it. A gateway without a selector is for all routers, and
    /// tells nothing of which proxies are any.
    #[must_use]
    pub fn is_gateway(&self, proxy: &Arc<Proxy>) -> bool {
        *self.translator.memo.get(&self.current, &IsGateway(proxy.clone())).0
    }

    /// The labels by which gateways select routers, each with the namespace of the first gateway that has them.
    #[must_use]
    pub fn gateway_selectors(&self) -> Arc<BTreeMap<BTreeMap<String, String>, Namespace>> {
        self.translator.memo.get(&self.current, &GatewaySelectors).0
    }
}
