//! The parts of virtual services that one route object makes: for each listener or Service that it is
//! attached to, and each host.

use super::attachment::{self, Attached, Attachment};
use super::backends::{Malformed, Referrer};
use super::request_rules::{self, RequestRoute};
use super::{MADE, stream_routes};
use crate::engine::{Cx, Query, reference};
use pilotfish_config::gateway_api::{GrpcRoute, HttpRoute, TcpRoute, TlsRoute};
use pilotfish_config::networking::{HttpMatchRequest, HttpRoute as Http, TcpRoute as Tcp, TlsRoute as Tls};
use pilotfish_model::{ExportTo, Kind, Namespace, ObjectKey, Origin};
use std::sync::Arc;

/// Routes of one route object behind one gateway.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Part {
    /// The name of the virtual service that it belongs to. Parts of several HTTPRoutes and GRPCRoutes may
    /// have one.
    pub(super) name: Arc<str>,
    /// The namespace of the route.
    pub(super) namespace: Namespace,
    /// One for requests; streams have all hosts of their route in one part, because they are one filter
    /// chain.
    pub(super) hosts: Vec<String>,
    /// The gateway as `namespace/name`, or `mesh`.
    pub(super) gateway: Arc<str>,
    /// Namespaces that may see it (`exportTo`).
    pub(super) export_to: ExportTo,
    pub(super) created: i64,
    pub(super) http: Vec<Http>,
    pub(super) tcp: Vec<Tcp>,
    pub(super) tls: Vec<Tls>,
    pub(super) provenance: Origin,
}

/// The parts of a route object, by its key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RouteParts(pub(super) ObjectKey);

impl Query for RouteParts {
    type Output = Vec<Part>;

    fn compute(&self, cx: &Cx<'_>) -> Vec<Part> {
        let parts = match self.0.kind {
            Kind::HttpRoute => requests::<HttpRoute>(cx, &self.0),
            Kind::GrpcRoute => requests::<GrpcRoute>(cx, &self.0),
            Kind::TcpRoute => tcp(cx, &self.0),
            Kind::TlsRoute => tls(cx, &self.0),
            _ => None,
        };
        parts.unwrap_or_default()
    }
}

/// The parts of a route of requests.
fn requests<T: RequestRoute>(cx: &Cx<'_>, key: &ObjectKey) -> Option<Vec<Part>> {
    let object = cx.object::<T>(&key.namespace, &key.name)?;
    let hostnames = object.hostnames();
    let attachments = attachment::of(cx, key.kind, &key.namespace, object.parents(), hostnames);
    let base = part(key, object.meta().created, reference(&object));
    let routes = |referrer: Referrer<'_>| request_rules::routes(cx, &object, referrer, &attachments);
    Some(request_parts(&base, &attachments, hostnames, key.kind, routes))
}

fn tcp(cx: &Cx<'_>, key: &ObjectKey) -> Option<Vec<Part>> {
    let object = cx.object::<TcpRoute>(&key.namespace, &key.name)?;
    let attachments = attachment::of(cx, key.kind, &key.namespace, &object.spec.parent_refs, &[]);
    let base = part(key, object.meta().created, reference(&object));
    let mut out = Vec::new();
    for attachment in &attachments {
        let service = attachment.service.as_ref();
        let port = service.and_then(|service| service.port);
        let referrer = referrer(key.kind, &key.namespace, service);
        let Ok(routes) = stream_routes::tcp(cx, &object.spec.rules, port, referrer) else { continue };
        let name = format!("{}~tcp~{}~{MADE}", key.name, out.len());
        out.push(Part { tcp: routes, ..bound(&base, attachment, hosts(service, &[]), name) });
    }
    Some(out)
}

