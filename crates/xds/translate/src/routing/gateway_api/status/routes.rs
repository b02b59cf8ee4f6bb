//! Status of routes: for each parent, acceptance of the route and resolution of its references.

use crate::engine::{Cx, Query};
use crate::routing::gateway_api::attachment::{self, Attachment, Binding};
use crate::routing::gateway_api::backends::{self, BackendView, Malformed, Problem, Referrer};
use crate::routing::gateway_api::request_rules::{self, RequestRoute, RequestRule, RuleParts};
use crate::routing::gateway_api::{ACCEPTED, RESOLVED_REFS, stream_routes};
use pilotfish_config::gateway_api::{
    GROUP, GrpcRoute, HttpRoute, ParentReference, StreamRouteRule, TcpRoute, TlsRoute,
};
use pilotfish_config::status::{Condition, Controllers, ParentStatus, Status};
use pilotfish_model::{Hostname, Kind, KindSpec, Namespace, ObjectKey};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Query for the result of each parent of a route.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct BindingsOf(ObjectKey);

impl Query for BindingsOf {
    type Output = Vec<Binding>;

    fn compute(&self, cx: &Cx<'_>) -> Vec<Binding> {
        let ObjectKey { kind, namespace, name } = &self.0;
        let bindings = |parents: &[ParentReference], hostnames: &[String]| {
            attachment::bindings(cx, *kind, namespace, parents, hostnames)
        };
        let found = match kind {
            Kind::HttpRoute => cx
                .object::<HttpRoute>(namespace, name)
                .map(|route| bindings(route.parents(), route.hostnames())),
            Kind::GrpcRoute => cx
                .object::<GrpcRoute>(namespace, name)
                .map(|route| bindings(route.parents(), route.hostnames())),
            Kind::TcpRoute => {
                cx.object::<TcpRoute>(namespace, name).map(|route| bindings(&route.spec.parent_refs, &[]))
            }
            Kind::TlsRoute => cx
                .object::<TlsRoute>(namespace, name)
                .map(|route| bindings(&route.spec.parent_refs, &route.spec.hostnames)),
            _ => None,
        };
        found.unwrap_or_default()
    }
}

/// Query for the number of attached routes by gateway (`namespace/name` of the gateway made of a listener).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct AttachedRoutes;

impl Query for AttachedRoutes {
    type Output = BTreeMap<Arc<str>, u32>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let mut out = BTreeMap::new();
        for key in all_keys(cx) {
            let bindings = cx.get(&BindingsOf(key));
            let attached = bindings.iter().filter_map(|binding| binding.result.as_ref().ok()).flatten();
            // A route that names a listener twice counts once.
            let gateways: BTreeSet<&Arc<str>> = attached.map(|to| &to.gateway).collect();
            for gateway in gateways {
                *out.entry(gateway.clone()).or_insert(0) += 1;
            }
        }
        out
    }
}

/// A Gateway with attached routes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct AttachedGateway {
    pub(super) namespace: Namespace,
    pub(super) name: Arc<str>,
    /// The controller of its class.
    pub(super) controller: &'static str,
}

/// The Gateways whose routes lead to a host, by host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct GatewaysByHost;

impl Query for GatewaysByHost {
    type Output = BTreeMap<Hostname, BTreeSet<AttachedGateway>>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let mut out: Self::Output = BTreeMap::new();
        for key in all_keys(cx) {
            let bindings = cx.get(&BindingsOf(key.clone()));
            let attached = bindings.iter().filter(|binding| binding.result.is_ok());
            let attached = attached.filter_map(|it| Some((it.gateway.as_ref()?, it.controller)));
            let gateways: Vec<AttachedGateway> = attached
                .map(|(gateway, controller)| AttachedGateway {
                    namespace: gateway.namespace.clone(),
                    name: gateway.name.clone(),
                    controller,
                })
                .collect();
            if gateways.is_empty() {
                continue;
            }
            let referrer = Referrer { kind: key.kind, namespace: &key.namespace, needs_grant: true };
            for backend in backends_of(cx, &key).unwrap_or_default() {
                let Ok(destination) = backends::destination(cx, &backend, referrer) else { continue };
                let Ok(host) = Hostname::parse(&destination.host) else { continue };
                out.entry(host).or_default().extend(gateways.iter().cloned());
            }
        }
        out
    }
}

