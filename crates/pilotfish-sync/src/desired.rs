//! What the other registry should have.

use crate::{AliasKey, Place, ServiceKey, Text};
use std::collections::{BTreeMap, BTreeSet};

/// Keys and values of a service or an instance.
pub type Metadata = BTreeMap<Text, Text>;

/// What the other registry should have, all of it or of some services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Desired {
    /// Namespaces.
    pub namespaces: BTreeSet<Text>,
    /// Services with their instances.
    pub services: BTreeMap<ServiceKey, DesiredService>,
}

impl Desired {
    /// How many instances there should be.
    #[must_use]
    pub fn instances(&self) -> usize {
        self.services.values().map(|service| service.instances.len()).sum()
    }

    /// The aliases that there should be, with the service of each. Of two services that want the same one, the first has it, and a
    /// service has its name before any alias.
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

/// A service that should be there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesiredService {
    /// Metadata that it should have at least: others may add theirs.
    pub metadata: Metadata,
    /// Ports that it should have at least.
    pub ports: BTreeSet<u16>,
    /// Further names.
    pub aliases: BTreeSet<AliasKey>,
    /// The instances that are ours. Others may have theirs beside them.
    pub instances: BTreeMap<Place, Instance>,
}

/// What an instance should be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instance {
    /// `http/TCP`: the name of the port and its transport protocol.
    pub protocol: Text,
    /// The version of what runs there; empty for none.
    pub version: Text,
    /// The share of requests that it gets.
    pub weight: u32,
    /// Whether it takes requests. One that does not is isolated, and stays.
    pub ready: bool,
    /// Heartbeats are expected at least this often, in seconds; `None` for no health check.
    pub ttl: Option<u8>,
    /// Everything that its metadata has, with whose it is.
    pub metadata: Metadata,
}
