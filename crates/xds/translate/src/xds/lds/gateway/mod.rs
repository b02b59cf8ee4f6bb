//! Listeners of routers: one for each address and port that the servers of its gateways have.
//!
//! ```text
//! MergedOf(gateways) ─▶ servers of a port ─▶ filter chains: one for all plain HTTP servers, one for each TLS
//!                                            server, one for each TLS or TCP route ─▶ Listener
//! ```

mod auto_passthrough;
mod chain;
mod http;
mod streams;
mod tls;

use super::budget::ListenerBudget;
use super::policies::{Policies, PoliciesOf};
use super::view::{ListenerBase, Side};
use super::{address, connection_settings, overlap, tcp_proxy};
use crate::engine::{Cx, EncodedResource};
use crate::envoy::{TrafficClass, filters};
use crate::proxy::Proxy;
use crate::proxy::proxy_config::EffectiveProxyConfig;
use crate::routing::gateway::{MergedGatewaysOf, PortServers, RouterGateways};
use chain::Chain;
use pilotfish_model::Origin;
use pilotfish_proto::envoy::config::accesslog::v3::AccessLog;
use pilotfish_proto::envoy::config::core::v3::TrafficDirection;
use pilotfish_proto::envoy::config::listener::v3::{Listener, ListenerFilter};
use pilotfish_proto::envoy::extensions::filters::listener::proxy_protocol::v3::ProxyProtocol;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Facets that the listeners of a router depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GatewayView {
    /// Facets that all listeners depend on.
    pub base: Arc<ListenerBase>,
    pub gateways: RouterGateways,
    /// True if it may not bind ports below 1024 (`UNPRIVILEGED_POD`).
    pub unprivileged: bool,
    /// The cluster of the SDS server that hands out its files.
    pub files_from: &'static str,
    /// True if an SDS server of its own, at a socket beside it, hands out external credentials.
    pub credential_socket: bool,
}

impl GatewayView {
    /// The view of a router.
    #[must_use]
    pub(crate) fn of(cx: &Cx<'_>, proxy: &Proxy) -> Self {
        Self {
            base: Arc::new(ListenerBase::of(cx, proxy, Side::Gateway)),
            gateways: RouterGateways::of(cx, proxy),
            unprivileged: proxy.meta_flag("UNPRIVILEGED_POD"),
            files_from: if proxy.meta("file-credential") == "true" { "sds-files-grpc" } else { "sds-grpc" },
            credential_socket: proxy.has_credential_socket(),
        }
    }

    /// The ports that it listens on, sorted.
    pub(super) fn ports(&self, cx: &Cx<'_>) -> Vec<u32> {
        const FIRST_UNPRIVILEGED: u32 = 1024;
        let merged = cx.get(&MergedGatewaysOf(self.gateways.clone()));
        let ports: BTreeSet<u32> = merged.ports.iter().map(|servers| servers.port).collect();
        ports.into_iter().filter(|port| !self.unprivileged || *port >= FIRST_UNPRIVILEGED).collect()
    }

    /// The listeners on a port, by address. One without filter chains, which Envoy refuses, is left out.
    pub(super) fn listeners(&self, cx: &Cx<'_>, port: u32) -> Vec<EncodedResource> {
        let builder = Builder {
            cx,
            view: self,
            policies: cx.get(&PoliciesOf(self.base.clone(), TrafficClass::Gateway)),
        };
        let merged = cx.get(&MergedGatewaysOf(self.gateways.clone()));
        let mut drafts: BTreeMap<&str, Draft> = BTreeMap::new();
        let mut taken = TakenNames::default();
        for servers in merged.ports.iter().filter(|servers| servers.port == port) {
            let bind = builder.bind(servers);
            let draft = drafts.entry(bind).or_default();
            builder.add(bind, servers, &mut taken, draft);
        }
        let used = drafts.into_iter().filter(|(_, draft)| !draft.chains.is_empty());
        used.map(|(bind, draft)| builder.listener(bind, port, draft)).collect()
    }
}

/// A listener while servers add to it.
#[derive(Default)]
struct Draft {
    chains: Vec<Chain>,
    provenance: Vec<Origin>,
    budget: ListenerBudget,
}