fn all_keys(cx: &Cx<'_>) -> Vec<ObjectKey> {
    [keys::<HttpRoute>(cx), keys::<GrpcRoute>(cx), keys::<TcpRoute>(cx), keys::<TlsRoute>(cx)].concat()
}

fn keys<T: KindSpec>(cx: &Cx<'_>) -> Vec<ObjectKey> {
    cx.objects::<T>().map(|object| object.key().clone()).collect()
}

/// Returns the status of a route at the parents of our controllers. Services have no controller: the status
/// at them has one of our controller names.
pub(super) fn status(cx: &Cx<'_>, key: &ObjectKey, ours: Controllers) -> Option<Status> {
    let bindings = cx.get(&BindingsOf(key.clone()));
    let mut of_gateways = None;
    let mut of_mesh = None;
    let mut parents = Vec::new();
    for binding in bindings.iter() {
        let needs_grant = binding.parent.group == GROUP;
        let controller = match ours.names() {
            names if names.contains(&binding.controller) => binding.controller,
            [name, ..] if !needs_grant => name,
            _ => continue,
        };
        let problem = if needs_grant { &mut of_gateways } else { &mut of_mesh };
        if problem.is_none() {
            *problem = Some(unresolved(cx, key, needs_grant)?);
        }
        parents.push(ParentStatus {
            parent: binding.parent.clone(),
            controller,
            conditions: vec![accepted(binding), resolved(problem.as_ref().and_then(Option::as_ref))],
        });
    }
    Some(Status::Route { ours, parents })
}

fn accepted(binding: &Binding) -> Condition {
    let attached = binding.result.as_deref().unwrap_or_default();
    if let Some((host, port)) = missing_port(attached) {
        return Condition::bad(ACCEPTED, "NoMatchingParent", format!("{host} has no port {port} for TCP"));
    }
    match &binding.result {
        Ok(attached) if attached.iter().any(|to| to.service.is_some()) => {
            Condition::good(ACCEPTED, "Accepted", "in force for clients of the service")
        }
        Ok(attached) => {
            let count = attached.len();
            let plural = if count == 1 { "" } else { "s" };
            Condition::good(ACCEPTED, "Accepted", format!("attached to {count} listener{plural}"))
        }
        Err(problem) => Condition::bad(ACCEPTED, problem.reason, problem.message.clone()),
    }
}

/// Returns the host and port of a service that does not have the port that the route is for.
fn missing_port(attached: &[Attachment]) -> Option<(&str, u16)> {
    attached.iter().filter(|to| to.arrivals.is_empty()).find_map(|to| {
        let service = to.service.as_ref()?;
        Some((service.hosts.first()?.as_str(), service.port?))
    })
}

fn resolved(problem: Option<&Problem>) -> Condition {
    match problem {
        None => Condition::good(RESOLVED_REFS, RESOLVED_REFS, "everything that the route names is there"),
        Some(problem) => Condition::bad(RESOLVED_REFS, problem.reason, problem.message.clone()),
    }
}

