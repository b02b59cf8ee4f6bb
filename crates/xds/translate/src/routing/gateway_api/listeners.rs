//! Listeners: the server that each becomes, and which routes may attach.

use super::conflicts::{self, Conflict};
use super::gateways::internal_name;
use super::owners::ListenerOwner;
use super::{ACCEPTED, RESOLVED_REFS, listener_tls};
use crate::engine::Cx;
use crate::routing::ir::ServerHost;
use crate::services::host_index::HostIndex;
use crate::services::labels_of_namespace;
use pilotfish_config::gateway_api::{
    FromNamespaces, GROUP, GrpcRoute, HttpRoute, Listener, TcpRoute, TlsMode, TlsRoute,
};
use pilotfish_config::kubernetes::Namespace as NamespaceObject;
use pilotfish_config::networking::{Port, Server, ServerTlsSettings};
use pilotfish_model::{Hostname, Kind, KindSpec, Namespace};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

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
    /// True if it becomes a server. Routes attach to other listeners too, without effect.
    pub(super) is_served: bool,
}

/// Outcome for a listener: its server, fault and conflict.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Outcome {
    /// `None` for a listener that is not served.
    pub(super) server: Option<Server>,
    /// Reason for no server, or fault of a listener that is served nevertheless.
    pub(super) fault: Option<Fault>,
    /// Conflict with an earlier listener. Without one, a listener may still not be served.
    pub(super) conflict: Option<Conflict>,
}

/// Fault of a listener: the condition that does not hold, the reason and a message.
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

