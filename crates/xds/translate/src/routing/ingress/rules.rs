//! The virtual services of Ingresses: one for each host.

use super::{GATEWAY_NAMESPACE, MADE, gateway_name, ingresses};
use crate::engine::{Cx, Query, reference};
use crate::routing::ir::{
    HttpRule, RouteDialect, VirtualServiceHeader, VirtualServiceId, VirtualServiceIr, WrittenHosts,
};
use crate::services::alias;
use pilotfish_config::StringMatch;
use pilotfish_config::kubernetes::{HttpIngressPath, Ingress, IngressRule, PathType};
use pilotfish_config::networking::{
    Destination, HttpMatchRequest, HttpRoute, HttpRouteDestination, PortSelector,
};
use pilotfish_model::{ExportTo, Hostname, Kind, Namespace, ServiceKey, Typed};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The virtual services that are made from Ingresses, by namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct IngressVirtualServices;

impl Query for IngressVirtualServices {
    type Output = BTreeMap<VirtualServiceId, (Arc<VirtualServiceHeader>, Arc<VirtualServiceIr>)>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let mut by_host: BTreeMap<String, (VirtualServiceHeader, VirtualServiceIr)> = BTreeMap::new();
        for ingress in ingresses(cx) {
            for rule in &ingress.spec.rules {
                add(cx, &ingress, rule, &mut by_host);
            }
        }
        let finished = by_host.into_values().map(|(header, mut rule)| {
            // The sort is stable: of paths with equal length, the older Ingress comes first.
            rule.http.sort_by_key(|route| {
                let (length, exact) = path_length(&route.whole());
                (Reverse(length), !exact)
            });
            (header.id.clone(), (Arc::new(header), Arc::new(rule)))
        });
        finished.collect()
    }
}

/// Adds the paths of one host.
fn add(
    cx: &Cx<'_>,
    ingress: &Typed<Ingress>,
    rule: &IngressRule,
    by_host: &mut BTreeMap<String, (VirtualServiceHeader, VirtualServiceIr)>,
) {
    let Some(http) = &rule.http else { return };
    let host = if rule.host.is_empty() { "*" } else { &rule.host };
    let Ok(hostname) = Hostname::parse(host) else { return };
    let gateway: Arc<str> = format!("{GATEWAY_NAMESPACE}/{}", gateway_name(ingress)).into();
    let (header, made) = by_host.entry(host.to_owned()).or_insert_with(|| empty(ingress, host, hostname));
    if !header.gateways.contains(&gateway) {
        header.gateways.push(gateway);
    }
    made.provenance.push(reference(ingress));
    made.http.extend(
        http.paths.iter().filter_map(|path| route(cx, ingress.namespace(), path)).map(HttpRule::from),
    );
}

/// A virtual service without paths, named after the first Ingress that has the host.
fn empty(
    ingress: &Typed<Ingress>,
    host: &str,
    hostname: Hostname,
) -> (VirtualServiceHeader, VirtualServiceIr) {
    let id = VirtualServiceId {
        source: Kind::Ingress,
        namespace: ingress.namespace().clone(),
        name: format!("{}-{}-{MADE}", host.replace('.', "-"), ingress.name()).into(),
    };
    let header = VirtualServiceHeader {
        id: id.clone(),
        hosts: vec![hostname],
        written: WrittenHosts::default(),
        gateways: Vec::new(),
        export_to: ExportTo::Unset,
        delegates: false,
        has_streams: false,
        created: ingress.meta().created,
        dialect: RouteDialect::Ingress,
    };
    let rule = VirtualServiceIr {
        id,
        dialect: RouteDialect::Ingress,
        http: Vec::new(),
        tls: Vec::new(),
        tcp: Vec::new(),
        provenance: Vec::new(),
        refused: Vec::new(),
    };
    (header, rule)
}

/// The route of a path; `None` without a backend.
fn route(cx: &Cx<'_>, namespace: &Namespace, path: &HttpIngressPath) -> Option<HttpRoute> {
    let backend = path.backend.service.as_ref()?;
    let host = cx.domain().service(&backend.name, namespace);
    let number = match backend.port.number {
        0 => named_port(cx, namespace, &host, &backend.port.name)?,
        number => u32::from(number),
    };
    let uri = match path.path_type {
        PathType::Exact => Some(StringMatch::Exact(path.path.clone())),
        PathType::Prefix => Some(StringMatch::Prefix(path.path.clone())),
        PathType::ImplementationSpecific => by_pattern(&path.path),
    };
    let request = |uri| HttpMatchRequest { uri: Some(uri), ..HttpMatchRequest::default() };
    Some(HttpRoute {
        r#match: uri.map(request).into_iter().collect(),
        route: vec![HttpRouteDestination {
            destination: Some(Destination {
                host,
                port: Some(PortSelector { number }),
                ..Destination::default()
            }),
            weight: 100,
            ..HttpRouteDestination::default()
        }],
        ..HttpRoute::default()
    })
}

/// Returns the number of a named TCP port; for an alias, of the service that it leads to.
fn named_port(cx: &Cx<'_>, namespace: &Namespace, host: &str, name: &str) -> Option<u32> {
    let host = Hostname::parse(host).ok()?;
    let port_of = |hostname: &Hostname, namespace: &Namespace| {
        let key = ServiceKey { hostname: hostname.clone(), namespace: namespace.clone() };
        let services = cx.services_of(&key)?;
        let named = services.iter().find_map(|service| service.port_named(name));
        named.filter(|port| port.is_tcp()).map(|port| port.number)
    };
    match alias::end(cx, &host) {
        Some(end) => cx.namespaces_of(&end).iter().find_map(|namespace| port_of(&end, namespace)),
        None => port_of(&host, namespace),
    }
}

/// Returns the match of a path without a path type: a star at its end makes it a prefix; a star alone matches
/// every path.
fn by_pattern(path: &str) -> Option<StringMatch> {
    if matches!(path, "" | "*" | "/*" | ".*") {
        return None;
    }
    let prefix = path.strip_suffix(".*").or_else(|| path.strip_suffix("/*"));
    Some(match prefix {
        Some(prefix) => StringMatch::Prefix(prefix.to_owned()),
        None => StringMatch::Exact(path.to_owned()),
    })
}

/// Returns the length of a route's path, and true if it is an exact path.
fn path_length(route: &HttpRoute) -> (usize, bool) {
    match route.r#match.first().and_then(|request| request.uri.as_ref()) {
        Some(StringMatch::Exact(path)) => (path.len(), true),
        Some(StringMatch::Prefix(path)) => (path.len(), false),
        _ => (0, false),
    }
}
