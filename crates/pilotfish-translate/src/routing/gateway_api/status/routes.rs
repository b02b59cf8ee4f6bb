//! The status of routes: for each parent whether it accepts the route, and whether everything is there that the route leads to.

use crate::engine::{Cx, Query};
use crate::routing::gateway_api::attachment::{self, Binding};
use crate::routing::gateway_api::backends::{self, BackendView, Malformed, Problem, Referrer};
use crate::routing::gateway_api::request_rules::{self, RequestRoute, RequestRule, RuleParts};
use crate::routing::gateway_api::{ACCEPTED, RESOLVED_REFS, stream_routes};
use pilotfish_config::gateway_api::{
    GROUP, GrpcRoute, HttpRoute, ParentReference, StreamRouteRule, TcpRoute, TlsRoute,
};
use pilotfish_config::status::{Condition, Controllers, ParentStatus, Status};
use pilotfish_model::{Kind, KindSpec, ObjectKey};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The outcome of each parent of a route.
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

/// How many routes are attached to each gateway, as `namespace/name` of what a listener becomes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct AttachedRoutes;

impl Query for AttachedRoutes {
    type Output = BTreeMap<Arc<str>, u32>;

    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let mut out = BTreeMap::new();
        let keys = keys::<HttpRoute>(cx)
            .into_iter()
            .chain(keys::<GrpcRoute>(cx))
            .chain(keys::<TcpRoute>(cx))
            .chain(keys::<TlsRoute>(cx));
        for key in keys {
            let bindings = cx.get(&BindingsOf(key));
            let attached = bindings.iter().filter_map(|binding| binding.result.as_ref().ok()).flatten();
            // A route that names a listener twice is attached once.
            let gateways: std::collections::BTreeSet<&Arc<str>> = attached.map(|to| &to.gateway).collect();
            for gateway in gateways {
                *out.entry(gateway.clone()).or_insert(0) += 1;
            }
        }
        out
    }
}

fn keys<T: KindSpec>(cx: &Cx<'_>) -> Vec<ObjectKey> {
    cx.objects::<T>().map(|object| object.key().clone()).collect()
}

/// The status of a route at those of its parents that are ours. Services have no controller of their own: the status at them
/// has one of our names.
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

fn resolved(problem: Option<&Problem>) -> Condition {
    match problem {
        None => Condition::good(RESOLVED_REFS, RESOLVED_REFS, "everything that the route names is there"),
        Some(problem) => Condition::bad(RESOLVED_REFS, problem.reason, problem.message.clone()),
    }
}

/// What is wrong with what a route leads to: what costs the whole route first, what is merely not there last. `None` when
/// the route itself is gone.
fn unresolved(cx: &Cx<'_>, key: &ObjectKey, needs_grant: bool) -> Option<Option<Problem>> {
    let ObjectKey { kind, namespace, name } = key;
    let referrer = Referrer { kind: *kind, namespace, needs_grant };
    let (malformed, backends) = match kind {
        Kind::HttpRoute => of_requests::<HttpRoute>(cx, key, referrer)?,
        Kind::GrpcRoute => of_requests::<GrpcRoute>(cx, key, referrer)?,
        Kind::TcpRoute => {
            let route = cx.object::<TcpRoute>(namespace, name)?;
            let rules = &route.spec.rules;
            (fault(stream_routes::tcp(cx, rules, None, referrer)), of_streams(rules))
        }
        _ => {
            let route = cx.object::<TlsRoute>(namespace, name)?;
            let rules = &route.spec.rules;
            (fault(stream_routes::tls(cx, rules, &[], None, referrer)), of_streams(rules))
        }
    };
    if malformed.is_some() {
        return Some(malformed);
    }
    let mut problems: Vec<Problem> =
        backends.iter().filter_map(|backend| backends::problem(cx, backend, referrer)).collect();
    problems.sort_by_key(|problem| problem.reason == "BackendNotFound");
    Some(problems.into_iter().next())
}

fn fault<T>(routes: Result<T, Malformed>) -> Option<Problem> {
    routes.err().map(|Malformed(problem)| problem)
}

/// What costs a route of requests as a whole, and everything that it leads to, mirrors included.
fn of_requests<T: RequestRoute>(
    cx: &Cx<'_>,
    key: &ObjectKey,
    referrer: Referrer<'_>,
) -> Option<(Option<Problem>, Vec<BackendView>)> {
    let route = cx.object::<T>(&key.namespace, &key.name)?;
    let mut backends = Vec::new();
    for RuleParts { backends: own, filters, .. } in route.rules().iter().map(RequestRule::parts) {
        backends.extend(own.iter().map(BackendView::from));
        let mirrors = filters.iter().filter_map(|filter| filter.request_mirror.as_ref());
        backends.extend(mirrors.map(|mirror| BackendView::from(&mirror.backend_ref)));
    }
    Some((fault(request_rules::routes(cx, &route, referrer)), backends))
}

fn of_streams(rules: &[StreamRouteRule]) -> Vec<BackendView> {
    rules.iter().flat_map(|rule| &rule.backend_refs).map(BackendView::from).collect()
}