impl Parent {
    pub(super) fn of(cx: &Cx<'_>, owner: &ListenerOwner, listener: &Listener) -> Self {
        let namespace = owner.namespace();
        let hosts = hosts(cx, namespace, listener);
        let hosts = hosts.iter().filter_map(|host| ServerHost::parse(host, namespace));
        Self {
            gateway: format!("{namespace}/{}", internal_name(cx, owner, &listener.name)).into(),
            section: listener.name.as_str().into(),
            port: listener.port,
            protocol: listener.protocol.as_str().into(),
            hostname: listener.hostname.clone().unwrap_or_default(),
            hosts: hosts.collect(),
            kinds: kinds(listener),
            is_served: outcome(cx, owner, listener).server.is_some(),
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

/// Returns the outcome for a listener: the server, or the reason for none.
pub(super) fn outcome(cx: &Cx<'_>, owner: &ListenerOwner, listener: &Listener) -> Outcome {
    let conflict = conflicts::of(cx, owner, listener);
    match served(cx, owner, listener) {
        Ok((server, fault)) => {
            Outcome { server: Some(server).filter(|_| conflict.is_none()), fault, conflict }
        }
        Err(fault) => Outcome { server: None, fault: Some(fault), conflict },
    }
}

/// The server of a listener that is in no conflict, and what is wrong with it all the same.
fn served(cx: &Cx<'_>, owner: &ListenerOwner, listener: &Listener) -> Result<(Server, Option<Fault>), Fault> {
    let unsupported = |message| Fault { condition: ACCEPTED, reason: "UnsupportedProtocol", message };
    let protocol = listener.protocol.as_str();
    if listener.port == 0 {
        return Err(unsupported(format!("protocol {protocol} has no default port")));
    }
    let (tls, fault) = match (protocol, &listener.tls) {
        ("HTTP" | "HTTPS" | "TLS" | "TCP", Some(settings)) => {
            let (tls, fault) = listener_tls::settings(cx, owner, listener, settings)?;
            (Some(tls), fault)
        }
        ("HTTP" | "TCP", None) => (None, None),
        ("HTTPS" | "TLS", None) => return Err(listener_tls::absent(protocol)),
        (strange, _) => {
            return Err(unsupported(format!("protocol {strange:?} is none of HTTP, HTTPS, TLS and TCP")));
        }
    };
    Ok((server(cx, owner, listener, tls), fault))
}

fn server(cx: &Cx<'_>, owner: &ListenerOwner, listener: &Listener, tls: Option<ServerTlsSettings>) -> Server {
    Server {
        port: Some(Port {
            number: listener.port.into(),
            protocol: listener.protocol.clone(),
            name: "default".to_owned(),
            ..Port::default()
        }),
        hosts: hosts(cx, owner.namespace(), listener),
        tls,
        ..Server::default()
    }
}

/// Returns the servers of all listeners of a Gateway and its ListenerSets, with the owner and the name of
/// each listener.
pub(super) fn servers<'o>(
    cx: &Cx<'_>,
    owners: &'o [ListenerOwner],
) -> Vec<(&'o ListenerOwner, String, Server)> {
    let listeners = owners.iter().flat_map(|owner| owner.listeners().map(move |one| (owner, one)));
    let outcomes: Vec<_> = listeners.map(|(owner, one)| (owner, outcome(cx, owner, &one), one)).collect();
    let mut secured = SecuredHosts::default();
    for (_, outcome, listener) in &outcomes {
        secured.add(listener, outcome);
    }
    let server = |(owner, outcome, listener): (&'o ListenerOwner, Outcome, Cow<'_, Listener>)| {
        let closed = || secured.would_take(&listener, &outcome).then(|| refusing(cx, owner, &listener));
        let server = outcome.server.clone().or_else(closed)?;
        Some((owner, listener.name.clone(), server))
    };
    outcomes.into_iter().filter_map(server).collect()
}

/// Returns a server that refuses connections, in place of a TLS listener that is not served: otherwise a
/// listener for more hosts would get them, and perhaps demand less of clients.
fn refusing(cx: &Cx<'_>, owner: &ListenerOwner, listener: &Listener) -> Server {
    Server { closed: true, ..server(cx, owner, listener, Some(ServerTlsSettings::default())) }
}

/// Hosts of the TLS listeners of a Gateway and its ListenerSets, by port.
#[derive(Default)]
struct SecuredHosts {
    served: BTreeMap<u16, HostIndex>,
    /// Hosts of listeners without conflict, which may not be served.
    accepted: BTreeSet<(u16, Hostname)>,
}

impl SecuredHosts {
    fn add(&mut self, listener: &Listener, outcome: &Outcome) {
        let Some(host) = secured_host(listener) else { return };
        if outcome.server.is_some() {
            self.served.entry(listener.port).or_default().add(&host, 0);
        }
        if outcome.conflict.is_none() {
            self.accepted.insert((listener.port, host));
        }
    }

    /// Returns true if connections to a TLS listener that is not served would go to one for more hosts.
    fn would_take(&self, listener: &Listener, outcome: &Outcome) -> bool {
        let Some(host) = secured_host(listener) else { return false };
        let has_other = outcome.conflict.is_some() && self.accepted.contains(&(listener.port, host.clone()));
        let wider = |served: &HostIndex| served.above(&host).any(|(wide, _)| *wide != host);
        !has_other && self.served.get(&listener.port).is_some_and(wider)
    }
}

/// The host of a TLS listener.
fn secured_host(listener: &Listener) -> Option<Hostname> {
    let written = listener.hostname.as_deref().filter(|host| !host.is_empty());
    let is_tls = matches!(listener.protocol.as_str(), "HTTPS" | "TLS");
    Hostname::parse(written.unwrap_or("*")).ok().filter(|_| is_tls)
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
        // Validation refuses an absent selector. Any that arrives nevertheless matches no namespace.
        (FromNamespaces::None, _) | (FromNamespaces::Selector, None) => Vec::new(),
        (FromNamespaces::Selector, Some(selector)) => {
            let known = known_namespaces(cx).into_iter();
            known
                .filter(|name| selector.matches(&labels_of_namespace(cx, name)))
                .map(|name| name.to_string())
                .collect()
        }
    }
}

/// Returns all namespaces that have an object, or routes.
fn known_namespaces(cx: &Cx<'_>) -> BTreeSet<Namespace> {
    let objects = cx.objects::<NamespaceObject>().map(|object| Namespace::from(object.name()));
    let routes = names_of::<HttpRoute>(cx)
        .chain(names_of::<GrpcRoute>(cx))
        .chain(names_of::<TcpRoute>(cx))
        .chain(names_of::<TlsRoute>(cx));
    objects.chain(routes).collect()
}

fn names_of<'a, T: KindSpec>(cx: &'a Cx<'_>) -> impl Iterator<Item = Namespace> + 'a {
    cx.objects::<T>().map(|object| object.namespace().clone())
}
