//! What services, aliases and instances are called in the other registry.

use std::fmt;
use std::sync::Arc;

/// Shared text: names and values are repeated in every instance.
pub type Text = Arc<str>;

/// A service of the other registry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceKey {
    /// Its namespace there.
    pub namespace: Text,
    /// Its name there.
    pub name: Text,
}

impl ServiceKey {
    /// That service.
    pub fn new(namespace: impl Into<Text>, name: impl Into<Text>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ServiceKey {
    /// `namespace/name`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A further name of a service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AliasKey(pub ServiceKey);

impl fmt::Display for AliasKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where an instance listens. Of a service there is one instance for each place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// An IP address, as written.
    pub host: Text,
    /// The port.
    pub port: u16,
}

impl Place {
    /// That place.
    pub fn new(host: impl Into<Text>, port: u16) -> Self {
        Self { host: host.into(), port }
    }
}

impl fmt::Display for Place {
    /// `HOST:PORT`, with brackets around an IPv6 address.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// An instance of the other registry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceKey {
    /// Its service.
    pub service: ServiceKey,
    /// Where it listens.
    pub place: Place,
}

impl InstanceKey {
    /// That instance.
    #[must_use]
    pub fn new(service: ServiceKey, place: Place) -> Self {
        Self { service, place }
    }
}

impl fmt::Display for InstanceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.service, self.place)
    }
}
