//! What a policy is for: Services and ServiceEntries of its own namespace.

use crate::engine::Cx;
use crate::routing::gateway_api::backends::Problem;
use pilotfish_config::gateway_api::PolicyTargetReference;
use pilotfish_config::networking::ServiceEntry;
use pilotfish_model::{Hostname, Namespace, Resolution, ServiceKey};

/// The reason for a target, or a port of it, that is not there.
const NOT_FOUND: &str = "TargetNotFound";

/// Which object of the policy's namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TargetId {
    Service(String),
    ServiceEntry(String),
}

/// An object that policies may be for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Target {
    pub(super) id: TargetId,
    /// Its hosts, in full.
    pub(super) hosts: Vec<String>,
    /// Whether it is only another name for something else, where connections go by the rules for that.
    pub(super) is_alias: bool,
}

/// The target of a reference, and the number of the port that it names; `None` for all ports.
///
/// # Errors
/// When nothing is there, or no such port: then the policy makes no difference, as in istiod.
pub(super) fn resolve(
    cx: &Cx<'_>,
    namespace: &Namespace,
    reference: &PolicyTargetReference,
) -> Result<(Target, Option<u32>), Problem> {
    let (target, ports) = match (reference.group.as_str(), reference.kind.as_str()) {
        ("" | "core", "Service") => service(cx, namespace, &reference.name),
        ("networking.istio.io", "ServiceEntry") => service_entry(cx, namespace, &reference.name),
        (group, kind) => {
            let message = format!("targets of kind {kind:?} of group {group:?} are not known");
            return Err(Problem::new(NOT_FOUND, message));
        }
    }
    .ok_or_else(|| {
        Problem::new(NOT_FOUND, format!("there is no {} {namespace}/{}", reference.kind, reference.name))
    })?;
    let Some(section) = reference.section() else { return Ok((target, None)) };
    match ports.into_iter().find(|(name, _)| name == section) {
        Some((_, number)) => Ok((target, Some(number))),
        None => {
            let message =
                format!("{} {namespace}/{} has no port named {section:?}", reference.kind, reference.name);
            Err(Problem::new(NOT_FOUND, message))
        }
    }
}

/// Names and numbers of ports.
type Ports = Vec<(String, u32)>;

/// A Service of Kubernetes, in whichever cluster.
fn service(cx: &Cx<'_>, namespace: &Namespace, name: &str) -> Option<(Target, Ports)> {
    let host = cx.domain().service(name, namespace);
    let key = ServiceKey { hostname: Hostname::parse(&host).ok()?, namespace: namespace.clone() };
    let services = cx.services_of(&key)?;
    let service = services.iter().find(|service| service.kubernetes.is_some())?;
    let ports = service.ports.iter().map(|port| (port.name.to_string(), port.number)).collect();
    let is_alias = service.resolution == Resolution::Alias;
    Some((Target { id: TargetId::Service(name.to_owned()), hosts: vec![host], is_alias }, ports))
}

fn service_entry(cx: &Cx<'_>, namespace: &Namespace, name: &str) -> Option<(Target, Ports)> {
    let entry = cx.object::<ServiceEntry>(namespace, name)?;
    let ports = entry.ports.iter().map(|port| (port.name.clone(), port.number)).collect();
    let id = TargetId::ServiceEntry(name.to_owned());
    Some((Target { id, hosts: entry.hosts.clone(), is_alias: false }, ports))
}
