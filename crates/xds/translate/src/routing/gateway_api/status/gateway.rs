//! The status of a Gateway or ListenerSet, and of its listeners.

use super::StatusView;
use super::addresses::{Reach, ReachOf};
use super::routes::AttachedRoutes;
use crate::engine::Cx;
use crate::routing::gateway_api::gateways::{self, internal_name};
use crate::routing::gateway_api::infrastructure::parameters;
use crate::routing::gateway_api::listeners::{self, Fault};
use crate::routing::gateway_api::owners::{ListenerOwner, accepts_sets_of, owner_of_set, owners_of};
use crate::routing::gateway_api::{ACCEPTED, RESOLVED_REFS};
use pilotfish_config::gateway_api::{GROUP, Gateway, Listener, RouteGroupKind};
use pilotfish_config::status::{Condition, ListenerStatus, Status};
use pilotfish_model::{ObjectKey, Typed};
use std::borrow::Cow;

const PROGRAMMED: &str = "Programmed";
const CONFLICTED: &str = "Conflicted";

/// Returns `None` for a Gateway of another controller's class.
pub(super) fn status(cx: &Cx<'_>, key: &ObjectKey, of: &StatusView) -> Option<Status> {
    let object = cx.object::<Gateway>(&key.namespace, &key.name)?;
    gateways::controller(cx, &object).filter(|controller| of.includes(controller))?;
    let reach = cx.get(&ReachOf { owner: key.clone(), cluster: of.cluster.clone() });
    let accepted = accepted(cx, &object, of);
    let programmed = programmed(&accepted, &reach);
    let allows_sets = object.spec.allowed_listeners.is_some();
    let attached_sets = allows_sets.then(|| {
        let sets = owners_of(cx, &object).into_iter().filter(|owner| owner.set.is_some() && accepted.status);
        let attached = sets.filter(|owner| has_usable_listener(cx, owner)).count();
        u32::try_from(attached).unwrap_or(u32::MAX)
    });
    Some(Status::Gateway {
        // Existing addresses are kept while a service is temporarily missing.
        addresses: programmed.status.then(|| reach.addresses.clone()),
        conditions: vec![accepted, programmed],
        listeners: listeners(cx, &object.into()),
        attached_sets,
    })
}

/// Returns `None` for a ListenerSet without a Gateway, or of a Gateway of another controller's class.
pub(super) fn status_of_set(cx: &Cx<'_>, key: &ObjectKey, of: &StatusView) -> Option<Status> {
    let owner = owner_of_set(cx, key)?;
    let gateway = &owner.gateway;
    gateways::controller(cx, gateway).filter(|controller| of.includes(controller))?;
    let name = gateway.key();
    if !accepts_sets_of(cx, gateway, &key.namespace) {
        let message = format!("{name} accepts no ListenerSets of namespace {}", key.namespace);
        let refused = |condition| Condition::bad(condition, "NotAllowed", message.clone());
        let conditions = vec![refused(ACCEPTED), refused(PROGRAMMED)];
        return Some(Status::ListenerSet { conditions, listeners: Vec::new() });
    }
    let parent = accepted(cx, gateway, of);
    let accepted = if !parent.status {
        Condition::bad(ACCEPTED, "ParentNotAccepted", format!("{name}: {}", parent.message))
    } else if !has_usable_listener(cx, &owner) {
        Condition::bad(ACCEPTED, "ListenersNotValid", "none of the listeners can be served")
    } else {
        Condition::good(ACCEPTED, "Accepted", format!("the listeners are served at {name}"))
    };
    let reach = cx.get(&ReachOf { owner: key.clone(), cluster: of.cluster.clone() });
    let conditions = vec![accepted.clone(), programmed(&accepted, &reach)];
    Some(Status::ListenerSet { conditions, listeners: listeners(cx, &owner) })
}

/// True if at least one listener is served.
fn has_usable_listener(cx: &Cx<'_>, owner: &ListenerOwner) -> bool {
    owner.listeners().any(|listener| listeners::outcome(cx, owner, &listener).server.is_some())
}

/// Returns the `Programmed` condition: true if a listener is served, and the services have the ports,
/// endpoints for each, and their external addresses.
fn programmed(accepted: &Condition, reach: &Reach) -> Condition {
    if !accepted.status {
        return Condition::bad(PROGRAMMED, accepted.reason, accepted.message.clone());
    }
    let serving = format!("served by {}", reach.serving.join(", "));
    let missing = reach.missing.join("; ");
    let message = match (missing.is_empty(), reach.serving.is_empty()) {
        (true, false) => return Condition::good(PROGRAMMED, PROGRAMMED, serving),
        (true, true) => "no listener is served".to_owned(),
        (false, true) => missing,
        (false, false) => format!("{missing}; {serving}"),
    };
    let reason = if reach.is_pending { "AddressNotAssigned" } else { "AddressNotUsable" };
    Condition::bad(PROGRAMMED, reason, message)
}

fn listeners(cx: &Cx<'_>, owner: &ListenerOwner) -> Vec<ListenerStatus> {
    let attached = cx.get(&AttachedRoutes);
    let status = |listener: Cow<'_, Listener>| {
        let name = internal_name(cx, owner, &listener.name);
        let gateway = format!("{}/{name}", owner.namespace());
        ListenerStatus {
            name: listener.name.clone(),
            attached_routes: attached.get(gateway.as_str()).copied().unwrap_or(0),
            supported_kinds: kinds(&listener),
            conditions: conditions(cx, owner, &listener),
        }
    };
    owner.listeners().map(status).collect()
}

/// Returns the `Accepted` condition: true if the types of the Gateway's addresses are supported, which are
/// host names of services or a single IP address, and the parameters of its Deployment can be used.
fn accepted(cx: &Cx<'_>, object: &Typed<Gateway>, of: &StatusView) -> Condition {
    let is_deployed = of.deploys && gateways::is_managed(object);
    if let Some(why) = is_deployed.then(|| parameters(cx, object)).and_then(Result::err) {
        return Condition::bad(ACCEPTED, "InvalidParameters", why);
    }
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

fn conditions(cx: &Cx<'_>, owner: &ListenerOwner, listener: &Listener) -> Vec<Condition> {
    let outcome = listeners::outcome(cx, owner, listener);
    let fault = outcome.fault.or_else(|| strange_kinds(listener));
    let fault_of = |condition: &str| fault.as_ref().filter(|fault| fault.condition == condition);
    let of = |condition: &'static str, reason, message: &str| match fault_of(condition) {
        Some(fault) => Condition::bad(condition, fault.reason, fault.message.clone()),
        None => Condition::good(condition, reason, message),
    };
    vec![
        of(ACCEPTED, "Accepted", "the listener can be served"),
        match outcome.conflict {
            // This condition has negative polarity: it is true if there is a conflict.
            Some(conflict) => Condition::good(CONFLICTED, conflict.reason(), conflict.message()),
            None => Condition::bad(CONFLICTED, "NoConflicts", "no other listener conflicts with it"),
        },
        if outcome.server.is_some() {
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
