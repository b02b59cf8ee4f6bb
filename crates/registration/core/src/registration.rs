//! Unvalidated registrations of clients.

use std::collections::BTreeMap;
use std::time::Duration;

/// An unvalidated instance from a client. [`Registration::validate`](crate::Registration::validate) converts
/// it to an [`Instance`](crate::Instance).
///
/// Fields have the API's names, which violations use.
#[derive(Clone, Debug, PartialEq)]
pub struct Registration {
    /// Namespace; empty for `default`.
    pub namespace: String,
    /// A short name or a host name.
    pub service: String,
    /// Unique in its service.
    pub id: String,
    /// IP addresses, the primary one first.
    pub addresses: Vec<String>,
    pub ports: Vec<RegistrationPort>,
    /// Labels for subsets and policies.
    pub labels: BTreeMap<String, String>,
    pub metadata: BTreeMap<String, String>,
    /// `region/zone/sub_zone`, each part optional.
    pub locality: String,
    /// Network; empty if unknown.
    pub network: String,
    /// Relative weight; 0 if unset.
    pub weight: u32,
    /// Health as reported by the client.
    pub healthy: bool,
    /// Service account; empty for none.
    pub service_account: String,
    /// TTL of the lease; `None` for no lease.
    pub ttl: Option<Duration>,
    pub checks: Vec<RegistrationCheck>,
    /// Drain time after deregistration.
    pub drain: Duration,
    /// Time from the lapse of the lease to the removal; `None` for that of the registrar. The API has no such
    /// field: only protocols of other products set it.
    pub remove_after: Option<Duration>,
}

/// A port as written by a client, not validated yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistrationPort {
    /// Port number, from 1 to 65535.
    pub number: u32,
    /// Port for clients, from 1 to 65535; 0 for the same as `number`.
    pub service_port: u32,
    /// A DNS label; empty for none.
    pub name: String,
    /// Istio's protocol name; empty if unset.
    pub protocol: String,
}

/// An unvalidated active check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistrationCheck {
    /// Protocol of the check; `None` is a violation.
    pub kind: Option<RegistrationCheckKind>,
    /// 0 for the first port.
    pub port: u32,
    /// Zero for the default.
    pub interval: Duration,
    /// Zero for the default.
    pub timeout: Duration,
    /// 0 for the default.
    pub healthy_threshold: u32,
    /// 0 for the default.
    pub unhealthy_threshold: u32,
}

/// Protocol of an unvalidated active check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistrationCheckKind {
    /// An HTTP GET; a status from 200 to 399 passes.
    Http {
        /// Path and query; empty for `/`.
        path: String,
        /// The `Host` header; empty for the address.
        host: String,
    },
    /// Opening a TCP connection.
    Tcp,
    /// Method `Check` of gRPC's health protocol.
    Grpc {
        /// Empty for the whole server.
        service: String,
    },
}

impl Registration {
    /// A healthy instance without a lease, addresses and ports.
    #[must_use]
    pub fn new(namespace: &str, service: &str, id: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            service: service.to_owned(),
            id: id.to_owned(),
            addresses: Vec::new(),
            ports: Vec::new(),
            labels: BTreeMap::new(),
            metadata: BTreeMap::new(),
            locality: String::new(),
            network: String::new(),
            weight: 0,
            healthy: true,
            service_account: String::new(),
            ttl: None,
            checks: Vec::new(),
            drain: Duration::ZERO,
            remove_after: None,
        }
    }
}
