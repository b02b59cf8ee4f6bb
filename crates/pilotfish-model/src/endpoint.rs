//! Endpoints: one address list and port behind a service port.

use crate::{ClusterId, Labels, Locality, Namespace, NetworkId, Origin, Port, PortId, SpiffeId};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Whether an endpoint can be used.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize,
)]
pub enum HealthStatus {
    /// Ready.
    Healthy,
    /// Not ready.
    Unhealthy,
    /// Terminating but still serving: kept for clients with persistent sessions only.
    Draining,
    /// Going by its own word, and still serving: sent to every client as draining until it is gone.
    Deregistering,
    /// Terminating: never sent.
    Terminating,
    /// Not reported, as for ServiceEntry endpoints: sent without a health status.
    #[default]
    Unknown,
}

impl HealthStatus {
    /// The name in JSON views, which tools read: it stays when a variant is renamed.
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

/// Whether an endpoint accepts the mesh's mutual TLS (label `security.istio.io/tlsMode`).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize,
)]
pub enum TlsMode {
    /// No proxy in front that terminates the mesh's TLS.
    #[default]
    Disabled,
    /// The mesh's mutual TLS.
    Istio,
}

/// One address (or several of one workload, for dual stack) and port of a service port.
///
/// A large world has hundreds of thousands of them, so what the ports of a workload have in common is kept once.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Endpoint {
    /// Addresses: IPs, one name for DNS services, a path for Unix sockets (port 0), or none for an endpoint that is
    /// reached only through its network's gateway.
    pub addresses: Arc<[Arc<str>]>,
    /// The port number; 0 with a Unix socket.
    pub port: u32,
    /// The name of the service port that it belongs to.
    pub service_port: Arc<str>,
    /// The service port, for endpoints of ServiceEntries, which are matched by it where clusters hold their
    /// endpoints inline. `None` where only the name counts.
    pub service_port_id: Option<PortId>,
    /// Whether it can be used.
    pub health: HealthStatus,
    /// What is the same for all ports of its workload.
    pub attributes: Arc<EndpointAttributes>,
}

/// What the endpoints of one workload have in common, whatever their port.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct EndpointAttributes {
    /// Labels of the workload, with topology labels added.
    pub labels: Labels,
    /// Where the workload runs.
    pub locality: Locality,
    /// Its network.
    pub network: NetworkId,
    /// The cluster that it belongs to.
    pub cluster: ClusterId,
    /// Relative weight; 0 stands for "not set", which counts as 1.
    pub weight: u32,
    /// The identity that the workload's certificate carries; `None` where it has none.
    pub identity: Option<SpiffeId>,
    /// Whether it accepts mutual TLS.
    pub tls_mode: TlsMode,
    /// The pod's host name, for DNS of headless services.
    pub hostname: Arc<str>,
    /// The pod's sub-domain, for DNS of headless services.
    pub sub_domain: Arc<str>,
    /// The node that it runs on; empty when not known.
    pub node: Arc<str>,
    /// The workload's name (of its Deployment and the like), for telemetry.
    pub workload_name: Arc<str>,
    /// The workload's namespace.
    pub namespace: Namespace,
    /// The name of the ServiceEntry that it is an endpoint of, where the entries of its host are not exported
    /// alike. Services that are made without that entry do not have the endpoint
    /// ([`crate::Service::has_endpoint`]).
    pub entry: Option<Arc<str>>,
    /// What made it: an EndpointSlice, ServiceEntry, WorkloadEntry, or an entry of another registry.
    pub provenance: Origin,
}

impl EndpointAttributes {
    /// Attributes of an endpoint of which nothing is known but its cluster and what made it.
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
    /// The same endpoint with other attributes.
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

    /// False for endpoints of another ServiceEntry than these, where that makes a difference.
    #[must_use]
    pub fn is_of(&self, entries: &BTreeSet<Arc<str>>) -> bool {
        self.attributes.entry.as_ref().is_none_or(|entry| entries.contains(entry))
    }

    /// The first address; empty when there is none.
    #[must_use]
    pub fn address(&self) -> &str {
        self.addresses.first().map_or("", |address| address)
    }

    /// The weight with "not set" read as 1.
    #[must_use]
    pub fn effective_weight(&self) -> u32 {
        self.attributes.weight.max(1)
    }
}
