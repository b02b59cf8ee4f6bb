//! Parents that a route attaches to: listeners of Gateways and ListenerSets, or Services.

use super::backends::Problem;
use super::gateways::ParentsOf;
use super::listeners::Parent;
use crate::engine::Cx;
use crate::routing::ir::MESH;
use crate::routing::redirect_loop::Arrival;
use pilotfish_config::gateway_api::{GROUP, ParentReference};
use pilotfish_config::networking::ServiceEntry;
use pilotfish_config::status::CONTROLLERS;
use pilotfish_model::{Hostname, Kind, Namespace, ObjectKey, ServiceKey};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The reason for a parent, or a part of it, that is not there.
const NO_PARENT: &str = "NoMatchingParent";
/// The reason for listeners that take other routes only.
const NOT_ALLOWED: &str = "NotAllowedByListeners";

/// One thing that a route is attached to.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Attachment {
    /// The gateway as `namespace/name`, or `mesh`.
    pub(super) gateway: Arc<str>,
    /// The Service, for routes of sidecars.
    pub(super) service: Option<Attached>,
    /// The listener's host as written; empty for all.
    hostname: String,
    /// The hosts of other listeners with the same port and protocol.
    others: Vec<String>,
    /// The listener's name; empty for Services.
    pub(super) listener: Arc<str>,
    /// Addresses of its requests: of the listener, or the ports of the Service that the route is for.
    pub(super) arrivals: Vec<Arrival>,
    /// True if the listener becomes a server.
    pub(super) is_served: bool,
}

/// The outcome of one parent that a route names.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Binding {
    /// The parent, as the route names it.
    pub(super) parent: ParentReference,
    /// The Gateway of the parent; `None` for Services.
    pub(super) gateway: Option<ObjectKey>,
    /// The controller of the parent's class.
    pub(super) controller: &'static str,
    /// Attachments of the route at that parent, at least one.
    pub(super) result: Result<Vec<Attachment>, Problem>,
}

/// A Service that a route is attached to.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Attached {
    /// Its hosts: several only for a ServiceEntry.
    pub(super) hosts: Vec<String>,
    pub(super) namespace: Namespace,
    /// The one port that the route is for; `None` for all.
    pub(super) port: Option<u16>,
}

impl Attachment {
    /// True if this listener serves a host of the route. A listener with a closer match serves it alone.
    pub(super) fn serves(&self, host: &str) -> bool {
        let ours = self.hostname.as_str();
        if !ours.is_empty() && !ours.starts_with('*') {
            return true;
        }
        let Ok(host) = Hostname::parse(host) else { return false };
        if let Ok(ours) = Hostname::parse(ours)
            && !host.matches(&ours)
        {
            return false;
        }
        !self.others.iter().any(|other| {
            let fits = Hostname::parse(other).is_ok_and(|other| host.is_subset_of(&other));
            ours.len() <= other.len() && fits
        })
    }
}

impl Attachment {
    /// The parts of hosts that the listener's host has too.
    pub(super) fn cut(&self, hosts: Vec<String>) -> Vec<String> {
        let Ok(ours) = Hostname::parse(&self.hostname) else { return hosts };
        let mut out: Vec<String> = Vec::new();
        for host in hosts {
            let Ok(theirs) = Hostname::parse(&host) else { continue };
            let shared = match (theirs.is_subset_of(&ours), ours.is_subset_of(&theirs)) {
                (true, _) => host,
                (false, true) => self.hostname.clone(),
                (false, false) => continue,
            };
            if !out.contains(&shared) {
                out.push(shared);
            }
        }
        out
    }
}

