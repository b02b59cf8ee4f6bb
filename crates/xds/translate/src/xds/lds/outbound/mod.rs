//! Listeners for traffic out of a sidecar: one for each address and port that services have.
//!
//! ```text
//! egress listeners ─▶ Bindings: (service, port, address) by port ─▶ Entry per address: chains ─▶ Listener
//! ```
//!
//! HTTP services of a port share one listener on the wildcard address and are distinguished by routes. A TCP
//! service has a listener on its own address; without one it is on the wildcard address too, distinguished by
//! SNI or address range. Listeners on different ports never conflict, so each port is generated on its own.

mod binding;
mod chain;
mod listener;
mod listener_draft;
mod streams;

use super::budget::PortBudget;
use super::connection_manager::{Manager, by_name};
use super::policies::{Policies, PoliciesOf};
use super::view::OutboundView;
use crate::engine::{Cx, EncodedResource, Query, Shared};
use crate::envoy::{BLACK_HOLE, DnsCache, PASSTHROUGH, TrafficClass};
use crate::scope::{EgressOf, EgressPolicy, OutboundPolicyOf, Scope};
use binding::{ListenerBinding, ListenerBindingsOf, ListenerBindingsOn};
use chain::Chain;
use listener_draft::{ListenerDraft, ListenerDrafts};
use pilotfish_model::{Protocol, Resolution, Service};
use std::cell::RefCell;
use std::net::IpAddr;
use std::sync::Arc;

/// The ports that a sidecar has outbound listeners on, sorted; 0 for Unix sockets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PortsOf(pub(super) Arc<OutboundView>);

impl Query for PortsOf {
    type Output = Vec<u32>;

    fn compute(&self, cx: &Cx<'_>) -> Vec<u32> {
        let scope = &self.0.base.scope;
        let mut ports: Vec<u32> = (0..cx.get(&EgressOf(scope.clone())).len())
            .flat_map(|index| {
                cx.get(&ListenerBindingsOf(scope.clone(), index)).keys().copied().collect::<Vec<_>>()
            })
            .collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }
}

/// Returns the outbound listeners of a sidecar on one port. Traffic of a workload to its own endpoint
/// bypasses its proxy, so there is no listener for it.
pub(super) fn listeners(
    cx: &Cx<'_>,
    view: &Arc<OutboundView>,
    own_endpoint: Option<IpAddr>,
    port: u32,
) -> Vec<EncodedResource> {
    // Only requests are traced: without them, listeners are equal for all workloads.
    let has_requests = *cx.get(&HasRequests(view.base.scope.clone(), port));
    let view = if has_requests { view.clone() } else { OutboundView::untagged(view) };
    let all = cx.get(&ListenersOn(view, port));
    let own = |listener: &&Outbound| listener.endpoint.is_some() && listener.endpoint == own_endpoint;
    all.iter().filter(|listener| !own(listener)).map(|listener| listener.resource.clone()).collect()
}

/// True if an outbound listener on the port may handle HTTP requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct HasRequests(Scope, u32);

impl Query for HasRequests {
    type Output = bool;

    fn compute(&self, cx: &Cx<'_>) -> bool {
        let Self(scope, port) = self;
        (0..cx.get(&EgressOf(scope.clone())).len()).any(|index| {
            let bindings = cx.get(&ListenerBindingsOn(scope.clone(), index, *port));
            bindings.iter().any(|(_, port)| !port.protocol.is_tcp())
        })
    }
}

/// Query for the outbound listeners on one port, which is independent of the workload.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ListenersOn(Arc<OutboundView>, u32);

/// A listener, and the workload that does not need it.
#[derive(Clone, Debug, PartialEq)]
struct Outbound {
    resource: EncodedResource,
    /// The address of the endpoint, if the listener is for one endpoint.
    endpoint: Option<IpAddr>,
}

