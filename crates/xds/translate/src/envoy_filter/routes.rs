//! Patches on route configurations, virtual hosts and routes.

use super::insert::insert;
use super::listeners::Patching;
use super::merge::{Lists, merge_into};
use super::parse::Patch;
use super::{Patched, Patches, judge};
use crate::engine::Cx;
use crate::envoy::TrafficClass;
use pilotfish_config::networking::{
    ApplyTo, PatchOperation, RouteAction, RouteConfigurationMatch, RouteMatch, VirtualHostMatch,
};
use pilotfish_proto::envoy::config::route::v3::{Route, RouteConfiguration, VirtualHost, route::Action};
use std::collections::{BTreeMap, BTreeSet};

/// The ports of a gateway's Service by the port that they lead to: routes are named by the latter, patches
/// speak of the former.
pub(crate) type ServicePorts = BTreeMap<u32, BTreeSet<u32>>;

/// Patches a route configuration that is a resource of its own (RDS); no patch removes one.
pub(crate) fn patch_routes(
    cx: &Cx<'_>,
    patches: &Patches,
    context: TrafficClass,
    ports: &ServicePorts,
    routes: RouteConfiguration,
    patched: &mut Patched,
) -> Option<RouteConfiguration> {
    judge::apply(&patches.load(cx), routes, patched, |patches, mut routes, patched| {
        patch_route_configuration(&Patching { patches, context }, Some(ports), &mut routes, patched);
        Some(routes)
    })
}

/// Patches a route configuration: merges first, then what is inside, then what is added.
pub(super) fn patch_route_configuration(
    patching: &Patching<'_>,
    ports: Option<&ServicePorts>,
    routes: &mut RouteConfiguration,
    patched: &mut Patched,
) {
    let name = routes.name.clone();
    let in_gateway = patching.context == TrafficClass::Gateway;
    let is_meant = |patch: &&Patch| {
        let matches = patch.matches.route_configuration.as_ref();
        matches.is_none_or(|matches| match in_gateway {
            true => gateway_matches(matches, &name, ports),
            false => sidecar_matches(matches, &name),
        })
    };
    for patch in patching.on(ApplyTo::RouteConfiguration).filter(is_meant) {
        if let (Some(lists), Some(value)) = (Lists::of(patch.operation), &patch.value) {
            merge_into(routes, value, lists);
            patched.by(&patch.object);
        }
    }
    let hosts: Vec<&Patch> = patching.on(ApplyTo::VirtualHost).filter(is_meant).collect();
    let inner: Vec<&Patch> = patching.on(ApplyTo::HttpRoute).filter(is_meant).collect();
    routes.virtual_hosts.retain_mut(|host| keep_host(&hosts, &inner, host, patched));
    for patch in hosts.iter().filter(|patch| patch.operation == PatchOperation::Add) {
        if let Some(host) = patch.value_as() {
            routes.virtual_hosts.push(host);
            patched.by(&patch.object);
        }
    }
}

/// Sidecars name routes by the port, and those of inbound traffic like clusters.
fn sidecar_matches(matches: &RouteConfigurationMatch, name: &str) -> bool {
    let port = match name.strip_prefix("inbound|") {
        Some(rest) => rest.split('|').next().unwrap_or(""),
        None => name,
    };
    (matches.port_number == 0 || port.parse() == Ok(matches.port_number))
        && (matches.name.is_empty() || matches.name == name)
}

/// Gateways name routes `http.PORT`, or `https.PORT.PORTNAME.GATEWAY.NAMESPACE`.
fn gateway_matches(matches: &RouteConfigurationMatch, name: &str, ports: Option<&ServicePorts>) -> bool {
    let parts: Vec<&str> = name.split('.').collect();
    let port: u32 = parts.get(1).and_then(|port| port.parse().ok()).unwrap_or(0);
    let (port_name, gateway) = match parts.as_slice() {
        ["https", _, port_name, gateway, namespace, ..] => (*port_name, format!("{namespace}/{gateway}")),
        _ => ("", String::new()),
    };
    let of_service = ports.and_then(|ports| ports.get(&port));
    let has_port = match of_service {
        Some(of_service) => of_service.contains(&matches.port_number),
        None => port == matches.port_number,
    };
    (matches.port_number == 0 || has_port)
        && (matches.port_name.is_empty() || matches.port_name == port_name)
        && (matches.gateway.is_empty() || matches.gateway == gateway)
        && (matches.name.is_empty() || matches.name == name)
}

