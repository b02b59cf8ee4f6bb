//! The gateways of one router, and where its Services lead.

use super::AllGateways;
use crate::engine::Cx;
use crate::proxy::Proxy;
use crate::proxy::targets::{Target, TargetsOf};
use crate::proxy::workload::{self, Identity};
use crate::routing::ir::{GatewayHeader, GatewayId, Selection};
use pilotfish_model::{Kind, Namespace, ServiceKey, label_subset};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The label of a Service whose servers listen on their own ports, not on its target ports.
const NO_TRANSLATION: &str = "experimental.istio.io/disable-gateway-port-translation";

/// The gateways of a router with all that their servers depend on. Equal for all replicas of one router.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RouterGateways {
    /// In order of precedence.
    pub gateways: Arc<[GatewayId]>,
    /// The ports of the Services that lead to the router, those of the oldest Service first.
    pub reached: Arc<[Reached]>,
}

/// A port of a Service that leads to the router.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Reached {
    pub service: ServiceKey,
    pub port: u32,
    /// The port of the router.
    pub target: u32,
    /// True if servers of that port listen on the router's port rather than on their own.
    pub translates: bool,
}

impl RouterGateways {
    /// The gateways of a router.
    #[must_use]
    pub(crate) fn of(cx: &Cx<'_>, proxy: &Proxy) -> Self {
        let all = cx.get(&AllGateways);
        if all.is_empty() {
            return Self::default();
        }
        let labels = workload::labels_of(cx, proxy);
        let targets = cx.get(&TargetsOf(Identity::of(proxy)));
        let has = |header: &&GatewayHeader| match &header.selection {
            Selection::Labels(selector) => label_subset(selector, &labels),
            Selection::Services(hosts) => targets.iter().any(|target| {
                target.service.namespace == header.routers && hosts.contains(&target.service.hostname)
            }),
        };
        let own: Vec<&GatewayHeader> = all.iter().filter(has).collect();
        let gateways: Arc<[GatewayId]> = match cx.switches().strict_gateway_merging {
            true => strictly_merged(&own),
            false => own.iter().map(|header| header.id.clone()).collect(),
        };
        if gateways.is_empty() {
            return Self::default();
        }
        let mut as_is: BTreeMap<&ServiceKey, bool> = BTreeMap::new();
        let mut all: Vec<Reached> = Vec::new();
        for target in targets.iter().filter(|target| target.port.is_tcp()) {
            let service = &target.service;
            let as_is = *as_is.entry(service).or_insert_with(|| is_untranslated(cx, service));
            let reached = reached(target, !as_is);
            if !all.contains(&reached) {
                all.push(reached);
            }
        }
        Self { gateways, reached: all.into() }
    }

    /// The ports of the router on which a server listens. Gateways of the Gateway API belong to Services, so
    /// that without a port of one there is nothing; for others, the first Service with that port decides, or
    /// the number stands for itself.
    #[must_use]
    pub(super) fn ports(&self, number: u32, selection: Option<&[ServiceKey]>) -> Vec<u32> {
        let mut reached = self.reached.iter().filter(|reached| reached.port == number);
        match selection {
            Some(services) => {
                let own = reached.filter(|reached| services.contains(&reached.service));
                own.map(|reached| reached.target).collect::<BTreeSet<u32>>().into_iter().collect()
            }
            None => vec![reached.find(|reached| reached.translates).map_or(number, |first| first.target)],
        }
    }
}

/// The gateways of a router that may share it. Behind a Gateway whose routers its controller makes, those of
/// Istio's own kind count only from the namespaces of such Gateways.
fn strictly_merged(headers: &[&GatewayHeader]) -> Arc<[GatewayId]> {
    let managed: BTreeSet<&Namespace> =
        headers.iter().filter(|header| header.is_managed).map(|header| &header.routers).collect();
    let may_share = |header: &&GatewayHeader| {
        managed.is_empty() || header.id.source != Kind::Gateway || managed.contains(&header.id.namespace)
    };
    headers.iter().copied().filter(may_share).map(|header| header.id.clone()).collect()
}

fn reached(target: &Target, translates: bool) -> Reached {
    Reached {
        service: target.service.clone(),
        port: target.port.number,
        target: target.target_port,
        translates,
    }
}

fn is_untranslated(cx: &Cx<'_>, service: &ServiceKey) -> bool {
    let services = cx.services_of(service);
    services.iter().flat_map(|services| services.iter()).any(|s| s.labels.contains_key(NO_TRANSLATION))
}