impl Query for ListenersOn {
    type Output = Vec<Outbound>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let Self(view, port) = self;
        let builder = Builder::new(cx, view);
        let mut entries = ListenerDrafts::default();
        let listeners = cx.get(&EgressOf(view.base.scope.clone()));
        for (index, egress) in listeners.iter().enumerate() {
            if egress.port.is_none() {
                entries.lock();
            }
            for binding in cx.get(&ListenerBindingsOn(view.base.scope.clone(), index, *port)).iter() {
                if !builder.budget.borrow_mut().has_room(&binding.0.provenance, *port) {
                    break;
                }
                binding::place(cx, view, egress, binding, |binding| {
                    builder.add(index, binding, &mut entries)
                });
            }
        }
        let finish = |entry: ListenerDraft| Outbound {
            endpoint: entry.endpoint(),
            resource: listener::encode(cx, view, &builder, entry),
        };
        let mut all: Vec<Outbound> = entries.into_iter().map(finish).collect();
        let mut refused = builder.budget.take().into_refused();
        refused.extend(builder.policies.refused.iter().cloned());
        if let Some(first) = all.first_mut() {
            first.resource = first.resource.clone().without(refused);
        }
        all
    }

    fn share(listeners: Self::Output, shared: &Shared) -> Self::Output {
        let resource = |it: Outbound| Outbound { resource: shared.resource(it.resource), ..it };
        listeners.into_iter().map(resource).collect()
    }
}

/// Shared inputs of all listeners of one port.
struct Builder<'a> {
    cx: &'a Cx<'a>,
    view: &'a OutboundView,
    policies: Arc<Policies>,
    passthrough: String,
    /// Remaining bytes for all listeners of the port.
    budget: RefCell<PortBudget>,
}

impl<'a> Builder<'a> {
    fn new(cx: &'a Cx<'a>, view: &'a OutboundView) -> Self {
        Self {
            cx,
            view,
            policies: cx.get(&PoliciesOf(view.base.clone(), TrafficClass::Outbound)),
            passthrough: unknown_destination(cx, view),
            budget: RefCell::default(),
        }
    }

    /// Adds one service port at one address to the listener there.
    fn add(&self, listener: usize, binding: &ListenerBinding, entries: &mut ListenerDrafts) {
        let protocol = binding.port.protocol;
        if binding.service.resolution == Resolution::Alias || protocol == Protocol::Udp {
            return;
        }
        let wildcard = self.view.base.families.wildcards().first().is_some_and(|w| *w == binding.bind());
        if protocol.is_http() {
            entries.add_http(binding, || self.http(binding, wildcard, false));
            return;
        }
        if protocol == Protocol::Dubbo && self.view.dubbo_proxy {
            // Calls of many interfaces, each with a service of its own, arrive at the port of an application.
            if let Some(interface) = &binding.service.dubbo {
                entries.add_tcp(binding, vec![streams::calls(self, listener, binding, interface)]);
            }
            return;
        }
        let streams = streams::chains(self, listener, binding);
        streams.iter().for_each(|chain| self.budget.borrow_mut().take(&chain.filters));
        if protocol.is_tcp() {
            entries.add_tcp(binding, streams);
        } else {
            entries.add_sniffed(binding, self.http(binding, wildcard, true), streams);
        }
    }

    /// Returns the DNS cache of a service whose hosts the proxy looks up.
    fn cache_of(&self, service: &Service) -> Option<DnsCache> {
        let base = &self.view.base;
        let cache = || DnsCache::of_host(service.written_host(), base.families, base.both_redirected);
        (service.resolution == Resolution::DynamicDns).then(cache)
    }

    /// Returns the filter chain for HTTP. On the wildcard address, and without a declared protocol, it
    /// matches HTTP alone.
    fn http(&self, binding: &ListenerBinding, wildcard: bool, sniffed: bool) -> Chain {
        let name = match binding.port.number {
            0 => binding.bind().to_owned(),
            port if sniffed && !wildcard => format!("{}:{port}", binding.service.hostname),
            port => port.to_string(),
        };
        let manager = Manager {
            base: &self.view.base,
            class: TrafficClass::Outbound,
            stat_prefix: format!("outbound_{}_{};", binding.bind(), binding.port.number),
            routes: by_name(&name),
            protocol: binding.port.protocol,
            http1: None,
            port: binding.port.number,
            hosts: self.cache_of(&binding.service),
            policies: &self.policies,
        };
        let before = self.policies.before_http(binding.port.number).into_iter();
        Chain {
            http: wildcard || sniffed,
            filters: before.chain([manager.filter(self.cx)]).collect(),
            ..Chain::default()
        }
    }
}

/// Returns the cluster for traffic to hosts without a service.
pub(super) fn unknown_destination(cx: &Cx<'_>, view: &OutboundView) -> String {
    match &*cx.get(&OutboundPolicyOf(view.base.scope.clone())) {
        EgressPolicy::AllowAny | EgressPolicy::AllowAnyDynamicDns => PASSTHROUGH.to_owned(),
        EgressPolicy::RegistryOnly => BLACK_HOLE.to_owned(),
        EgressPolicy::Proxy(proxy) => proxy.cluster(cx, &view.base.scope),
    }
}
