//! Endpoints: one address list and port behind a service port.

use crate::{ClusterId, Labels, Locality, Namespace, NetworkId, Origin, Port, PortId, SpiffeId};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Health of an endpoint.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize,
)]
pub enum HealthStatus {
    Healthy,
    Unhealthy,
    /// Terminating but still serving: kept for clients with persistent sessions only.
    Draining,
    /// Terminating on its own announcement, and still serving: sent to every client as draining until it is
    /// removed.
    Deregistering,
    /// Terminating; not sent to any client.
    Terminating,
    /// Not reported, as for ServiceEntry endpoints: sent without a health status.
    #[default]
    Unknown,
}

impl HealthStatus {
    /// Name in JSON views, which tools read: stays the same when a variant is renamed.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "Healthy",
            Self::Unhealthy => "Unhealthy",
            Self::Draining => "Draining",
            Self::Deregistering => "Deregistering",
            Self::Terminating => "Terminating",
            Self::Unknown => "Unknown",
        }
    }
}

/// Support of an endpoint for the mesh's mutual TLS (label `security.istio.io/tlsMode`).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize,
)]
pub enum TlsMode {
    /// No proxy that terminates the mesh's TLS.
    #[default]
    Disabled,
    /// The mesh's mutual TLS.
    Istio,
}

/// One address (or several of one workload, for dual stack) and port of a service port.
///
/// A large world has hundreds of thousands of them, so attributes that the ports of a workload share are
/// stored once.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Endpoint {
    /// Addresses: IPs, one name for DNS services, a path for Unix sockets (port 0), or none for an endpoint
    /// that is reached only through its network's gateway.
    pub addresses: Arc<[Arc<str>]>,
    /// Port number; 0 with a Unix socket.
    pub port: u32,
    /// Name of its service port.
    pub service_port: Arc<str>,
    /// Service port, for endpoints of ServiceEntries, which are matched by it where clusters have inline
    /// endpoints. `None` if only the name matters.
    pub service_port_id: Option<PortId>,
    pub health: HealthStatus,
    /// Attributes that all ports of its workload share.
    pub attributes: Arc<EndpointAttributes>,
}

/// Attributes that the endpoints of one workload share, independent of the port.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct EndpointAttributes {
    /// Labels of the workload, with topology labels added.
    pub labels: Labels,
    pub locality: Locality,
    pub network: NetworkId,
    pub cluster: ClusterId,
    /// Relative weight; 0 if unset, which counts as 1.
    pub weight: u32,
    /// Identity in the workload's certificate; `None` without one.
    pub identity: Option<SpiffeId>,
    pub tls_mode: TlsMode,
    /// Pod host name, for DNS of headless services.
    pub hostname: Arc<str>,
    /// Pod sub-domain, for DNS of headless services.
    pub sub_domain: Arc<str>,
    /// Node that it runs on; empty if unknown.
    pub node: Arc<str>,
    /// Name of the workload's Deployment or the like, for telemetry.
    pub workload_name: Arc<str>,
    pub namespace: Namespace,
    /// Name of the ServiceEntry that it is an endpoint of, if the entries of its host have different
    /// `exportTo`. Services that are built without that entry do not have the endpoint
    /// ([`crate::Service::has_endpoint`]).
    pub entry: Option<Arc<str>>,
    /// Origin: an EndpointSlice, ServiceEntry, WorkloadEntry, or an entry of another registry.
    pub provenance: Origin,
}

impl EndpointAttributes {
    /// Default attributes with a cluster and an origin.
    #[must_use]
    pub fn of(cluster: ClusterId, provenance: Origin) -> Self {
        Self {
            labels: Labels::default(),
            locality: Locality::default(),
            network: NetworkId::default(),
            cluster,
            weight: 0,
            identity: None,
            tls_mode: TlsMode::Disabled,
            hostname: Arc::default(),
            sub_domain: Arc::default(),
            node: Arc::default(),
            workload_name: Arc::default(),
            namespace: Namespace::default(),
            entry: None,
            provenance,
        }
    }
}

impl Endpoint {
    /// Copies the endpoint with changed attributes.
    #[must_use]
    pub fn with_attributes(mut self, change: impl FnOnce(&mut EndpointAttributes)) -> Self {
        change(Arc::make_mut(&mut self.attributes));
        self
    }

    /// True for an endpoint of that port of its service.
    #[must_use]
    pub fn is_of_port(&self, port: &Port) -> bool {
        self.service_port_id.map_or_else(|| self.service_port == port.name, |id| id == port.id())
    }

    /// False for endpoints of a ServiceEntry other than these, if entries are distinguished.
    #[must_use]
    pub fn is_of(&self, entries: &BTreeSet<Arc<str>>) -> bool {
        self.attributes.entry.as_ref().is_none_or(|entry| entries.contains(entry))
    }

    /// First address; empty if there is none.
    #[must_use]
    pub fn address(&self) -> &str {
        self.addresses.first().map_or("", |address| address)
    }

    /// Weight, where an unset one counts as 1.
    #[must_use]
    pub fn effective_weight(&self) -> u32 {
        self.attributes.weight.max(1)
    }
}
