//! Listeners of a Gateway: the server that each becomes, and which routes may attach.

use super::gateways::internal_name;
use super::{ACCEPTED, RESOLVED_REFS, listener_tls};
use crate::engine::Cx;
use crate::routing::ir::ServerHost;
use pilotfish_config::gateway_api::{
    FromNamespaces, GROUP, Gateway, GrpcRoute, HttpRoute, Listener, TcpRoute, TlsMode, TlsRoute,
};
use pilotfish_config::kubernetes::Namespace as NamespaceObject;
use pilotfish_config::networking::{Port, Server, ServerTlsSettings};
use pilotfish_model::{Hostname, Kind, KindSpec, LabelMap, Namespace, Typed};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The label that every namespace has with its name.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// A listener, as routes see it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Parent {
    /// The gateway that it becomes, as `namespace/name`.
    pub(super) gateway: Arc<str>,
    pub(super) section: Arc<str>,
    pub(super) port: u16,
    pub(super) protocol: Arc<str>,
    /// Its host as written; empty for all.
    pub(super) hostname: String,
    /// Its host for each namespace whose routes may attach.
    pub(super) hosts: Vec<ServerHost>,
    /// The kinds of routes that may attach.
    pub(super) kinds: Vec<Kind>,
    /// Whether it becomes a server. Routes are attached to others too, but lead nowhere.
    pub(super) is_served: bool,
}

/// What becomes of a listener.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Outcome {
    /// `None` for a listener that is not served.
    pub(super) server: Option<Server>,
    /// Why not, or what is missing of it all the same.
    pub(super) fault: Option<Fault>,
}

/// What is wrong with a listener: the condition that does not hold, the reason and a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) condition: &'static str,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Fault {
    pub(super) fn reference(reason: &'static str, message: String) -> Self {
        Self { condition: RESOLVED_REFS, reason, message }
    }
}

impl From<Fault> for Outcome {
    fn from(fault: Fault) -> Self {
        Self { server: None, fault: Some(fault) }
    }
}

impl Parent {
    pub(super) fn of(cx: &Cx<'_>, object: &Typed<Gateway>, listener: &Listener) -> Self {
        let namespace = object.namespace();
        let hosts = hosts(cx, namespace, listener);
        let hosts = hosts.iter().filter_map(|host| ServerHost::parse(host, namespace));
        Self {
            gateway: format!("{namespace}/{}", internal_name(object.name(), &listener.name)).into(),
            section: listener.name.as_str().into(),
            port: listener.port,
            protocol: listener.protocol.as_str().into(),
            hostname: listener.hostname.clone().unwrap_or_default(),
            hosts: hosts.collect(),
            kinds: kinds(listener),
            is_served: outcome(cx, object, listener).server.is_some(),
        }
    }
}

/// True for a listener that passes TLS on.
fn passes(listener: &Listener) -> bool {
    listener.tls.as_ref().is_some_and(|tls| tls.mode == TlsMode::Passthrough)
}

/// The kinds of routes that a protocol supports, of those that are allowed.
pub(super) fn kinds(listener: &Listener) -> Vec<Kind> {
    let of_protocol: &[Kind] = match listener.protocol.as_str() {
        "HTTP" | "HTTPS" => &[Kind::HttpRoute, Kind::GrpcRoute],
        "TLS" if passes(listener) => &[Kind::TlsRoute],
        // Streams behind TLS that ends here may be routed by either kind.
        "TLS" => &[Kind::TlsRoute, Kind::TcpRoute],
        "TCP" => &[Kind::TcpRoute],
        _ => &[],
    };
    let allowed = &listener.allowed_routes.kinds;
    let is_asked = |kind: &Kind| {
        allowed.is_empty() || allowed.iter().any(|it| it.kind == kind.name() && it.group == GROUP)
    };
    of_protocol.iter().copied().filter(is_asked).collect()
}

/// What becomes of a listener: the server, or why there is none.
pub(super) fn outcome(cx: &Cx<'_>, object: &Typed<Gateway>, listener: &Listener) -> Outcome {
    let (tls, fault) = match (listener.protocol.as_str(), &listener.tls) {
        ("HTTP" | "HTTPS" | "TLS" | "TCP", Some(settings)) => {
            match listener_tls::settings(cx, object, listener, settings) {
                Ok((tls, fault)) => (Some(tls), fault),
                Err(fault) => return fault.into(),
            }
        }
        ("HTTP" | "TCP", None) => (None, None),
        ("HTTPS" | "TLS", None) => return listener_tls::absent(&listener.protocol).into(),
        (strange, _) => {
            let message = format!("protocol {strange:?} is none of HTTP, HTTPS, TLS and TCP");
            return Fault { condition: ACCEPTED, reason: "UnsupportedProtocol", message }.into();
        }
    };
    Outcome { server: Some(server(cx, object, listener, tls)), fault }
}

