//! What is registered: instances of services, and the records that stores keep of them.

use crate::TextMap;
use pilotfish_model::Locality;
use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

/// A service: all instances with these two names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceKey {
    /// A DNS label, as namespaces of Kubernetes.
    pub namespace: Arc<str>,
    /// A short name such as `web`, or a host name with a dot, which is taken as it is.
    pub service: Arc<str>,
}

/// The name of an instance, unique in the store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceKey {
    /// A DNS label, as namespaces of Kubernetes.
    pub namespace: Arc<str>,
    /// A short name such as `web`, or a host name with a dot, which is taken as it is.
    pub service: Arc<str>,
    /// Unique in its service. Letters, digits and `-._:@+~`, at most 253 bytes.
    pub id: Arc<str>,
}

impl ServiceKey {
    /// A key of these names, which are not checked.
    #[must_use]
    pub fn new(namespace: impl Into<Arc<str>>, service: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), service: service.into() }
    }

    /// The host name that clients use: a short name is that of a Kubernetes Service (`web.default.svc.cluster.local`), one with a
    /// dot is taken as it is.
    #[must_use]
    pub fn host(&self, domain: &str) -> String {
        match self.service.contains('.') {
            true => self.service.to_string(),
            false => format!("{}.{}.svc.{domain}", self.service, self.namespace),
        }
    }
}

impl InstanceKey {
    /// A key of these names, which are not checked.
    #[must_use]
    pub fn new(
        namespace: impl Into<Arc<str>>,
        service: impl Into<Arc<str>>,
        id: impl Into<Arc<str>>,
    ) -> Self {
        Self { namespace: namespace.into(), service: service.into(), id: id.into() }
    }

    /// The service that it is an instance of.
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

/// An instance as a client registered it, checked: [`crate::Registration::validate`] makes one of what came from outside.
#[derive(Clone, Debug, PartialEq)]
pub struct Instance {
    /// Its name.
    pub key: InstanceKey,
    /// Where it is reached, the primary address first. Never empty, no duplicates.
    pub addresses: Vec<IpAddr>,
    /// Where it listens. Never empty, no duplicates.
    pub ports: Vec<Port>,
    /// Labels, which subsets and policies select by: keys and values as Kubernetes allows them.
    pub labels: TextMap,
    /// Free texts, which nothing selects by.
    pub metadata: TextMap,
    /// Where it runs.
    pub locality: Locality,
    /// Its network; empty for not known.
    pub network: Arc<str>,
    /// Relative weight; 0 for not set.
    pub weight: u32,
    /// What the client says about its health.
    pub healthy: bool,
    /// The name of its service account, which its SPIFFE identity is made of; empty for none.
    pub service_account: Arc<str>,
    /// How long its lease lasts without being renewed. `None`: it has no lease and stays until it is deregistered.
    pub ttl: Option<Duration>,
    /// Active checks that are run against it.
    pub checks: Vec<Check>,
    /// How long it drains when it is deregistered; zero for not at all.
    pub drain: Duration,
}

impl Instance {
    /// Estimated bytes in memory, which limits of bytes count: each text as if no other instance had it.
    #[must_use]
    pub fn weight(&self) -> usize {
        /// The counters of an `Arc`, and what an allocation costs beside.
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
    /// Where the instance listens.
    pub number: NonZeroU16,
    /// The port of the service, which clients connect to.
    pub service_port: NonZeroU16,
    /// Its name, a DNS label; empty for none.
    pub name: Arc<str>,
    /// The protocol in Istio's names, small letters; empty for not said.
    pub protocol: Arc<str>,
}

/// An active check: it is run against the instance's primary address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What is asked.
    pub kind: CheckKind,
    /// The port; `None` for the instance's first.
    pub port: Option<NonZeroU16>,
    /// Time from one check to the next.
    pub interval: Duration,
    /// How long an answer may take; never longer than the interval.
    pub timeout: Duration,
    /// How many good answers in a row make it healthy; at least 1.
    pub healthy_threshold: u32,
    /// How many bad ones in a row make it unhealthy; at least 1.
    pub unhealthy_threshold: u32,
}

/// What an active check asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckKind {
    /// A GET whose answer has a status of 200 to 399.
    Http {
        /// Path and query; begins with `/`.
        path: Arc<str>,
        /// The `Host` header; empty for the address.
        host: Arc<str>,
    },
    /// A connection.
    Tcp,
    /// `grpc.health.v1.Health/Check` that says `SERVING`.
    Grpc {
        /// The service that is asked for; empty for the whole server.
        service: Arc<str>,
    },
}

/// An instance as a store has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// What was registered.
    pub instance: Arc<Instance>,
    /// The identity that registered it.
    pub owner: Arc<str>,
    /// The store's revision at its last change.
    pub revision: u64,
    /// The store's revision at its creation. Deregistered and registered again, it is a new one.
    pub created: u64,
    /// Whether it is leaving.
    pub state: RecordState,
}

/// Whether an instance is leaving.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RecordState {
    /// It serves.
    #[default]
    Serving,
    /// It was deregistered and is in its grace time. It has no lease any more.
    Draining,
}

impl Record {
    /// How long its lease lasts. `None` without a lease: where its client wants none, and while it drains.
    #[must_use]
    pub fn lease(&self) -> Option<Duration> {
        match self.state {
            RecordState::Serving => self.instance.ttl,
            RecordState::Draining => None,
        }
    }
}