/// Returns the attachments of a route of a kind, in order of gateways. Gateways that do not accept it or are
/// not served are omitted.
pub(super) fn of(
    cx: &Cx<'_>,
    kind: Kind,
    own: &Namespace,
    parents: &[ParentReference],
    hostnames: &[String],
) -> Vec<Attachment> {
    let bindings = bindings(cx, kind, own, parents, hostnames);
    let attached = bindings.into_iter().filter_map(|binding| binding.result.ok()).flatten();
    let mut out: Vec<Attachment> = attached.filter(|attachment| attachment.is_served).collect();
    out.sort_by(|a, b| a.gateway.cmp(&b.gateway));
    out.dedup();
    out
}

/// The outcome of each parent of a route. Parents of other controllers, and Gateways that are not there, are
/// left out.
pub(super) fn bindings(
    cx: &Cx<'_>,
    kind: Kind,
    own: &Namespace,
    parents: &[ParentReference],
    hostnames: &[String],
) -> Vec<Binding> {
    let mut out: Vec<Binding> = Vec::new();
    for parent in parents {
        let namespace = parent.namespace.as_deref().map_or_else(|| own.clone(), Namespace::from);
        let mut gateway = None;
        let (controller, result) = match (parent.group.as_str(), parent.kind.as_str()) {
            (GROUP, "Gateway" | "ListenerSet") => {
                let is_set = parent.kind == "ListenerSet";
                let of = if is_set { Kind::ListenerSet } else { Kind::KubernetesGateway };
                let found = cx.get(&ParentsOf(ObjectKey::new(of, namespace, parent.name.as_str())));
                let Some((at, controller)) = found.gateway.clone() else { continue };
                gateway = Some(at);
                (controller, to_listeners(&found.listeners, parent, kind, own, hostnames))
            }
            ("" | "core", "Service") => (CONTROLLERS[0], to_service(cx, parent, namespace)),
            ("networking.istio.io", "ServiceEntry") => (CONTROLLERS[0], to_entry(cx, parent, namespace)),
            _ => continue,
        };
        out.push(Binding { parent: parent.clone(), gateway, controller, result });
    }
    out
}

/// The listeners of a Gateway or ListenerSet that accept a route; what is wrong when none does.
fn to_listeners(
    listeners: &[Parent],
    parent: &ParentReference,
    kind: Kind,
    own: &Namespace,
    hostnames: &[String],
) -> Result<Vec<Attachment>, Problem> {
    let is_meant = |listener: &&Parent| {
        parent.port.is_none_or(|port| port == listener.port)
            && parent.section_name.as_deref().is_none_or(|section| section == &*listener.section)
    };
    let mut attached = Vec::new();
    let mut refusals = Vec::new();
    for listener in listeners.iter().filter(is_meant) {
        match refusal(listener, kind, own, hostnames) {
            None => attached.push(to_listener(listener, listeners)),
            Some(problem) => refusals.push(problem),
        }
    }
    if !attached.is_empty() {
        return Ok(attached);
    }
    // That a route may not attach is a better reason than that its host does not fit.
    refusals.sort_by_key(|problem| problem.reason != NOT_ALLOWED);
    Err(refusals.into_iter().next().unwrap_or_else(|| {
        let section = parent.section_name.iter().map(|name| format!(" called {name:?}"));
        let port = parent.port.iter().map(|port| format!(" on port {port}"));
        let which: String = section.chain(port).collect();
        Problem::new(NO_PARENT, format!("{} {} has no listener{which}", parent.kind, parent.name))
    }))
}

/// Reason for which a listener does not accept a route; `None` if it does.
fn refusal(listener: &Parent, kind: Kind, own: &Namespace, hostnames: &[String]) -> Option<Problem> {
    let section = &listener.section;
    if !listener.kinds.contains(&kind) {
        return Some(Problem::new(NOT_ALLOWED, format!("listener {section} takes no {kind}")));
    }
    if !listener.hosts.iter().any(|host| host.is_for(own)) {
        let message = format!("listener {section} takes no routes of namespace {own}");
        return Some(Problem::new(NOT_ALLOWED, message));
    }
    let fits_host = |host: &str| {
        let host = Hostname::parse(host);
        host.is_ok_and(|host| listener.hosts.iter().any(|h| h.is_for(own) && h.host.matches(&host)))
    };
    let fits =
        if hostnames.is_empty() { fits_host("*") } else { hostnames.iter().any(|host| fits_host(host)) };
    (!fits).then(|| {
        let message = format!(
            "listener {section} is for {:?}, which none of the route's hosts fits",
            listener.hostname
        );
        Problem::new("NoMatchingListenerHostname", message)
    })
}

