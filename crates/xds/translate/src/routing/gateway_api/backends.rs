//! Backends: the destinations of routes.

use super::{REF_NOT_PERMITTED, grants};
use crate::engine::Cx;
use pilotfish_config::gateway_api::{Backend, BackendRef};
use pilotfish_config::networking::{Destination, PortSelector, RouteDestination};
use pilotfish_model::{Hostname, Kind, Namespace, PortId, Resolution, Service, ServiceKey};
use std::sync::Arc;

/// The group of ServiceImports.
const MULTI_CLUSTER: &str = "multicluster.x-k8s.io";

/// Problem that invalidates the whole route: a Service without a port, a host name in place of a name, a
/// filter that does not exist.
#[derive(Debug)]
pub(super) struct Malformed(pub(super) Problem);

/// Problem of a reference or a rule: the reason, as in a status condition, and a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// A backend that has no destination.
enum Unusable {
    /// Requests for it are answered with an error.
    Alone(Problem),
    /// The whole route is invalid.
    Route(Problem),
}

impl Problem {
    pub(super) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }

    /// A filter that is unknown or does not exist.
    pub(super) fn filter(message: impl Into<String>) -> Self {
        Self::new("InvalidFilter", message)
    }
}

/// Route that refers to a backend.
#[derive(Clone, Copy)]
pub(super) struct Referrer<'a> {
    /// The kind of route.
    pub(super) kind: Kind,
    pub(super) namespace: &'a Namespace,
    /// True if backends in other namespaces need a ReferenceGrant; routes of sidecars need none.
    pub(super) needs_grant: bool,
}

/// A backend reference that does not borrow from its object.
pub(super) struct BackendView {
    group: String,
    kind: String,
    name: String,
    namespace: Option<Namespace>,
    port: Option<u16>,
}

impl<'a, T> From<&'a T> for BackendView
where
    Backend<'a>: From<&'a T>,
{
    fn from(reference: &'a T) -> Self {
        let backend = Backend::from(reference);
        Self {
            group: backend.group.to_owned(),
            kind: backend.kind.to_owned(),
            name: backend.name.to_owned(),
            namespace: backend.namespace.map(Namespace::from),
            port: backend.port,
        }
    }
}

/// Returns the destination of a backend. Without permission, or with an unknown kind, it is a destination
/// without host, so that requests for it are answered with an error. A missing Service keeps its name.
pub(super) fn destination(
    cx: &Cx<'_>,
    backend: &BackendView,
    referrer: Referrer<'_>,
) -> Result<Destination, Malformed> {
    match resolve(cx, backend, referrer) {
        Ok(destination) => Ok(destination),
        Err(Unusable::Alone(_)) => Ok(Destination::default()),
        Err(Unusable::Route(problem)) => Err(Malformed(problem)),
    }
}

/// Returns the problem of a backend, including a missing Service.
pub(super) fn problem(cx: &Cx<'_>, backend: &BackendView, referrer: Referrer<'_>) -> Option<Problem> {
    match present(cx, backend, referrer) {
        Ok(destination) => without_port(cx, backend, referrer, &destination),
        Err(problem) => Some(problem),
    }
}

/// A port that the service behind a backend lacks: there is no cluster for it.
fn without_port(
    cx: &Cx<'_>,
    backend: &BackendView,
    referrer: Referrer<'_>,
    to: &Destination,
) -> Option<Problem> {
    let number = to.port.as_ref()?.number;
    let services = services(cx, backend, referrer, &Hostname::parse(&to.host).ok()?);
    // The ports of an alias mean nothing.
    let takes = |service: &Arc<Service>| {
        service.resolution == Resolution::Alias || service.port(PortId::tcp(number)).is_some()
    };
    let message = format!("{} has no port {number} for TCP", to.host);
    (!services.iter().any(takes)).then(|| Problem::new("BackendNotFound", message))
}

/// Returns the destination of a backend that is permitted and exists.
pub(super) fn present(
    cx: &Cx<'_>,
    backend: &BackendView,
    referrer: Referrer<'_>,
) -> Result<Destination, Problem> {
    let destination = resolve(cx, backend, referrer).map_err(|unusable| match unusable {
        Unusable::Alone(problem) | Unusable::Route(problem) => problem,
    })?;
    let hostname = Hostname::parse(&destination.host).ok();
    if hostname.is_some_and(|hostname| !services(cx, backend, referrer, &hostname).is_empty()) {
        return Ok(destination);
    }
    Err(Problem::new("BackendNotFound", format!("there is no service {}", destination.host)))
}