fn tls(cx: &Cx<'_>, key: &ObjectKey) -> Option<Vec<Part>> {
    let object = cx.object::<TlsRoute>(&key.namespace, &key.name)?;
    let hostnames = &object.spec.hostnames;
    let attachments = attachment::of(cx, key.kind, &key.namespace, &object.spec.parent_refs, hostnames);
    let base = part(key, object.meta().created, reference(&object));
    let (mut out, mut number) = (Vec::new(), 0);
    for attachment in &attachments {
        let service = attachment.service.as_ref();
        let port = service.and_then(|service| service.port);
        let referrer = referrer(key.kind, &key.namespace, service);
        let hosts = attachment.cut(served(attachment, hostnames));
        if hosts.is_empty() {
            continue;
        }
        let Ok(routes) = stream_routes::tls(cx, &object.spec.rules, &hosts, port, referrer) else { continue };
        let name = format!("{}~tls~{number}~{MADE}", key.name);
        // istiod counts each host of a gateway.
        number += if attachment.service.is_none() { hosts.len() } else { 1 };
        out.push(Part { tls: routes, ..bound(&base, attachment, hosts, name) });
    }
    Some(out)
}

/// The parts of a route of requests. Its routes are made at most twice: for gateways and for sidecars.
fn request_parts(
    base: &Part,
    attachments: &[Attachment],
    hostnames: &[String],
    kind: Kind,
    routes: impl Fn(Referrer<'_>) -> Result<Vec<Http>, Malformed>,
) -> Vec<Part> {
    let mut out = Vec::new();
    for attachment in attachments {
        let service = attachment.service.as_ref();
        let Ok(mut http) = routes(referrer(kind, &base.namespace, service)) else { continue };
        let port = service.and_then(|service| service.port);
        if let Some(port) = port {
            only_port(&mut http, port);
        }
        for host in served(attachment, hostnames) {
            let key = match (service, port) {
                (None, _) => format!("{}/{host}", attachment.gateway),
                (Some(_), None) => format!("{}/{host}", base.namespace),
                (Some(_), Some(port)) => format!("{}/{port}/{host}", base.namespace),
            };
            out.push(Part {
                http: http.clone(),
                ..bound(base, attachment, vec![host], key.replace('/', "~"))
            });
        }
    }
    out
}

/// Routes of sidecars may lead to any namespace.
fn referrer<'a>(kind: Kind, namespace: &'a Namespace, service: Option<&Attached>) -> Referrer<'a> {
    Referrer { kind, namespace, needs_grant: service.is_none() }
}

/// The hosts of a route that are served at an attachment.
pub(super) fn served(attachment: &Attachment, hostnames: &[String]) -> Vec<String> {
    let service = attachment.service.as_ref();
    let mut hosts = hosts(service, hostnames);
    hosts.retain(|host| service.is_some() || attachment.serves(host));
    hosts
}

/// The hosts of a Service, else of the route, else all.
fn hosts(service: Option<&Attached>, hostnames: &[String]) -> Vec<String> {
    match (service, hostnames) {
        (Some(service), _) => service.hosts.clone(),
        (None, []) => vec!["*".to_owned()],
        (None, hostnames) => hostnames.to_vec(),
    }
}

fn only_port(routes: &mut [Http], port: u16) {
    for route in routes {
        if route.r#match.is_empty() {
            route.r#match.push(HttpMatchRequest::default());
        }
        for request in &mut route.r#match {
            request.port = port.into();
        }
    }
}

/// A part without routes.
fn part(key: &ObjectKey, created: i64, provenance: Origin) -> Part {
    Part {
        name: key.name.clone(),
        namespace: key.namespace.clone(),
        hosts: Vec::new(),
        gateway: "".into(),
        export_to: ExportTo::Unset,
        created,
        http: Vec::new(),
        tcp: Vec::new(),
        tls: Vec::new(),
        provenance,
    }
}

/// The part for some hosts of an attachment. A route for the Service of another namespace is for its own
/// namespace alone.
fn bound(base: &Part, attachment: &Attachment, hosts: Vec<String>, name: String) -> Part {
    let foreign = attachment.service.as_ref().is_some_and(|service| service.namespace != base.namespace);
    Part {
        name: name.into(),
        hosts,
        gateway: attachment.gateway.clone(),
        export_to: if foreign { ExportTo::parse(["."], &base.namespace) } else { ExportTo::Unset },
        ..base.clone()
    }
}
