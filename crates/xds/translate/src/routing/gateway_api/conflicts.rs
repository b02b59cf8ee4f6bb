//! Listeners of a Gateway and its ListenerSets that conflict with earlier ones, which are left out.

use super::gateways::internal_name;
use super::owners::{ListenerOwner, owners_of};
use crate::engine::{Cx, Query};
use pilotfish_config::gateway_api::{Gateway, Listener};
use pilotfish_model::{Namespace, ObjectKey};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Conflict of a listener with an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conflict {
    Protocol,
    Hostname,
}

impl Conflict {
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Protocol => "ProtocolConflict",
            Self::Hostname => "HostnameConflict",
        }
    }

    pub(super) fn message(self) -> &'static str {
        match self {
            Self::Protocol => "another listener has the port for a protocol that does not go with this one",
            Self::Hostname => "another listener has the same port and host",
        }
    }
}

/// Returns the conflict of a listener, if it has one.
pub(super) fn of(cx: &Cx<'_>, owner: &ListenerOwner, listener: &Listener) -> Option<Conflict> {
    let conflicts = cx.get(&ConflictsOf(owner.gateway.key().clone()));
    conflicts.get(owner.key())?.get(listener.name.as_str()).copied()
}

/// The conflicts among the listeners of a Gateway and the ListenerSets that it accepts, by owner and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ConflictsOf(ObjectKey);

impl Query for ConflictsOf {
    type Output = BTreeMap<ObjectKey, BTreeMap<Arc<str>, Conflict>>;

    /// The Gateway's listeners come first, then those of the sets in order of precedence. Only listeners
    /// without a conflict make others conflict.
    fn compute(&self, cx: &Cx<'_>) -> Self::Output {
        let Some(gateway) = cx.object::<Gateway>(&self.0.namespace, &self.0.name) else {
            return BTreeMap::new();
        };
        let owners = owners_of(cx, &gateway);
        let mut ports: BTreeMap<u16, Port> = BTreeMap::new();
        let mut out: Self::Output = BTreeMap::new();
        for owner in &owners {
            for listener in owner.listeners() {
                if let Some(conflict) = ports.entry(listener.port).or_default().add(cx, owner, &listener) {
                    add(&mut out, owner.key(), &listener.name, conflict);
                }
            }
        }
        for (owner, name) in ports.values().flat_map(Port::mixed) {
            add(&mut out, owner, name, Conflict::Protocol);
        }
        out
    }
}

fn add(
    out: &mut BTreeMap<ObjectKey, BTreeMap<Arc<str>, Conflict>>,
    owner: &ObjectKey,
    listener: &str,
    conflict: Conflict,
) {
    out.entry(owner.clone()).or_default().insert(listener.into(), conflict);
}

/// Listeners of one port that are in no conflict.
#[derive(Default)]
struct Port {
    /// Protocols without hosts, which have the port for themselves: TCP and UDP.
    has_stream: bool,
    /// Protocols by host, of HTTP, HTTPS and TLS.
    hosts: BTreeMap<String, String>,
    /// Further protocols, which are not served.
    others: BTreeSet<String>,
    /// The listeners with hosts.
    listeners: BTreeSet<Place>,
}

/// A listener in the order in which gateways are merged.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    created: i64,
    gateway: String,
    namespace: Namespace,
    is_plain: bool,
    owner: ObjectKey,
    name: String,
}

impl Port {
    /// Adds a listener, or returns its conflict with one that is there.
    fn add(&mut self, cx: &Cx<'_>, owner: &ListenerOwner, listener: &Listener) -> Option<Conflict> {
        let protocol = &listener.protocol;
        match protocol.as_str() {
            "TCP" | "UDP" => {
                if self.has_stream || !self.hosts.is_empty() {
                    return Some(Conflict::Protocol);
                }
                self.has_stream = true;
            }
            "HTTP" | "HTTPS" | "TLS" => {
                if self.has_stream {
                    return Some(Conflict::Protocol);
                }
                let host = listener.hostname.as_deref().filter(|host| !host.is_empty()).unwrap_or("*");
                if let Some(other) = self.hosts.get(host) {
                    return Some(if other == protocol { Conflict::Hostname } else { Conflict::Protocol });
                }
                self.hosts.insert(host.to_owned(), protocol.clone());
                self.listeners.insert(Place::of(cx, owner, listener));
            }
            _ if !self.others.insert(protocol.clone()) => return Some(Conflict::Hostname),
            _ => {}
        }
        None
    }

    /// The TLS listeners of a port on which a plain one comes first, so that proxies take no TLS there.
    fn mixed(&self) -> impl Iterator<Item = (&ObjectKey, &str)> {
        let is_plain = self.listeners.first().is_some_and(|first| first.is_plain);
        let others = self.listeners.iter().filter(move |place| is_plain && !place.is_plain);
        others.map(|place| (&place.owner, place.name.as_str()))
    }
}

impl Place {
    fn of(cx: &Cx<'_>, owner: &ListenerOwner, listener: &Listener) -> Self {
        let meta = owner.meta();
        Self {
            created: meta.created,
            gateway: internal_name(cx, owner, &listener.name),
            namespace: meta.key.namespace.clone(),
            is_plain: listener.protocol == "HTTP",
            owner: meta.key.clone(),
            name: listener.name.clone(),
        }
    }
}