/// Returns the most severe problem of a route's references: first those that invalidate the whole route, last
/// missing backends. The outer `None` means that the route does not exist.
fn unresolved(cx: &Cx<'_>, key: &ObjectKey, needs_grant: bool) -> Option<Option<Problem>> {
    let ObjectKey { kind, namespace, name } = key;
    let referrer = Referrer { kind: *kind, namespace, needs_grant };
    let malformed = match kind {
        Kind::HttpRoute => malformed::<HttpRoute>(cx, key, referrer)?,
        Kind::GrpcRoute => malformed::<GrpcRoute>(cx, key, referrer)?,
        Kind::TcpRoute => {
            let route = cx.object::<TcpRoute>(namespace, name)?;
            fault(stream_routes::tcp(cx, &route.spec.rules, None, referrer))
        }
        _ => {
            let route = cx.object::<TlsRoute>(namespace, name)?;
            fault(stream_routes::tls(cx, &route.spec.rules, &[], None, referrer))
        }
    };
    let backends = backends_of(cx, key)?;
    if malformed.is_some() {
        return Some(malformed);
    }
    let mut problems: Vec<Problem> =
        backends.iter().filter_map(|backend| backends::problem(cx, backend, referrer)).collect();
    problems.sort_by_key(|problem| problem.reason == "BackendNotFound");
    Some(problems.into_iter().next())
}

/// Returns all backends of a route, including mirrors; `None` if the route does not exist.
fn backends_of(cx: &Cx<'_>, key: &ObjectKey) -> Option<Vec<BackendView>> {
    let ObjectKey { kind, namespace, name } = key;
    Some(match kind {
        Kind::HttpRoute => of_rules(cx.object::<HttpRoute>(namespace, name)?.rules()),
        Kind::GrpcRoute => of_rules(cx.object::<GrpcRoute>(namespace, name)?.rules()),
        Kind::TcpRoute => of_streams(&cx.object::<TcpRoute>(namespace, name)?.spec.rules),
        _ => of_streams(&cx.object::<TlsRoute>(namespace, name)?.spec.rules),
    })
}

fn fault<T>(routes: Result<T, Malformed>) -> Option<Problem> {
    routes.err().map(|Malformed(problem)| problem)
}

/// Returns the problem that invalidates a whole HTTPRoute or GRPCRoute, if any. The outer `None` means that
/// it does not exist.
fn malformed<T: RequestRoute>(
    cx: &Cx<'_>,
    key: &ObjectKey,
    referrer: Referrer<'_>,
) -> Option<Option<Problem>> {
    let route = cx.object::<T>(&key.namespace, &key.name)?;
    Some(fault(request_rules::routes(cx, &route, referrer, &attachments(cx, key))))
}

/// Returns the served listeners and services that a route is attached to.
fn attachments(cx: &Cx<'_>, key: &ObjectKey) -> Vec<Attachment> {
    let bindings = cx.get(&BindingsOf(key.clone()));
    let attached = bindings.iter().filter_map(|binding| binding.result.as_ref().ok()).flatten();
    attached.filter(|attachment| attachment.is_served).cloned().collect()
}

/// Returns the listeners at which redirects of an HTTPRoute lead back to themselves, by the position of the
/// rule. Redirects that do so everywhere are omitted: they are in the status.
pub(crate) fn partial_loops(cx: &Cx<'_>, key: &ObjectKey) -> Vec<(usize, BTreeSet<String>)> {
    let route = cx.object::<HttpRoute>(&key.namespace, &key.name);
    route.map_or_else(Vec::new, |route| request_rules::partial_loops(cx, &route, &attachments(cx, key)))
}

/// Returns all backends of the rules, including mirrors.
fn of_rules<T: RequestRule>(rules: &[T]) -> Vec<BackendView> {
    let mut out = Vec::new();
    for RuleParts { backends, filters, .. } in rules.iter().map(RequestRule::parts) {
        out.extend(backends.iter().map(BackendView::from));
        let mirrors = filters.iter().filter_map(|filter| filter.request_mirror.as_ref());
        out.extend(mirrors.map(|mirror| BackendView::from(&mirror.backend_ref)));
    }
    out
}

fn of_streams(rules: &[StreamRouteRule]) -> Vec<BackendView> {
    rules.iter().flat_map(|rule| &rule.backend_refs).map(BackendView::from).collect()
}