/// The services of a backend's host: for a Hostname those of any namespace.
fn services(
    cx: &Cx<'_>,
    backend: &BackendView,
    referrer: Referrer<'_>,
    hostname: &Hostname,
) -> Vec<Arc<Service>> {
    let namespaces = match backend.kind.as_str() {
        "Hostname" => cx.namespaces_of(hostname),
        _ => vec![backend.namespace.as_ref().unwrap_or(referrer.namespace).clone()],
    };
    let keys = namespaces.into_iter().map(|namespace| ServiceKey { hostname: hostname.clone(), namespace });
    keys.filter_map(|key| cx.services_of(&key)).flat_map(|services| services.to_vec()).collect()
}

fn resolve(cx: &Cx<'_>, backend: &BackendView, referrer: Referrer<'_>) -> Result<Destination, Unusable> {
    let namespace = backend.namespace.as_ref().unwrap_or(referrer.namespace);
    let (group, kind, name) = (backend.group.as_str(), backend.kind.as_str(), &backend.name);
    let from = (referrer.kind.name(), referrer.namespace);
    if referrer.needs_grant && !grants::allows(cx, from, (group, kind, namespace, name)) {
        let message = format!("no ReferenceGrant lets this route lead to the {kind} {namespace}/{name}");
        return Err(Unusable::Alone(Problem::new(REF_NOT_PERMITTED, message)));
    }
    let invalid = |message: String| Err(Unusable::Route(Problem::new("InvalidDestination", message)));
    let host = match (group, kind) {
        ("" | "core", "Service") | (MULTI_CLUSTER, "ServiceImport") if name.contains('.') => {
            return invalid(format!("{name:?} is no name of a {kind}, which has no dots"));
        }
        ("" | "core", "Service") => cx.domain().service(name, namespace),
        ("networking.istio.io", "Hostname") if backend.namespace.is_some() => {
            return invalid(format!("the Hostname {name:?} has a namespace, which hosts do not have"));
        }
        ("networking.istio.io", "Hostname") => name.clone(),
        (MULTI_CLUSTER, "ServiceImport") => cx.domain().import(name, namespace),
        _ => {
            let message = format!("backends of kind {kind:?} of group {group:?} are not known");
            return Err(Unusable::Alone(Problem::new("InvalidKind", message)));
        }
    };
    match backend.port {
        Some(port) => {
            let port = Some(PortSelector { number: port.into() });
            Ok(Destination { host, port, ..Destination::default() })
        }
        None => invalid(format!("the {kind} {name:?} is named without a port")),
    }
}

/// Returns the weights of several backends; a single backend needs none.
pub(super) fn weights(backends: &[u32]) -> Vec<i32> {
    match backends {
        [_] => vec![0],
        several => several.iter().map(|weight| i32::try_from(*weight).unwrap_or(i32::MAX)).collect(),
    }
}

/// Returns the destinations of connections; none if no backend has a weight.
pub(super) fn stream_destinations(
    cx: &Cx<'_>,
    backends: &[BackendRef],
    referrer: Referrer<'_>,
) -> Result<Vec<RouteDestination>, Malformed> {
    let used: Vec<&BackendRef> = backends.iter().filter(|backend| backend.weight > 0).collect();
    if used.is_empty() {
        let nothing = Destination {
            host: "internal.cluster.local".to_owned(),
            subset: "zero-weight".to_owned(),
            port: Some(PortSelector { number: 65535 }),
        };
        return Ok(vec![RouteDestination { destination: Some(nothing), weight: 0 }]);
    }
    let weights = weights(&used.iter().map(|backend| backend.weight).collect::<Vec<_>>());
    let pairs = used.into_iter().zip(weights);
    pairs
        .map(|(backend, weight)| {
            let destination = destination(cx, &BackendView::from(backend), referrer)?;
            Ok(RouteDestination { destination: Some(destination), weight })
        })
        .collect()
}
