//! Registry that a service, endpoint or workload comes from, and its id there.

use crate::{ClusterId, ObjectKey};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Type of a registry: its name and rank in the table of registries.
///
/// If registries disagree about a host, the one with the lower rank wins. Both are set once, when the table
/// is read: only a registry itself compares names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Provider {
    rank: u16,
    name: &'static str,
}

impl Provider {
    /// Provider of that name; rank 0 wins over all others.
    #[must_use]
    pub const fn new(rank: u16, name: &'static str) -> Self {
        Self { rank, name }
    }

    /// Name in `/debug/registryz` and in shard keys.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// Name in Istio's protocols (`provider.ServiceRegistry`).
    #[must_use]
    pub fn istio_name(self) -> &'static str {
        if self.name == "ServiceEntry" { "External" } else { self.name }
    }

    /// Position in the order of the registries.
    #[must_use]
    pub const fn rank(self) -> u16 {
        self.rank
    }
}

/// Names of providers that were read from a record and that this program does not have. Never freed: a record
/// has a handful.
static READ: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
/// Maximum number of such names.
const MOST_READ: usize = 256;

impl serde::Serialize for Provider {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.rank, self.name).serialize(serializer)
    }
}

impl<'de> serde::Deserialize<'de> for Provider {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (rank, name) = <(u16, String)>::deserialize(deserializer)?;
        let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
        let known = read.get(name.as_str()).copied();
        if known.is_none() && read.len() >= MOST_READ {
            return Err(serde::de::Error::custom("too many names of providers"));
        }
        let name = known.unwrap_or_else(|| Box::leak(name.into_boxed_str()));
        read.insert(name);
        Ok(Self { rank, name })
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A running registry. Each owns exactly one shard of every service's endpoints.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct ShardKey {
    pub provider: Provider,
    /// Cluster of its workloads.
    pub cluster: ClusterId,
    /// Distinguishes registries of one type and cluster, such as data centres of Consul or namespaces of
    /// Nacos. Empty if there is only one.
    pub instance: Arc<str>,
}

impl ShardKey {
    /// Lower bound of all keys, for ranges.
    #[must_use]
    pub fn lowest() -> Self {
        Self::new(Provider::new(0, ""), ClusterId::default())
    }

    /// Key of the only registry of its type in a cluster.
    pub fn new(provider: Provider, cluster: impl Into<ClusterId>) -> Self {
        Self { provider, cluster: cluster.into(), instance: Arc::default() }
    }

    /// Key of one of several registries of its type in a cluster.
    #[must_use]
    pub fn with_instance(self, instance: impl Into<Arc<str>>) -> Self {
        Self { instance: instance.into(), ..self }
    }
}

impl fmt::Display for ShardKey {
    /// `Kubernetes/west`, or `consul/west/dc1` where an instance is named.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.provider, self.cluster)?;
        if self.instance.is_empty() { Ok(()) } else { write!(f, "/{}", self.instance) }
    }
}

/// A Kubernetes object, with the cluster that it was read from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct ObjectRef {
    pub object: ObjectKey,
    /// Cluster; empty for configuration, which is mesh-wide.
    pub cluster: ClusterId,
}

/// Id of an entry in a registry without objects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct RegisteredId {
    pub shard: ShardKey,
    /// Id in the registry, such as the service instance id of Consul.
    pub id: Arc<str>,
}

/// Origin of a service, endpoint, workload or resource: its provenance.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum Origin {
    /// An object from files or an API server.
    Object(ObjectRef),
    /// An entry of a registry without objects. Behind a pointer, so that endpoints from objects stay small.
    Registered(Arc<RegisteredId>),
}

impl Origin {
    pub fn object(object: ObjectKey, cluster: impl Into<ClusterId>) -> Self {
        Self::Object(ObjectRef { object, cluster: cluster.into() })
    }

    pub fn registered(shard: ShardKey, id: impl Into<Arc<str>>) -> Self {
        Self::Registered(Arc::new(RegisteredId { shard, id: id.into() }))
    }

    /// The object, unless the origin is a registry without objects.
    #[must_use]
    pub fn as_object(&self) -> Option<&ObjectRef> {
        match self {
            Self::Object(object) => Some(object),
            Self::Registered(_) => None,
        }
    }
}

impl From<ObjectRef> for Origin {
    fn from(object: ObjectRef) -> Self {
        Self::Object(object)
    }
}

impl fmt::Display for Origin {
    /// `Service shop/web`, or `consul/west/dc1: web-1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(reference) => write!(f, "{}", reference.object),
            Self::Registered(registered) => write!(f, "{}: {}", registered.shard, registered.id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_data_centres_of_one_registry_have_shards_of_their_own() {
        let shard = |dc: &str| ShardKey::new(Provider::new(2, "consul"), "west").with_instance(dc);
        assert_ne!(shard("dc1"), shard("dc2"));
        assert_eq!(shard("dc1").to_string(), "consul/west/dc1");
        assert_eq!(ShardKey::new(Provider::new(0, "Kubernetes"), "west").to_string(), "Kubernetes/west");
        assert!(ShardKey::lowest() < ShardKey::new(Provider::new(0, "A"), ""));
    }

    #[test]
    fn the_rank_decides_the_order_of_shards_and_not_the_name() {
        let shard = |provider| ShardKey::new(provider, "c");
        assert!(shard(Provider::new(0, "Kubernetes")) < shard(Provider::new(1, "External")));
    }

    #[test]
    fn origins_name_objects_and_ids() {
        let object = Origin::object(ObjectKey::new(crate::Kind::Service, "shop", "web"), "west");
        let id = Origin::registered(ShardKey::new(Provider::new(2, "lines"), "west"), "web-1");
        assert_eq!(
            (object.to_string(), id.to_string()),
            ("Service shop/web".into(), "lines/west: web-1".into())
        );
        assert!(object.as_object().is_some() && id.as_object().is_none());
        // An endpoint keeps its origin: what a registry without objects needs must not make all of them
        // larger.
        assert_eq!(size_of::<Origin>(), size_of::<ObjectRef>());
    }
}
