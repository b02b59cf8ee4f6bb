//! Patches on network filters and HTTP filters.

use super::insert::insert;
use super::listeners::{Patching, chain_matches, filter_match, listener_matches};
use super::merge::merge_any;
use super::parse::Patch;
use super::routes::patch_route_configuration;
use super::{Patched, names};
use crate::envoy::TrafficClass;
use pilotfish_config::networking::{ApplyTo, PatchOperation};
use pilotfish_proto::envoy::config::listener::v3::filter::ConfigType;
use pilotfish_proto::envoy::config::listener::v3::{Filter, FilterChain, Listener};
use pilotfish_proto::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter, http_connection_manager::RouteSpecifier, http_filter,
};
use pilotfish_proto::{Any, any};
use prost::Message;

/// The network filter that contains HTTP filters.
const HTTP_CONNECTION_MANAGER: &str = "envoy.filters.network.http_connection_manager";

/// Patches the filters of a chain: first insertions, then merges, then the HTTP filters within.
pub(super) fn patch_network_filters(
    patching: &Patching<'_>,
    listener: &Listener,
    chain: &mut FilterChain,
    patched: &mut Patched,
) {
    for patch in patching.on(ApplyTo::NetworkFilter) {
        if !listener_matches(listener, patch) || !chain_matches(listener, chain, patch) {
            continue;
        }
        let has_match = filter_match(patch.matches.listener.as_ref()).is_some();
        let is_meant = |filter: &Filter| network_filter_matches(&filter.name, patch);
        let anchor: Option<&dyn Fn(&Filter) -> bool> = if has_match { Some(&is_meant) } else { None };
        let filters = &mut chain.filters;
        let done = match (patch.operation, patch.value_as::<Filter>()) {
            (PatchOperation::Remove, _) if has_match => {
                let before = filters.len();
                filters.retain(|filter| !is_meant(filter));
                filters.len() < before
            }
            (PatchOperation::Merge, _) | (_, None) => false,
            (operation, Some(value)) => insert(filters, operation, value, anchor),
        };
        if done {
            patched.by(&patch.object);
        }
    }
    let mut filters = std::mem::take(&mut chain.filters);
    for filter in &mut filters {
        merge_network_filter(patching, listener, chain, filter, patched);
        if filter.name == HTTP_CONNECTION_MANAGER {
            patch_connection_manager(patching, listener, chain, filter, patched);
        }
    }
    chain.filters = filters;
}

fn network_filter_matches(name: &str, patch: &Patch) -> bool {
    filter_match(patch.matches.listener.as_ref()).is_none_or(|wanted| names::matches(&wanted.name, name))
}

fn http_filter_matches(name: &str, patch: &Patch) -> bool {
    sub_filter(patch).is_none_or(|wanted| names::matches(wanted, name))
}

/// The HTTP filter that a patch names.
fn sub_filter(patch: &Patch) -> Option<&str> {
    Some(&filter_match(patch.matches.listener.as_ref())?.sub_filter.as_ref()?.name)
}

fn merge_network_filter(
    patching: &Patching<'_>,
    listener: &Listener,
    chain: &FilterChain,
    filter: &mut Filter,
    patched: &mut Patched,
) {
    for patch in patching.on(ApplyTo::NetworkFilter) {
        let is_meant = patch.operation == PatchOperation::Merge
            && listener_matches(listener, patch)
            && chain_matches(listener, chain, patch)
            && network_filter_matches(&filter.name, patch);
        let (true, Some(value)) = (is_meant, patch.value_as::<Filter>()) else { continue };
        let Some(ConfigType::TypedConfig(held)) = &mut filter.config_type else { continue };
        let new = match &value.config_type {
            Some(ConfigType::TypedConfig(new)) => Some(new),
            _ => None,
        };
        merge_filter(&mut filter.name, held, &value.name, new);
        patched.by(&patch.object);
    }
}

/// Merges name and configuration of a filter.
fn merge_filter(name: &mut String, config: &mut Any, new_name: &str, new_config: Option<&Any>) {
    if let Some(merged) = new_config.and_then(|new| merge_any(config, new)) {
        *config = merged;
    }
    let new_name = if new_name.is_empty() { name.as_str() } else { new_name };
    *name = names::canonical(new_name).to_owned();
}

/// Patches an HTTP connection manager: inline routes of inbound traffic, and the HTTP filters.
fn patch_connection_manager(
    patching: &Patching<'_>,
    listener: &Listener,
    chain: &FilterChain,
    filter: &mut Filter,
    patched: &mut Patched,
) {
    let Some(ConfigType::TypedConfig(config)) = &mut filter.config_type else { return };
    let Ok(mut manager) = HttpConnectionManager::decode(&*config.value) else { return };
    let mut inside = Patched::default();
    if let (TrafficClass::Inbound, Some(RouteSpecifier::RouteConfig(routes))) =
        (patching.context, &mut manager.route_specifier)
    {
        patch_route_configuration(patching, None, routes, &mut inside);
    }
    let mut http = HttpFilters { patching, listener, chain, manager: &filter.name };
    http.patch(&mut manager.http_filters, &mut inside);
    if inside.is_empty() {
        return;
    }
    *config = any(&manager);
    inside.into_objects().iter().for_each(|object| patched.by(object));
}

/// The HTTP filters of one connection manager.
struct HttpFilters<'a> {
    patching: &'a Patching<'a>,
    listener: &'a Listener,
    chain: &'a FilterChain,
    /// The name of the connection manager.
    manager: &'a str,
}

impl<'a> HttpFilters<'a> {
    fn patches(&self) -> impl Iterator<Item = &'a Patch> + use<'a> {
        let Self { patching, listener, chain, manager } = *self;
        patching.on(ApplyTo::HttpFilter).filter(move |patch| {
            listener_matches(listener, patch)
                && chain_matches(listener, chain, patch)
                && network_filter_matches(manager, patch)
        })
    }

    /// Removes and inserts in the order of the patches, then merges.
    fn patch(&mut self, filters: &mut Vec<HttpFilter>, patched: &mut Patched) {
        for patch in self.patches() {
            let is_meant = |filter: &HttpFilter| http_filter_matches(&filter.name, patch);
            let anchor: Option<&dyn Fn(&HttpFilter) -> bool> =
                if sub_filter(patch).is_some() { Some(&is_meant) } else { None };
            let done = match (patch.operation, patch.value_as::<HttpFilter>()) {
                (PatchOperation::Remove, _) if anchor.is_some() => {
                    let before = filters.len();
                    filters.retain(|filter| !is_meant(filter));
                    filters.len() < before
                }
                (PatchOperation::Merge | PatchOperation::Remove, _) | (_, None) => false,
                (operation, Some(value)) => insert(filters, operation, value, anchor),
            };
            if done {
                patched.by(&patch.object);
            }
        }
        for filter in filters {
            self.merge(filter, patched);
        }
    }

    fn merge(&self, filter: &mut HttpFilter, patched: &mut Patched) {
        for patch in self.patches().filter(|patch| patch.operation == PatchOperation::Merge) {
            let value = patch.value_as::<HttpFilter>().filter(|_| http_filter_matches(&filter.name, patch));
            let (Some(value), Some(http_filter::ConfigType::TypedConfig(held))) =
                (value, &mut filter.config_type)
            else {
                continue;
            };
            let new = match &value.config_type {
                Some(http_filter::ConfigType::TypedConfig(new)) => Some(new),
                _ => None,
            };
            merge_filter(&mut filter.name, held, &value.name, new);
            patched.by(&patch.object);
        }
    }
}