fn server(
    cx: &Cx<'_>,
    object: &Typed<Gateway>,
    listener: &Listener,
    tls: Option<ServerTlsSettings>,
) -> Server {
    Server {
        port: Some(Port {
            number: listener.port.into(),
            protocol: listener.protocol.clone(),
            name: "default".to_owned(),
            ..Port::default()
        }),
        hosts: hosts(cx, object.namespace(), listener),
        tls,
        ..Server::default()
    }
}

/// Returns a server that refuses connections, in place of a TLS listener that is not served: otherwise a
/// listener for more hosts would get them, and perhaps demand less of clients.
pub(super) fn refusing(cx: &Cx<'_>, object: &Typed<Gateway>, listener: &Listener) -> Option<Server> {
    let is_tls = |listener: &Listener| matches!(listener.protocol.as_str(), "HTTPS" | "TLS");
    let takes_over = |other: &Listener| {
        other.port == listener.port
            && is_tls(other)
            && is_wider(other, listener)
            && outcome(cx, object, other).server.is_some()
    };
    let needed = is_tls(listener) && object.spec.listeners.iter().any(takes_over);
    let closed =
        || Server { closed: true, ..server(cx, object, listener, Some(ServerTlsSettings::default())) };
    needed.then(closed)
}

/// Whether a listener is for all hosts of another one and for more.
fn is_wider(wide: &Listener, narrow: &Listener) -> bool {
    let host = |listener: &Listener| {
        let written = listener.hostname.as_deref().filter(|host| !host.is_empty());
        Hostname::parse(written.unwrap_or("*")).ok()
    };
    let (Some(wide), Some(narrow)) = (host(wide), host(narrow)) else { return false };
    wide != narrow && narrow.is_subset_of(&wide)
}

/// The host of a listener for each namespace whose routes may attach.
fn hosts(cx: &Cx<'_>, own: &Namespace, listener: &Listener) -> Vec<String> {
    let host = listener.hostname.as_deref().unwrap_or("*");
    match namespaces(cx, own, listener).as_slice() {
        // No namespace is called so: nothing may attach.
        [] => vec![format!("~/{host}")],
        names => names.iter().map(|namespace| format!("{namespace}/{host}")).collect(),
    }
}

/// The namespaces whose routes may attach; `*` for all.
fn namespaces(cx: &Cx<'_>, own: &Namespace, listener: &Listener) -> Vec<String> {
    let allowed = &listener.allowed_routes.namespaces;
    match (allowed.from, &allowed.selector) {
        (FromNamespaces::All, _) => vec!["*".to_owned()],
        (FromNamespaces::Same, _) => vec![own.to_string()],
        // Validation refuses a selector that is missing. Whatever comes by it all the same opens nothing.
        (FromNamespaces::None, _) | (FromNamespaces::Selector, None) => Vec::new(),
        (FromNamespaces::Selector, Some(selector)) => {
            let known = labels_of_namespaces(cx).into_iter();
            known.filter(|(_, labels)| selector.matches(labels)).map(|(name, _)| name).collect()
        }
    }
}

/// The labels of all namespaces that have an object, or routes.
fn labels_of_namespaces(cx: &Cx<'_>) -> BTreeMap<String, LabelMap> {
    let mut out: BTreeMap<String, LabelMap> = BTreeMap::new();
    for object in cx.objects::<NamespaceObject>() {
        out.insert(object.name().to_owned(), LabelMap::clone(&object.meta().labels));
    }
    let routes = names_of::<HttpRoute>(cx)
        .chain(names_of::<GrpcRoute>(cx))
        .chain(names_of::<TcpRoute>(cx))
        .chain(names_of::<TlsRoute>(cx))
        .collect::<BTreeSet<_>>();
    for namespace in routes {
        out.entry(namespace.to_string()).or_default();
    }
    for (name, labels) in &mut out {
        *labels = labels.with([(NAME_LABEL.into(), name.as_str().into())]);
    }
    out
}

fn names_of<'a, T: KindSpec>(cx: &'a Cx<'_>) -> impl Iterator<Item = Namespace> + 'a {
    cx.objects::<T>().map(|object| object.namespace().clone())
}
