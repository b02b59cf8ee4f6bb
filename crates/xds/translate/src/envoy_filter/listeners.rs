//! Patches on listeners, listener filters and filter chains. The filters of a chain are in `filters.rs`.

use super::clusters::merge_config;
use super::filters::patch_network_filters;
use super::insert::insert;
use super::merge::{Lists, merge_into};
use super::parse::Patch;
use super::{Patched, Patches, is_for, judge, names};
use crate::engine::Cx;
use crate::envoy::TrafficClass;
use pilotfish_config::networking::{ApplyTo, ListenerMatch, PatchContext, PatchOperation};
use pilotfish_proto::envoy::config::core::v3::address::Address;
use pilotfish_proto::envoy::config::core::v3::socket_address::PortSpecifier;
use pilotfish_proto::envoy::config::listener::v3::{FilterChain, Listener, ListenerFilter};
use std::sync::Arc;

/// The listeners that traffic is redirected to. They stand for all ports, so a port in a patch is searched in
/// their chains.
const VIRTUAL: [&str; 2] = ["virtualInbound", "virtualOutbound"];

/// The transport socket of a chain that names none.
const RAW_BUFFER: &str = "envoy.transport_sockets.raw_buffer";

/// Patches for the listeners of one context.
pub(super) struct Patching<'a> {
    pub(super) patches: &'a [Arc<Patch>],
    pub(super) context: TrafficClass,
}

impl<'a> Patching<'a> {
    /// The patches on something in this context.
    pub(super) fn on(&self, apply_to: ApplyTo) -> impl Iterator<Item = &'a Patch> + use<'a> {
        let context = self.context;
        let patches = self.patches.iter().map(|patch| &**patch);
        patches.filter(move |patch| patch.apply_to == apply_to && is_for(patch.matches.context, context))
    }
}

/// Patches a listener; `None` when a patch removes it.
#[must_use]
pub(crate) fn patch_listener(
    cx: &Cx<'_>,
    patches: &Patches,
    context: TrafficClass,
    listener: Listener,
    patched: &mut Patched,
) -> Option<Listener> {
    judge::apply(&patches.load(cx), listener, patched, |patches, listener, patched| {
        apply(&Patching { patches, context }, listener, patched)
    })
}

fn apply(patching: &Patching<'_>, mut listener: Listener, patched: &mut Patched) -> Option<Listener> {
    for patch in patching.on(ApplyTo::Listener) {
        if !listener_matches(&listener, patch) {
            continue;
        }
        if patch.operation == PatchOperation::Remove {
            return None;
        }
        if let (Some(lists), Some(value)) = (Lists::of(patch.operation), &patch.value) {
            merge_into(&mut listener, value, lists);
            patched.by(&patch.object);
        }
    }
    patch_listener_filters(patching, &mut listener, patched);
    patch_chains(patching, &mut listener, patched);
    Some(listener)
}

/// The listeners that patches add. Where the patch sets no context, they are for traffic out.
#[must_use]
pub(crate) fn added_listeners(
    cx: &Cx<'_>,
    patches: &Patches,
    context: TrafficClass,
) -> Vec<(Listener, Patched)> {
    let patches = patches.load(cx);
    let patching = Patching { patches: &patches, context };
    let added = patching.on(ApplyTo::Listener).filter(|patch| {
        let anywhere = patch.matches.context == PatchContext::Any;
        patch.operation == PatchOperation::Add && !(anywhere && context == TrafficClass::Inbound)
    });
    let added = added.filter_map(|patch| {
        let mut patched = Patched::default();
        patched.by(&patch.object);
        Some((patch.value_as()?, patched))
    });
    added.collect()
}

/// True if a patch matches the listener. In listeners for all ports, a port matches chains, unless the patch
/// is on the listener.
pub(super) fn listener_matches(listener: &Listener, patch: &Patch) -> bool {
    let Some(matches) = &patch.matches.listener else { return true };
    if !matches.name.is_empty() && matches.name != listener.name {
        return false;
    }
    if patch.apply_to != ApplyTo::Listener && is_virtual(listener) {
        return true;
    }
    matches.port_number == 0 || port(listener) == Some(matches.port_number)
}

fn is_virtual(listener: &Listener) -> bool {
    VIRTUAL.contains(&listener.name.as_str())
}

fn port(listener: &Listener) -> Option<u32> {
    let Some(Address::SocketAddress(address)) = &listener.address.as_ref()?.address else { return None };
    match address.port_specifier {
        Some(PortSpecifier::PortValue(port)) => Some(port),
        _ => None,
    }
}

