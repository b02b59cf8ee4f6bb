//! Registered instances, and the records that stores keep of them.

use crate::TextMap;
use pilotfish_model::Locality;
use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

/// Namespace and name of a service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceKey {
    /// A DNS label, as of Kubernetes namespaces.
    pub namespace: Arc<str>,
    /// A short name such as `web`, or a host name with a dot, which is used as it is.
    pub service: Arc<str>,
}

/// Name of an instance, unique in the store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceKey {
    /// A DNS label, as of Kubernetes namespaces.
    pub namespace: Arc<str>,
    /// A short name such as `web`, or a host name with a dot, which is used as it is.
    pub service: Arc<str>,
    /// Unique in its service. Letters, digits and `-._:@+~`, at most 253 bytes.
    pub id: Arc<str>,
}

impl ServiceKey {
    /// A key of these names, without validation.
    #[must_use]
    pub fn new(namespace: impl Into<Arc<str>>, service: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), service: service.into() }
    }

    /// Returns the host name for clients: for a short name that of a Kubernetes Service
    /// (`web.default.svc.cluster.local`), for a name with a dot the name itself.
    #[must_use]
    pub fn host(&self, domain: &str) -> String {
        match self.service.contains('.') {
            true => self.service.to_string(),
            false => format!("{}.{}.svc.{domain}", self.service, self.namespace),
        }
    }
}

impl InstanceKey {
    /// A key of these names, without validation.
    #[must_use]
    pub fn new(
        namespace: impl Into<Arc<str>>,
        service: impl Into<Arc<str>>,
        id: impl Into<Arc<str>>,
    ) -> Self {
        Self { namespace: namespace.into(), service: service.into(), id: id.into() }
    }

    /// Returns the service of the instance.
    #[must_use]
    pub fn service_key(&self) -> ServiceKey {
        ServiceKey { namespace: Arc::clone(&self.namespace), service: Arc::clone(&self.service) }
    }
}

impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.service)
    }
}

impl fmt::Display for InstanceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.namespace, self.service, self.id)
    }
}

/// A validated instance as a client registered it; created by [`crate::Registration::validate`].
#[derive(Clone, Debug, PartialEq)]
pub struct Instance {
    pub key: InstanceKey,
    /// Addresses, the primary one first. Never empty, no duplicates.
    pub addresses: Vec<IpAddr>,
    /// Listening ports. Never empty, no duplicates.
    pub ports: Vec<Port>,
    /// Labels for subsets and policies; keys and values follow the rules of Kubernetes.
    pub labels: TextMap,
    /// Free-form texts, without influence on selection.
    pub metadata: TextMap,
    pub locality: Locality,
    /// Network; empty if unknown.
    pub network: Arc<str>,
    /// Relative weight; 0 if unset.
    pub weight: u32,
    /// Health as reported by the client.
    pub healthy: bool,
    /// Service account, the basis of its SPIFFE identity; empty for none.
    pub service_account: Arc<str>,
    /// TTL of the lease. `None`: the instance has no lease and stays until it is deregistered.
    pub ttl: Option<Duration>,
    /// Active checks of the instance.
    pub checks: Vec<Check>,
    /// Drain time after deregistration; zero for none.
    pub drain: Duration,
    /// Time from the lapse of the lease to the removal; `None` for that of the
    /// [settings](crate::LivenessSettings::remove_after).
    pub remove_after: Option<Duration>,
}

impl Instance {
    /// Estimated bytes in memory, for limits of bytes: texts shared with other instances count in full.
    #[must_use]
    pub fn weight(&self) -> usize {
        /// Counters of an `Arc` and overhead of an allocation.
        const SHARED: usize = 32;
        let texts = |map: &TextMap| -> usize {
            map.iter().map(|(key, value)| key.len() + value.len() + 2 * SHARED + 32).sum()
        };
        let of_check = |check: &Check| {
            let texts = match &check.kind {
                CheckKind::Http { path, host } => path.len() + host.len(),
                CheckKind::Tcp => 0,
                CheckKind::Grpc { service } => service.len(),
            };
            texts + size_of::<Check>() + 2 * SHARED
        };
        let names =
            [&self.key.namespace, &self.key.service, &self.key.id, &self.network, &self.service_account];
        let Locality { region, zone, sub_zone } = &self.locality;
        let of_port = |port: &Port| size_of::<Port>() + port.name.len() + port.protocol.len();
        size_of::<Self>()
            + names.into_iter().chain([region, zone, sub_zone]).map(|text| text.len()).sum::<usize>()
            + self.addresses.len() * size_of::<IpAddr>()
            + self.ports.iter().map(of_port).sum::<usize>()
            + self.checks.iter().map(of_check).sum::<usize>()
            + texts(&self.labels)
            + texts(&self.metadata)
            + 8 * SHARED
    }
}

/// A port of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Listening port of the instance.
    pub number: NonZeroU16,
    /// Port of the service, for clients.
    pub service_port: NonZeroU16,
    /// Port name, a DNS label; empty for none.
    pub name: Arc<str>,
    /// Istio's protocol name in lower case; empty if unset.
    pub protocol: Arc<str>,
}

/// An active check of the instance's primary address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub kind: CheckKind,
    /// The port; `None` for the instance's first.
    pub port: Option<NonZeroU16>,
    /// Time between two checks.
    pub interval: Duration,
    /// Timeout of a check; at most the interval.
    pub timeout: Duration,
    /// Number of consecutive successes until the check passes; at least 1.
    pub healthy_threshold: u32,
    /// Number of consecutive failures until the check fails; at least 1.
    pub unhealthy_threshold: u32,
}

/// Protocol of an active check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckKind {
    /// A GET whose answer has a status of 200 to 399.
    Http {
        /// Path and query; begins with `/`.
        path: Arc<str>,
        /// The `Host` header; empty for the address.
        host: Arc<str>,
    },
    /// Opening a TCP connection succeeds.
    Tcp,
    /// `grpc.health.v1.Health/Check` with the response `SERVING`.
    Grpc {
        /// Service in the request; empty for the whole server.
        service: Arc<str>,
    },
}

/// An instance as stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub instance: Arc<Instance>,
    /// The identity that registered it.
    pub owner: Arc<str>,
    /// Store revision of the last change.
    pub revision: u64,
    /// Store revision of the creation. A deregistered instance that registers again gets a new one.
    pub created: u64,
    pub state: RecordState,
}

/// State of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RecordState {
    /// Registered, with a lease unless its client wants none.
    #[default]
    Serving,
    /// Deregistered and in its drain time; without a lease.
    Draining,
}

impl Record {
    /// Returns the TTL of its lease. `None` without a lease: if its client wants none, and while it drains.
    #[must_use]
    pub fn lease(&self) -> Option<Duration> {
        match self.state {
            RecordState::Serving => self.instance.ttl,
            RecordState::Draining => None,
        }
    }
}