fn host_match(patch: &Patch) -> Option<&VirtualHostMatch> {
    patch.matches.route_configuration.as_ref()?.vhost.as_ref()
}

fn host_matches(host: &VirtualHost, patch: &Patch) -> bool {
    host_match(patch).is_none_or(|matches| {
        (matches.name.is_empty() || matches.name == host.name)
            && (matches.domain_name.is_empty() || host.domains.contains(&matches.domain_name))
    })
}

/// Patches a virtual host and its routes; false when it is removed.
fn keep_host(hosts: &[&Patch], routes: &[&Patch], host: &mut VirtualHost, patched: &mut Patched) -> bool {
    for patch in hosts {
        if !host_matches(host, patch) {
            continue;
        }
        match (patch.operation, &patch.value, Lists::of(patch.operation)) {
            (PatchOperation::Remove, ..) => {
                patched.by(&patch.object);
                return false;
            }
            (_, Some(value), Some(lists)) => merge_into(host, value, lists),
            (PatchOperation::Replace, Some(_), _) => match patch.value_as() {
                Some(value) => *host = value,
                None => continue,
            },
            _ => continue,
        }
        patched.by(&patch.object);
    }
    let routes: Vec<&Patch> = routes.iter().copied().filter(|patch| host_matches(host, patch)).collect();
    host.routes.retain_mut(|route| keep_route(&routes, route, patched));
    for patch in routes {
        let is_meant = |route: &Route| route_matches(route, patch);
        let has_match = host_match(patch).is_some_and(|matches| matches.route.is_some());
        let anchor: Option<&dyn Fn(&Route) -> bool> = if has_match { Some(&is_meant) } else { None };
        let inserts = matches!(
            patch.operation,
            PatchOperation::Add
                | PatchOperation::InsertFirst
                | PatchOperation::InsertBefore
                | PatchOperation::InsertAfter
        );
        let (true, Some(value)) = (inserts, patch.value_as::<Route>()) else { continue };
        // A route that is to be first is so only where the one that the patch names is.
        let misses = has_match && !host.routes.iter().any(is_meant);
        if misses && patch.operation == PatchOperation::InsertFirst {
            continue;
        }
        if insert(&mut host.routes, patch.operation, value, anchor) {
            patched.by(&patch.object);
        }
    }
    true
}

fn keep_route(patches: &[&Patch], route: &mut Route, patched: &mut Patched) -> bool {
    for patch in patches {
        if !route_matches(route, patch) {
            continue;
        }
        match (patch.operation, &patch.value, Lists::of(patch.operation)) {
            (PatchOperation::Remove, ..) => {
                patched.by(&patch.object);
                return false;
            }
            (_, Some(value), Some(lists)) => merge_into(route, value, lists),
            _ => continue,
        }
        patched.by(&patch.object);
    }
    true
}

fn route_matches(route: &Route, patch: &Patch) -> bool {
    let matches: Option<&RouteMatch> = host_match(patch).and_then(|matches| matches.route.as_ref());
    let Some(matches) = matches else { return true };
    let of_action = match matches.action {
        RouteAction::Any => true,
        RouteAction::Route => matches!(route.action, Some(Action::Route(_))),
        RouteAction::Redirect => matches!(route.action, Some(Action::Redirect(_))),
        RouteAction::DirectResponse => matches!(route.action, Some(Action::DirectResponse(_))),
    };
    of_action && (matches.name.is_empty() || matches.name == route.name)
}
