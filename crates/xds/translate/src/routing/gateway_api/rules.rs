//! Virtual services of the Gateway API: the parts of all routes, merged by listener and host.

use super::parts::{Part, RouteParts};
use super::sort::sort;
use crate::engine::{Cx, Query};
use crate::routing::ir::{
    HttpRule, RouteDialect, VirtualServiceHeader, VirtualServiceId, VirtualServiceIr, WrittenHosts,
};
use pilotfish_config::gateway_api::{GrpcRoute, HttpRoute, TcpRoute, TlsRoute};
use pilotfish_model::{Hostname, Kind, KindSpec, ObjectKey};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The virtual services that are made from routes of the Gateway API.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ApiVirtualServices;

impl Query for ApiVirtualServices {
    type Output = BTreeMap<VirtualServiceId, (Arc<VirtualServiceHeader>, Arc<VirtualServiceIr>)>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let mut out = BTreeMap::new();
        let requests: Vec<ObjectKey> =
            keys::<HttpRoute>(cx).into_iter().chain(keys::<GrpcRoute>(cx)).collect();
        let mut by_name: BTreeMap<Arc<str>, Vec<Part>> = BTreeMap::new();
        for part in requests.into_iter().flat_map(|key| cx.get(&RouteParts(key)).to_vec()) {
            by_name.entry(part.name.clone()).or_default().push(part);
        }
        let made = by_name.into_values().filter_map(|parts| merged(Kind::HttpRoute, parts));
        let streams = keys::<TcpRoute>(cx).into_iter().chain(keys::<TlsRoute>(cx));
        let streams = streams.flat_map(|key| {
            let parts = cx.get(&RouteParts(key.clone())).to_vec();
            parts.into_iter().filter_map(move |part| merged(key.kind, vec![part]))
        });
        for (header, rule) in made.chain(streams.collect::<Vec<_>>()) {
            out.insert(header.id.clone(), (Arc::new(header), Arc::new(rule)));
        }
        out
    }
}

/// The keys of all objects of a kind, the oldest first.
fn keys<T: KindSpec>(cx: &Cx<'_>) -> Vec<ObjectKey> {
    let mut objects: Vec<_> = cx.objects::<T>().collect();
    objects.sort_by(|a, b| a.meta().precedence().cmp(&b.meta().precedence()));
    objects.iter().map(|object| object.key().clone()).collect()
}

/// Merges parts with one name into a virtual service. Its namespace and name are those of the oldest part.
fn merged(source: Kind, mut parts: Vec<Part>) -> Option<(VirtualServiceHeader, VirtualServiceIr)> {
    parts.sort_by_key(|part| part.created);
    let first = parts.first()?;
    let hosts: Vec<Hostname> = first.hosts.iter().filter_map(|host| Hostname::parse(host).ok()).collect();
    if hosts.is_empty() {
        return None;
    }
    let id = VirtualServiceId { source, namespace: first.namespace.clone(), name: first.name.clone() };
    let header = VirtualServiceHeader {
        id: id.clone(),
        hosts,
        written: WrittenHosts::default(),
        gateways: vec![first.gateway.clone()],
        export_to: first.export_to.clone(),
        delegates: false,
        has_streams: !first.tcp.is_empty() || !first.tls.is_empty(),
        created: first.created,
        dialect: RouteDialect::GatewayApi,
    };
    let provenance = parts.iter().map(|part| part.provenance.clone()).collect();
    let mut rule = VirtualServiceIr {
        id,
        dialect: RouteDialect::GatewayApi,
        http: Vec::new(),
        tcp: Vec::new(),
        tls: Vec::new(),
        provenance,
        refused: Vec::new(),
    };
    let mut http = Vec::new();
    for part in parts {
        http.extend(part.http);
        rule.tcp.extend(part.tcp);
        rule.tls.extend(part.tls);
    }
    sort(&mut http);
    rule.http = http.into_iter().map(HttpRule::from).collect();
    Some((header, rule))
}
