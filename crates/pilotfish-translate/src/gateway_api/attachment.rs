//! What a route attaches to: listeners of Gateways, or Services.

use super::gateways::ParentsOf;
use super::listeners::Parent;
use crate::Cx;
use crate::virtual_service::MESH;
use pilotfish_config::gateway_api::{GROUP, ParentReference};
use pilotfish_config::networking::ServiceEntry;
use pilotfish_model::{Hostname, Kind, Namespace, ServiceKey};
use std::sync::Arc;

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
}

/// A Service that a route is attached to.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Attached {
    /// Its hosts: several only for a ServiceEntry.
    pub(super) hosts: Vec<String>,
    /// Its namespace.
    pub(super) namespace: Namespace,
    /// The one port that the route is for; `None` for all.
    pub(super) port: Option<u16>,
}

impl Attachment {
    /// Whether this listener serves a host of the route: a listener that fits better has it for itself.
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

/// What a route of a kind is attached to, in order of gateways. What does not accept it is left out.
pub(super) fn of(
    cx: &Cx<'_>,
    kind: Kind,
    own: &Namespace,
    parents: &[ParentReference],
    hostnames: &[String],
) -> Vec<Attachment> {
    let mut out: Vec<Attachment> = Vec::new();
    for parent in parents {
        let namespace = parent.namespace.as_deref().map_or_else(|| own.clone(), Namespace::from);
        match (parent.group.as_str(), parent.kind.as_str()) {
            (GROUP, "Gateway") => {
                let query = ParentsOf { namespace, name: parent.name.as_str().into() };
                let listeners = cx.get(&query);
                let accepting =
                    listeners.iter().filter(|listener| accepts(listener, parent, kind, own, hostnames));
                out.extend(accepting.map(|listener| to_listener(listener, &listeners)));
            }
            ("" | "core", "Service") => out.extend(to_service(cx, parent, namespace)),
            ("networking.istio.io", "ServiceEntry") => out.extend(to_entry(cx, parent, namespace)),
            _ => {}
        }
    }
    out.sort_by(|a, b| a.gateway.cmp(&b.gateway));
    out.dedup();
    out
}

fn accepts(
    listener: &Parent,
    parent: &ParentReference,
    kind: Kind,
    own: &Namespace,
    hostnames: &[String],
) -> bool {
    let fits_host = |host: &str| {
        let host = Hostname::parse(host);
        host.is_ok_and(|host| listener.hosts.iter().any(|h| h.is_for(own) && h.host.matches(&host)))
    };
    parent.port.is_none_or(|port| port == listener.port)
        && parent.section_name.as_deref().is_none_or(|section| section == &*listener.section)
        && listener.kinds.contains(&kind)
        && if hostnames.is_empty() { fits_host("*") } else { hostnames.iter().any(|host| fits_host(host)) }
}

fn to_listener(listener: &Parent, all: &[Parent]) -> Attachment {
    let beside = |other: &&Parent| {
        other.section != listener.section
            && other.port == listener.port
            && other.protocol == listener.protocol
            && other.hostname != listener.hostname
    };
    Attachment {
        gateway: listener.gateway.clone(),
        service: None,
        hostname: listener.hostname.clone(),
        others: all.iter().filter(beside).map(|other| other.hostname.clone()).collect(),
    }
}

fn to_service(cx: &Cx<'_>, parent: &ParentReference, namespace: Namespace) -> Option<Attachment> {
    let host = cx.domain().service(&parent.name, &namespace);
    let key = ServiceKey { hostname: Hostname::parse(&host).ok()?, namespace: namespace.clone() };
    cx.services_of(&key)?;
    Some(of_mesh(Attached { hosts: vec![host], namespace, port: parent.port }))
}

fn to_entry(cx: &Cx<'_>, parent: &ParentReference, namespace: Namespace) -> Option<Attachment> {
    let entry = cx.object::<ServiceEntry>(&namespace, &parent.name)?;
    Some(of_mesh(Attached { hosts: entry.hosts.clone(), namespace, port: parent.port }))
}

fn of_mesh(service: Attached) -> Attachment {
    Attachment { gateway: MESH.into(), service: Some(service), hostname: String::new(), others: Vec::new() }
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
        };
        let wide = listener("", &["*.example.com", "a.example.com"]);
        assert!(!wide.serves("b.example.com") && !wide.serves("a.example.com") && wide.serves("c.org"));
        let middle = listener("*.example.com", &["", "a.example.com"]);
        assert!(middle.serves("b.example.com") && !middle.serves("a.example.com") && !middle.serves("c.org"));
        assert!(listener("a.example.com", &["", "*.example.com"]).serves("a.example.com"));
    }
}
