//! The registries that there are, by name.

use crate::{KubernetesRegistry, MemoryRegistry, Registry, RegistrySettings, ServiceEntryRegistry};
use pilotfish_model::{Provider, ShardKey};

/// One type of registry.
pub struct RegistryType {
    /// The name by which it is chosen; compared without regard to case.
    pub name: &'static str,
    /// What it reads, in a few words.
    pub about: &'static str,
    /// Whether it reads the objects of a feed.
    pub reads_objects: bool,
    /// Makes one.
    pub new: fn(RegistrySettings) -> Box<dyn Registry>,
}

/// Every type of registry. A new one is one more line here.
pub const REGISTRIES: &[RegistryType] = &[
    RegistryType {
        name: "Kubernetes",
        about: "Services, EndpointSlices and Pods of a cluster",
        reads_objects: true,
        new: |settings| Box::new(KubernetesRegistry::new(settings)),
    },
    RegistryType {
        name: "ServiceEntry",
        about: "Istio's ServiceEntries and WorkloadEntries",
        reads_objects: true,
        new: |settings| Box::new(ServiceEntryRegistry::new(settings)),
    },
    RegistryType {
        name: "Memory",
        about: "services that are registered by API",
        reads_objects: false,
        new: |settings| {
            let shard = ShardKey { provider: Provider::Memory, cluster: settings.cluster };
            Box::new(MemoryRegistry::new(shard))
        },
    },
];

/// A name that no registry has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no registry {name:?}; known are {}", known.join(", "))]
pub struct UnknownRegistry {
    /// The name.
    pub name: String,
    /// The names that there are.
    pub known: Vec<&'static str>,
}

/// Finds registries by their names, in the order given. A name that is given twice counts once, with a warning.
///
/// # Errors
/// When there is no registry of a name.
pub fn select<S: AsRef<str>>(names: &[S]) -> Result<Vec<&'static RegistryType>, UnknownRegistry> {
    let mut chosen: Vec<&'static RegistryType> = Vec::new();
    for name in names.iter().map(AsRef::as_ref) {
        let found = REGISTRIES.iter().find(|registry| registry.name.eq_ignore_ascii_case(name.trim()));
        let Some(found) = found else {
            let known = REGISTRIES.iter().map(|registry| registry.name).collect();
            return Err(UnknownRegistry { name: name.to_owned(), known });
        };
        if chosen.iter().any(|known| known.name == found.name) {
            tracing::warn!(registry = found.name, "the registry is named twice, it runs once");
        } else {
            chosen.push(found);
        }
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registries_are_chosen_by_name() {
        let names =
            |list: &[&str]| select(list).map(|found| found.iter().map(|r| r.name).collect::<Vec<_>>());
        assert_eq!(
            names(&["serviceentry", "Kubernetes", "ServiceEntry"]).unwrap(),
            ["ServiceEntry", "Kubernetes"]
        );
        assert_eq!(
            names(&["Zookeeper"]).unwrap_err().to_string(),
            "there is no registry \"Zookeeper\"; known are Kubernetes, ServiceEntry, Memory"
        );
    }
}
