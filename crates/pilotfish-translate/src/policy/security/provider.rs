//! Services that the mesh settings name for authorization, logs and traces.

use crate::engine::Cx;
use crate::routing::cluster_name;
use pilotfish_model::{Hostname, Namespace, ServiceKey};

/// A service that a provider names, found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its host.
    pub host: String,
    /// The cluster of one of its ports.
    pub cluster: String,
}

/// The service that a provider names as `namespace/host`, or as a host that only one namespace has.
#[must_use]
pub fn cluster_of(cx: &Cx<'_>, service: &str, port: u32) -> Option<Named> {
    let (namespace, host) = match service.split_once('/') {
        Some((namespace, host)) => (Some(Namespace::from(namespace)), host),
        None => (None, service),
    };
    let hostname = Hostname::parse(host).ok()?;
    match namespace {
        Some(namespace) => {
            cx.services_of(&ServiceKey { hostname: hostname.clone(), namespace })?;
        }
        None if cx.namespaces_of(&hostname).len() != 1 => return None,
        None => {}
    }
    let host = hostname.to_string();
    Some(Named { cluster: cluster_name(port, "", &host), host })
}
