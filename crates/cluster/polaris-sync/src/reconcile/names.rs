//! Names of services, aliases and instances in the other registry.

use std::fmt;
use std::sync::Arc;

/// Shared text: names and values repeat in every instance.
pub type Text = Arc<str>;

/// Namespace and name of a service in the other registry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceKey {
    pub namespace: Text,
    pub name: Text,
}

impl ServiceKey {
    pub fn new(namespace: impl Into<Text>, name: impl Into<Text>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// An additional name of a service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AliasKey(pub ServiceKey);

impl fmt::Display for AliasKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Address of an instance. A service has at most one instance per place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// An IP address, as written.
    pub host: Text,
    pub port: u16,
}

impl Place {
    pub fn new(host: impl Into<Text>, port: u16) -> Self {
        Self { host: host.into(), port }
    }
}

impl fmt::Display for Place {
    /// Formats `HOST:PORT`, with brackets around an IPv6 address.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Service and place of an instance.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceKey {
    pub service: ServiceKey,
    pub place: Place,
}

impl InstanceKey {
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