impl Draft {
    /// Adds a chain, or one that closes what it would take.
    fn push(&mut self, chain: Chain, logs: &[AccessLog]) {
        let fits = self.budget.take(&chain.filters);
        self.chains.push(if fits {
            chain
        } else {
            Chain { filters: tcp_proxy::black_hole(logs), tls: None, ..chain }
        });
    }
}

/// The server names that have a filter chain, by address: Envoy refuses two chains for one name.
#[derive(Default)]
struct TakenNames(BTreeMap<String, BTreeSet<String>>);

impl TakenNames {
    /// Takes names; `false` when some of them is taken already.
    fn take(&mut self, bind: &str, names: &[String]) -> bool {
        let taken = self.0.entry(bind.to_owned()).or_default();
        // The free ones among them count as taken, too.
        names.iter().filter(|name| !taken.insert((*name).clone())).count() == 0
    }
}

/// Builder of the listeners of one port.
struct Builder<'a> {
    cx: &'a Cx<'a>,
    view: &'a GatewayView,
    policies: Arc<Policies>,
}

impl Builder<'_> {
    /// The address of servers; all addresses where none is written.
    fn bind<'b>(&self, servers: &'b PortServers) -> &'b str {
        let every = self.view.base.families.wildcards().first().copied().unwrap_or_default();
        if servers.bind.is_empty() { every } else { &servers.bind }
    }

    /// Adds the filter chains of servers that share a port, a protocol and an address.
    fn add(&self, bind: &str, servers: &PortServers, taken: &mut TakenNames, draft: &mut Draft) {
        draft.provenance.extend(servers.servers.iter().flat_map(|s| s.provenance.iter().cloned()));
        if servers.protocol().is_http() {
            draft.push(http::plain(self, bind, servers), &self.policies.logs.tcp);
            return;
        }
        for server in &servers.servers {
            if server.is_http() {
                draft.push(http::secure(self, bind, servers.port, server), &self.policies.logs.tcp);
            } else {
                let chains = streams::chains(self, server, taken);
                chains.into_iter().for_each(|chain| draft.push(chain, &self.policies.logs.tcp));
            }
        }
    }

    fn listener(&self, bind: &str, port: u32, draft: Draft) -> EncodedResource {
        let name = address::name(bind, port);
        let mut provenance = draft.provenance;
        provenance.extend(draft.chains.iter().flat_map(|chain| chain.provenance.iter().cloned()));
        provenance.extend(self.policies.provenance.iter().cloned());
        let listener_filters = self.listener_filters(&draft.chains);
        let chains = draft.chains.into_iter().map(|mut chain| {
            let objects = std::mem::take(&mut chain.provenance);
            (chain.build(), objects)
        });
        let (filter_chains, mut refused) = overlap::first_wins(chains);
        let listener = Listener {
            name: name.clone(),
            address: Some(address::of(bind, port)),
            traffic_direction: TrafficDirection::Outbound.into(),
            listener_filters,
            access_log: self.policies.logs.listener.clone(),
            max_connections_to_accept_per_socket_event: Some(1),
            filter_chains,
            per_connection_buffer_limit_bytes: self.buffer_limit(),
            ..Default::default()
        };
        let objects =
            if self.policies.provenance.is_empty() { &provenance } else { &self.policies.provenance };
        refused.extend(draft.budget.refused(objects));
        refused.extend(self.policies.refused.iter().cloned());
        EncodedResource::new(name, &listener, provenance).without(refused)
    }

    /// The most bytes that a connection may have waiting.
    fn buffer_limit(&self) -> Option<u32> {
        let config = self.cx.get(&EffectiveProxyConfig(self.view.base.proxy_config.clone()));
        connection_settings::of(&config, true)?.buffer_limit()
    }

    /// The PROXY protocol where the router's settings have it, and the inspector that distinguishes TLS
    /// connections.
    fn listener_filters(&self, chains: &[Chain]) -> Vec<ListenerFilter> {
        let config = self.cx.get(&EffectiveProxyConfig(self.view.base.proxy_config.clone()));
        let topology = config.gateway_topology.as_ref();
        let proxy_protocol = topology
            .and_then(|topology| topology.proxy_protocol.as_ref())
            .map(|_| filters::listener("envoy.filters.listener.proxy_protocol", &ProxyProtocol::default()));
        let inspector = chains.iter().any(Chain::needs_tls).then(filters::tls_inspector);
        proxy_protocol.into_iter().chain(inspector).collect()
    }
}

#[cfg(test)]
mod tls_route_tests;