fn to_listener(listener: &Parent, all: &[Parent]) -> Attachment {
    let beside = |other: &&Parent| {
        other.is_served
            && other.section != listener.section
            && other.port == listener.port
            && other.protocol == listener.protocol
            && other.hostname != listener.hostname
    };
    Attachment {
        gateway: listener.gateway.clone(),
        service: None,
        hostname: listener.hostname.clone(),
        others: all.iter().filter(beside).map(|other| other.hostname.clone()).collect(),
        listener: listener.section.clone(),
        arrivals: vec![Arrival { port: listener.port.into(), tls: &*listener.protocol != "HTTP" }],
        is_served: listener.is_served,
    }
}

fn to_service(
    cx: &Cx<'_>,
    parent: &ParentReference,
    namespace: Namespace,
) -> Result<Vec<Attachment>, Problem> {
    let host = cx.domain().service(&parent.name, &namespace);
    let services = Hostname::parse(&host)
        .ok()
        .and_then(|hostname| cx.services_of(&ServiceKey { hostname, namespace: namespace.clone() }));
    let Some(services) = services else {
        return Err(Problem::new(NO_PARENT, format!("there is no Service {namespace}/{}", parent.name)));
    };
    let ports: BTreeSet<u32> =
        services.iter().flat_map(|service| service.tcp_ports()).map(|port| port.number).collect();
    Ok(of_mesh(Attached { hosts: vec![host], namespace, port: parent.port }, ports))
}

fn to_entry(cx: &Cx<'_>, parent: &ParentReference, namespace: Namespace) -> Result<Vec<Attachment>, Problem> {
    let Some(entry) = cx.object::<ServiceEntry>(&namespace, &parent.name) else {
        let message = format!("there is no ServiceEntry {namespace}/{}", parent.name);
        return Err(Problem::new(NO_PARENT, message));
    };
    let ports = entry.ports.iter().map(|port| port.number).collect();
    Ok(of_mesh(Attached { hosts: entry.hosts.clone(), namespace, port: parent.port }, ports))
}

/// Returns the attachment to a service with these ports.
fn of_mesh(service: Attached, ports: BTreeSet<u32>) -> Vec<Attachment> {
    let is_meant = |port: &u32| service.port.is_none_or(|meant| u32::from(meant) == *port);
    vec![Attachment {
        gateway: MESH.into(),
        arrivals: ports.into_iter().filter(is_meant).map(|port| Arrival { port, tls: false }).collect(),
        service: Some(service),
        hostname: String::new(),
        others: Vec::new(),
        listener: "".into(),
        is_served: true,
    }]
}

#[cfg(test)]
mod tests {
    use super::Attachment;

    #[test]
    fn a_better_fitting_listener_has_a_host_for_itself() {
        let listener = |hostname: &str, others: &[&str]| Attachment {
            gateway: "a/b".into(),
            service: None,
            hostname: hostname.to_owned(),
            others: others.iter().map(|other| (*other).to_owned()).collect(),
            listener: "".into(),
            arrivals: Vec::new(),
            is_served: true,
        };
        let wide = listener("", &["*.example.com", "a.example.com"]);
        assert!(!wide.serves("b.example.com") && !wide.serves("a.example.com") && wide.serves("c.org"));
        let middle = listener("*.example.com", &["", "a.example.com"]);
        assert!(middle.serves("b.example.com") && !middle.serves("a.example.com") && !middle.serves("c.org"));
        assert!(listener("a.example.com", &["", "*.example.com"]).serves("a.example.com"));
    }
}
