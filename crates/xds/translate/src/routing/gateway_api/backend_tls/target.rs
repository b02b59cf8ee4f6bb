//! Targets of a BackendTLSPolicy: Services and ServiceEntries of its own namespace.

use crate::engine::Cx;
use crate::routing::gateway_api::backends::Problem;
use pilotfish_config::gateway_api::PolicyTargetReference;
use pilotfish_config::networking::ServiceEntry;
use pilotfish_model::{Hostname, Namespace, Resolution, ServiceKey};

/// Reason for a missing target or port of a target.
const NOT_FOUND: &str = "TargetNotFound";

/// Name of a target in the policy's namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TargetId {
    Service(String),
    ServiceEntry(String),
}

/// A target of policies.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Target {
    pub(super) id: TargetId,
    /// Its hosts, in full.
    pub(super) hosts: Vec<String>,
}

/// Returns the target of a reference, and the number of the referenced port; `None` for all ports.
///
/// # Errors
/// If the target or the port does not exist: then the policy has no effect, as in istiod.
pub(super) fn resolve(
    cx: &Cx<'_>,
    namespace: &Namespace,
    reference: &PolicyTargetReference,
) -> Result<(Target, Option<u32>), Problem> {
    let name = &reference.name;
    let found = match (reference.group.as_str(), reference.kind.as_str()) {
        ("" | "core", "Service") => service(cx, namespace, name)?,
        ("networking.istio.io", "ServiceEntry") => service_entry(cx, namespace, name),
        (group, kind) => {
            return Err(not_found(format!("targets of kind {kind:?} of group {group:?} are not known")));
        }
    };
    let (target, ports) =
        found.ok_or_else(|| not_found(format!("there is no {} {namespace}/{name}", reference.kind)))?;
    let Some(section) = reference.section() else { return Ok((target, None)) };
    match ports.into_iter().find(|(name, _)| name == section) {
        Some((_, number)) => Ok((target, Some(number))),
        None => {
            Err(not_found(format!("{} {namespace}/{name} has no port named {section:?}", reference.kind)))
        }
    }
}

fn not_found(message: String) -> Problem {
    Problem::new(NOT_FOUND, message)
}

/// Names and numbers of ports.
type Ports = Vec<(String, u32)>;

/// Returns a Kubernetes Service, of any cluster.
///
/// # Errors
/// If the Service is an alias: it has no clusters, and connections follow the rules of the service that it
/// leads to.
fn service(cx: &Cx<'_>, namespace: &Namespace, name: &str) -> Result<Option<(Target, Ports)>, Problem> {
    let host = cx.domain().service(name, namespace);
    let key =
        Hostname::parse(&host).ok().map(|hostname| ServiceKey { hostname, namespace: namespace.clone() });
    let services = key.and_then(|key| cx.services_of(&key));
    let mut services = services.iter().flat_map(|services| services.iter());
    let Some(service) = services.find(|service| service.kubernetes.is_some()) else { return Ok(None) };
    if service.resolution == Resolution::Alias {
        let message =
            format!("Service {namespace}/{name} is of type ExternalName: policies are for what it leads to");
        return Err(not_found(message));
    }
    let ports = service.tcp_ports().map(|port| (port.name.to_string(), port.number)).collect();
    Ok(Some((Target { id: TargetId::Service(name.to_owned()), hosts: vec![host] }, ports)))
}

fn service_entry(cx: &Cx<'_>, namespace: &Namespace, name: &str) -> Option<(Target, Ports)> {
    let entry = cx.object::<ServiceEntry>(namespace, name)?;
    let ports = entry.ports.iter().map(|port| (port.name.clone(), port.number)).collect();
    let id = TargetId::ServiceEntry(name.to_owned());
    Some((Target { id, hosts: entry.hosts.clone() }, ports))
}