/// True if a patch matches a filter chain of a listener that it matches.
pub(super) fn chain_matches(listener: &Listener, chain: &FilterChain, patch: &Patch) -> bool {
    let Some(matches) = &patch.matches.listener else { return true };
    let criteria = chain.filter_chain_match.as_ref();
    let destination = criteria.and_then(|criteria| criteria.destination_port);
    if is_virtual(listener) && matches.port_number > 0 && destination != Some(matches.port_number) {
        return false;
    }
    let Some(wanted) = &matches.filter_chain else { return true };
    let none = Vec::new();
    let servers = criteria.map_or(&none, |criteria| &criteria.server_names);
    let protocols = criteria.map_or(&none, |criteria| &criteria.application_protocols);
    let transport = criteria.map_or("", |criteria| criteria.transport_protocol.as_str());
    let socket = chain.transport_socket.as_ref().map_or(RAW_BUFFER, |socket| socket.name.as_str());
    (wanted.name.is_empty() || wanted.name == chain.name)
        && (wanted.sni.is_empty() || servers.contains(&wanted.sni))
        && (wanted.transport_protocol.is_empty() || wanted.transport_protocol == transport)
        && (wanted.application_protocols.is_empty()
            || wanted
                .application_protocols
                .split(',')
                .all(|protocol| protocols.iter().any(|p| p == protocol)))
        && (wanted.transport_socket.is_empty() || wanted.transport_socket == socket)
        && (wanted.destination_port == 0 || destination == Some(wanted.destination_port))
}

fn patch_listener_filters(patching: &Patching<'_>, listener: &mut Listener, patched: &mut Patched) {
    for patch in patching.on(ApplyTo::ListenerFilter) {
        if !listener_matches(listener, patch) {
            continue;
        }
        let wanted = patch.matches.listener.as_ref().map_or("", |matches| &matches.listener_filter);
        let is_meant = |filter: &ListenerFilter| names::matches(wanted, &filter.name);
        let anchor: Option<&dyn Fn(&ListenerFilter) -> bool> =
            if wanted.is_empty() { None } else { Some(&is_meant) };
        let filters = &mut listener.listener_filters;
        let done = match (patch.operation, patch.value_as::<ListenerFilter>()) {
            (PatchOperation::Remove, _) if anchor.is_some() => {
                let before = filters.len();
                filters.retain(|filter| !is_meant(filter));
                filters.len() < before
            }
            (operation, Some(value)) => insert(filters, operation, value, anchor),
            _ => false,
        };
        if done {
            patched.by(&patch.object);
        }
    }
}

fn patch_chains(patching: &Patching<'_>, listener: &mut Listener, patched: &mut Patched) {
    let chains = std::mem::take(&mut listener.filter_chains);
    let chains = chains.into_iter().filter_map(|chain| patch_chain(patching, listener, chain, patched));
    let mut chains: Vec<FilterChain> = chains.collect();
    if let Some(chain) = listener.default_filter_chain.take() {
        listener.default_filter_chain = patch_chain(patching, listener, chain, patched);
    }
    for patch in patching.on(ApplyTo::FilterChain).filter(|patch| patch.operation == PatchOperation::Add) {
        if let (true, Some(chain)) = (listener_matches(listener, patch), patch.value_as()) {
            chains.push(chain);
            patched.by(&patch.object);
        }
    }
    listener.filter_chains = chains;
}

fn patch_chain(
    patching: &Patching<'_>,
    listener: &Listener,
    mut chain: FilterChain,
    patched: &mut Patched,
) -> Option<FilterChain> {
    for patch in patching.on(ApplyTo::FilterChain) {
        if !listener_matches(listener, patch) || !chain_matches(listener, &chain, patch) {
            continue;
        }
        if patch.operation == PatchOperation::Remove {
            patched.by(&patch.object);
            return None;
        }
        if let Some(lists) = Lists::of(patch.operation) {
            merge_chain(&mut chain, patch, lists);
            patched.by(&patch.object);
        }
    }
    patch_network_filters(patching, listener, &mut chain, patched);
    Some(chain)
}

/// A patch with a transport socket patches that alone, if the chain has one of its name.
fn merge_chain(chain: &mut FilterChain, patch: &Patch, lists: Lists) {
    let Some(value) = &patch.value else { return };
    let socket = patch.value_as::<FilterChain>().and_then(|value| value.transport_socket);
    let own = chain.transport_socket.as_mut();
    match own.zip(socket).filter(|(own, socket)| own.name == socket.name) {
        Some((own, socket)) => merge_config(own, &socket),
        None => merge_into(chain, value, lists),
    }
}

/// The part of a match that selects a filter of a chain.
pub(super) fn filter_match(
    matches: Option<&ListenerMatch>,
) -> Option<&pilotfish_config::networking::FilterMatch> {
    matches?.filter_chain.as_ref()?.filter.as_ref()
}
