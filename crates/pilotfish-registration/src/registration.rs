//! What a client sends to register an instance, before anything of it is checked.

use std::collections::BTreeMap;
use std::time::Duration;

/// An instance as it came from outside. [`Registration::validate`](crate::Registration::validate) makes an [`Instance`](crate::Instance) of it.
///
/// Fields have the names of the API, which violations use.
#[derive(Clone, Debug, PartialEq)]
pub struct Registration {
    /// Empty for `default`.
    pub namespace: String,
    /// A short name or a host name.
    pub service: String,
    /// Unique in its service.
    pub id: String,
    /// IP addresses, the primary one first.
    pub addresses: Vec<String>,
    /// Where it listens.
    pub ports: Vec<RegistrationPort>,
    /// What subsets and policies select by.
    pub labels: BTreeMap<String, String>,
    /// Free texts.
    pub metadata: BTreeMap<String, String>,
    /// `region/zone/sub_zone`, each part optional.
    pub locality: String,
    /// Empty for not known.
    pub network: String,
    /// Relative; 0 for not set.
    pub weight: u32,
    /// What the client says about its health.
    pub healthy: bool,
    /// Empty for none.
    pub service_account: String,
    /// `None` for no lease.
    pub ttl: Option<Duration>,
    /// Active checks.
    pub checks: Vec<RegistrationCheck>,
    /// Grace at deregistration.
    pub drain: Duration,
}

/// A port as it came from outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistrationPort {
    /// 1 to 65535.
    pub number: u32,
    /// 1 to 65535; 0 for the same as `number`.
    pub service_port: u32,
    /// A DNS label; empty for none.
    pub name: String,
    /// Istio's names; empty for not said.
    pub protocol: String,
}

/// An active check as it came from outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistrationCheck {
    /// What is asked; `None` is a violation.
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

/// What an active check asks, as it came from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegistrationCheckKind {
    /// A GET.
    Http {
        /// Path and query; empty for `/`.
        path: String,
        /// The `Host` header; empty for the address.
        host: String,
    },
    /// A connection.
    Tcp,
    /// gRPC's health protocol.
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
        }
    }
}
