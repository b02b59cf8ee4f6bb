//! The status of a Gateway and of its listeners.

use super::StatusView;
use super::addresses::ReachOf;
use super::routes::AttachedRoutes;
use crate::engine::Cx;
use crate::routing::gateway_api::gateways::{self, internal_name};
use crate::routing::gateway_api::listeners::{self, Fault};
use crate::routing::gateway_api::{ACCEPTED, RESOLVED_REFS};
use pilotfish_config::gateway_api::{GROUP, Gateway, Listener, RouteGroupKind};
use pilotfish_config::status::{Condition, ListenerStatus, Status};
use pilotfish_model::{ObjectKey, Typed};
use std::collections::BTreeMap;

const PROGRAMMED: &str = "Programmed";
const CONFLICTED: &str = "Conflicted";

/// Returns `None` for a Gateway of another controller's class.
pub(super) fn status(cx: &Cx<'_>, key: &ObjectKey, of: &StatusView) -> Option<Status> {
    let object = cx.object::<Gateway>(&key.namespace, &key.name)?;
    gateways::controller(cx, &object).filter(|controller| of.includes(controller))?;
    let reach = cx.get(&ReachOf {
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        cluster: of.cluster.clone(),
    });
    let accepted = accepted(&object);
    let programmed = if !accepted.status {
        Condition::bad(PROGRAMMED, accepted.reason, "no address can be used")
    } else if !reach.serving.is_empty() {
        Condition::good(PROGRAMMED, PROGRAMMED, format!("served by {}", reach.serving.join(", ")))
    } else {
        let reason = if reach.is_pending { "AddressNotAssigned" } else { "AddressNotUsable" };
        Condition::bad(PROGRAMMED, reason, reach.missing.join("; "))
    };
    let conflicts = conflicts(&object);
    let attached = cx.get(&AttachedRoutes);
    let listeners = object.spec.listeners.iter().map(|listener| {
        let gateway = format!("{}/{}", key.namespace, internal_name(&key.name, &listener.name));
        ListenerStatus {
            name: listener.name.clone(),
            attached_routes: attached.get(gateway.as_str()).copied().unwrap_or(0),
            supported_kinds: kinds(listener),
            conditions: conditions(cx, &object, listener, conflicts.get(listener.name.as_str()).copied()),
        }
    });
    Some(Status::Gateway {
        // Existing addresses are kept while a service is temporarily missing.
        addresses: programmed.status.then(|| reach.addresses.clone()),
        conditions: vec![accepted, programmed],
        listeners: listeners.collect(),
    })
}

/// Returns the `Accepted` condition: true if the types of the Gateway's addresses are supported, which are
/// host names of services or a single IP address.
fn accepted(object: &Typed<Gateway>) -> Condition {
    let given = |kind: &str| kind == "IPAddress" && object.spec.addresses.len() == 1;
    let strange =
        object.spec.addresses.iter().find(|address| address.r#type != "Hostname" && !given(&address.r#type));
    match strange {
        None => Condition::good(ACCEPTED, "Accepted", "the Gateway is served"),
        Some(address) => {
            let message = format!(
                "address {:?} of type {:?} cannot be used, only Hostname",
                address.value, address.r#type
            );
            Condition::bad(ACCEPTED, "UnsupportedAddress", message)
        }
    }
}

fn conditions(
    cx: &Cx<'_>,
    object: &Typed<Gateway>,
    listener: &Listener,
    conflict: Option<Conflict>,
) -> Vec<Condition> {
    let outcome = listeners::outcome(cx, object, listener);
    let fault = outcome.fault.or_else(|| strange_kinds(listener));
    let fault_of = |condition: &str| fault.as_ref().filter(|fault| fault.condition == condition);
    let of = |condition: &'static str, reason, message: &str| match fault_of(condition) {
        Some(fault) => Condition::bad(condition, fault.reason, fault.message.clone()),
        None => Condition::good(condition, reason, message),
    };
    let is_served = outcome.server.is_some() && conflict.is_none();
    vec![
        of(ACCEPTED, "Accepted", "the listener can be served"),
        match conflict {
            // This condition has negative polarity: it is true if there is a conflict.
            Some(conflict) => Condition::good(CONFLICTED, conflict.reason(), conflict.message()),
            None => Condition::bad(CONFLICTED, "NoConflicts", "no other listener conflicts with it"),
        },
        if is_served {
            Condition::good(PROGRAMMED, PROGRAMMED, "proxies have the listener")
        } else {
            Condition::bad(PROGRAMMED, "Invalid", "proxies do not get the listener")
        },
        of(RESOLVED_REFS, RESOLVED_REFS, "everything that the listener names is there"),
    ]
}

/// Returns a fault for route kinds that the listener's protocol does not support. The supported ones are
/// served.
fn strange_kinds(listener: &Listener) -> Option<Fault> {
    let known = kinds(listener);
    let strange = listener.allowed_routes.kinds.iter().find(|kind| !known.contains(kind))?;
    let message =
        format!("a listener of protocol {} has no routes of kind {:?}", listener.protocol, strange.kind);
    Some(Fault { condition: RESOLVED_REFS, reason: "InvalidRouteKinds", message })
}

fn kinds(listener: &Listener) -> Vec<RouteGroupKind> {
    let kinds = listeners::kinds(listener).into_iter();
    kinds.map(|kind| RouteGroupKind { group: GROUP.to_owned(), kind: kind.name().to_owned() }).collect()
}

/// Conflict of a listener with an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Conflict {
    Protocol,
    Hostname,
}

impl Conflict {
    fn reason(self) -> &'static str {
        match self {
            Self::Protocol => "ProtocolConflict",
            Self::Hostname => "HostnameConflict",
        }
    }

    fn message(self) -> &'static str {
        match self {
            Self::Protocol => "another listener has the port for a protocol that does not go with this one",
            Self::Hostname => "another listener has the same port and host",
        }
    }
}

/// Group of protocols that can share a port: plain HTTP with plain HTTP, and TLS with TLS. Plain TCP does not
/// share.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layer {
    Http,
    Tls,
    Tcp,
}

fn layer(listener: &Listener) -> Layer {
    match listener.protocol.as_str() {
        "HTTP" => Layer::Http,
        _ if listener.tls.is_some() => Layer::Tls,
        _ => Layer::Tcp,
    }
}

/// Returns the listeners that conflict with others. The first by name has the port, as in merged gateways.
fn conflicts(object: &Gateway) -> BTreeMap<&str, Conflict> {
    let mut by_port: BTreeMap<u16, Vec<&Listener>> = BTreeMap::new();
    for listener in &object.spec.listeners {
        by_port.entry(listener.port).or_default().push(listener);
    }
    let mut out = BTreeMap::new();
    for listeners in by_port.values_mut() {
        listeners.sort_by_key(|listener| listener.name.as_str());
        let Some(first) = listeners.first().map(|first| layer(first)) else { continue };
        for (position, listener) in listeners.iter().enumerate().skip(1) {
            let before = listeners.iter().take(position);
            if layer(listener) != first {
                out.insert(listener.name.as_str(), Conflict::Protocol);
            } else if before.into_iter().any(|other| other.hostname == listener.hostname) {
                out.insert(listener.name.as_str(), Conflict::Hostname);
            }
        }
    }
    out
}
