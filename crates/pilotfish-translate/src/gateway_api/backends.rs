//! Backends: the destinations of routes.

use super::grants;
use crate::Cx;
use pilotfish_config::gateway_api::{BackendObjectReference, BackendRef, HttpBackendRef};
use pilotfish_config::networking::{Destination, PortSelector, RouteDestination};
use pilotfish_model::{Kind, Namespace};

/// A backend that makes the whole route useless: a Service without a port, or a host name where a name belongs.
#[derive(Debug)]
pub(super) struct Malformed;

/// Who refers to a backend.
#[derive(Clone, Copy)]
pub(super) struct Referrer<'a> {
    /// The kind of route.
    pub(super) kind: Kind,
    /// Its namespace.
    pub(super) namespace: &'a Namespace,
    /// Whether backends of other namespaces must be granted: not to routes of sidecars.
    pub(super) needs_grant: bool,
}

impl From<&HttpBackendRef> for BackendView {
    fn from(backend: &HttpBackendRef) -> Self {
        Self::new(&backend.group, &backend.kind, &backend.name, backend.namespace.as_deref(), backend.port)
    }
}

impl From<&BackendRef> for BackendView {
    fn from(backend: &BackendRef) -> Self {
        Self::new(&backend.group, &backend.kind, &backend.name, backend.namespace.as_deref(), backend.port)
    }
}

impl From<&BackendObjectReference> for BackendView {
    fn from(backend: &BackendObjectReference) -> Self {
        Self::new(&backend.group, &backend.kind, &backend.name, backend.namespace.as_deref(), backend.port)
    }
}

/// What all kinds of references to backends have.
pub(super) struct BackendView {
    group: String,
    kind: String,
    name: String,
    namespace: Option<Namespace>,
    port: Option<u16>,
}

impl BackendView {
    fn new(group: &str, kind: &str, name: &str, namespace: Option<&str>, port: Option<u16>) -> Self {
        Self {
            group: group.to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
            namespace: namespace.map(Namespace::from),
            port,
        }
    }
}

/// The destination of a backend. One that must not be referred to, or of an unknown kind, is a destination without host: requests for
/// it are answered with an error. A Service that is not there keeps its name.
pub(super) fn destination(
    cx: &Cx<'_>,
    backend: &BackendView,
    referrer: Referrer<'_>,
) -> Result<Destination, Malformed> {
    let namespace = backend.namespace.as_ref().unwrap_or(referrer.namespace);
    let from = (referrer.kind.name(), referrer.namespace);
    let to = (backend.group.as_str(), backend.kind.as_str(), namespace, backend.name.as_str());
    if referrer.needs_grant && !grants::allows(cx, from, to) {
        return Ok(Destination::default());
    }
    let to_host = |host: String| {
        let number = u32::from(backend.port.ok_or(Malformed)?);
        Ok(Destination { host, port: Some(PortSelector { number }), ..Destination::default() })
    };
    match (backend.group.as_str(), backend.kind.as_str()) {
        ("" | "core", "Service") if backend.name.contains('.') => Err(Malformed),
        ("" | "core", "Service") => to_host(cx.domain().service(&backend.name, namespace)),
        ("networking.istio.io", "Hostname") if backend.namespace.is_some() => Err(Malformed),
        ("networking.istio.io", "Hostname") => to_host(backend.name.clone()),
        ("multicluster.x-k8s.io", "ServiceImport") => {
            to_host(format!("{}.{namespace}.svc.clusterset.local", backend.name))
        }
        _ => Ok(Destination::default()),
    }
}

/// Weights of several backends; a lone one needs none.
pub(super) fn weights(backends: &[u32]) -> Vec<i32> {
    match backends {
        [_] => vec![0],
        several => several.iter().map(|weight| i32::try_from(*weight).unwrap_or(i32::MAX)).collect(),
    }
}

/// Where connections go; to nothing where no backend has a weight.
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
