//! Desired content of the other registry.

use crate::reconcile::{AliasKey, Place, ServiceKey, Text};
use std::collections::{BTreeMap, BTreeSet};

/// Metadata of a service or an instance.
pub type Metadata = BTreeMap<Text, Text>;

/// Desired content of the other registry: all of it, or some services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Desired {
    pub namespaces: BTreeSet<Text>,
    /// Services with their instances.
    pub services: BTreeMap<ServiceKey, DesiredService>,
}

impl Desired {
    /// Total number of instances.
    #[must_use]
    pub fn instances(&self) -> usize {
        self.services.values().map(|service| service.instances.len()).sum()
    }

    /// Returns the desired aliases with their services. If two services want the same alias, the first gets
    /// it; the name of a service precedes any alias.
    #[must_use]
    pub fn aliases(&self) -> BTreeMap<&AliasKey, &ServiceKey> {
        let mut aliases = BTreeMap::new();
        for (key, service) in &self.services {
            for alias in service.aliases.iter().filter(|alias| !self.services.contains_key(&alias.0)) {
                aliases.entry(alias).or_insert(key);
            }
        }
        aliases
    }
}

/// Desired state of a service in the registry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesiredService {
    /// Minimum metadata: other owners may add theirs.
    pub metadata: Metadata,
    /// Minimum set of ports.
    pub ports: BTreeSet<u16>,
    /// Additional names of the service.
    pub aliases: BTreeSet<AliasKey>,
    /// Our instances. Other owners may have instances beside them.
    pub instances: BTreeMap<Place, Instance>,
}

/// Desired state of an instance in the registry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instance {
    /// Name and transport protocol of the port: `http/TCP`.
    pub protocol: Text,
    /// Version of the workload; empty for none.
    pub version: Text,
    /// Share of requests, relative to the other instances.
    pub weight: u32,
    /// True if it takes requests. Otherwise it is isolated, and stays registered.
    pub ready: bool,
    /// Maximum period of heartbeats in seconds; `None` for no health check.
    pub ttl: Option<u8>,
    /// Complete metadata, including the owner.
    pub metadata: Metadata,
}
