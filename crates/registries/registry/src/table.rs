//! Table of the available registry types by name, in order of precedence.

use crate::live::{LiveSettings, LiveSource};
use crate::objects::{ObjectSettings, ObjectSource};
use crate::{KubernetesRegistry, Registry, RegistrySettings, ServiceEntryRegistry};
use pilotfish_model::Provider;
use pilotfish_runtime::{OptionSpec, OptionsError};

/// Type of registry. A new type needs one of these in the table of the binary.
#[derive(Debug)]
pub struct RegistryType {
    /// Name by which users select the type, compared without regard to case.
    pub name: &'static str,
    /// Name of the provider: Istio's name if there is one, else `name`.
    pub provider: &'static str,
    /// Short description of its content, for `--help`.
    pub about: &'static str,
    /// Placeholder for the address in `--help`, such as `http://HOST:PORT`. Empty for a type that reads
    /// objects.
    pub address: &'static str,
    /// Options of the type and of its kind.
    pub options: &'static [&'static [OptionSpec]],
    /// Source of its content.
    pub input: Input,
}

impl RegistryType {
    /// Returns the options of all groups.
    pub fn all_options(&self) -> impl Iterator<Item = &'static OptionSpec> + use<> {
        self.options.iter().copied().flatten()
    }
}

/// Source of the content of a registry.
#[derive(Clone, Copy, Debug)]
pub enum Input {
    /// Objects of a feed: makes the state machine that turns them into services.
    Objects(fn(Provider, RegistrySettings) -> Box<dyn Registry>),
    /// A source of its own: makes the source, which is then run as a task.
    Live(fn(LiveSettings) -> Result<Box<dyn LiveSource>, OptionsError>),
    /// A part of this process, which adds its source itself.
    Process,
    /// A source of objects, which other registries and translation read; the type has no services itself.
    Source {
        check: fn(LiveSettings) -> Result<(), OptionsError>,
        /// Makes the source, which is then run as a task.
        open: fn(ObjectSettings) -> Result<Box<dyn ObjectSource>, OptionsError>,
    },
}

/// Kubernetes: Services, EndpointSlices and Pods.
pub const KUBERNETES: RegistryType = RegistryType {
    name: "Kubernetes",
    provider: "Kubernetes",
    about: "Services, EndpointSlices and Pods of a cluster",
    address: "",
    options: &[],
    input: Input::Objects(|provider, settings| Box::new(KubernetesRegistry::new(provider, settings))),
};

/// ServiceEntry: Istio's ServiceEntries and WorkloadEntries.
pub const SERVICE_ENTRY: RegistryType = RegistryType {
    name: "ServiceEntry",
    provider: "ServiceEntry",
    about: "Istio's ServiceEntries and WorkloadEntries",
    address: "",
    options: &[],
    input: Input::Objects(|provider, settings| Box::new(ServiceEntryRegistry::new(provider, settings))),
};

/// Registry of services registered with this process.
pub const REGISTRATION: RegistryType = RegistryType {
    name: "registration",
    provider: "registration",
    about: "services that register themselves with this process, see --registration-address",
    address: "",
    options: &[],
    input: Input::Process,
};

/// Available registry types in order of precedence.
#[derive(Clone, Debug)]
pub struct RegistryTable(Vec<(Provider, &'static RegistryType)>);

/// Unknown name of a registry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", pilotfish_config::unknown_name("registry", .name, .known, "pilotfish registries"))]
pub struct UnknownRegistry {
    pub name: String,
    /// Names of all registry types.
    pub known: Vec<&'static str>,
}

impl Default for RegistryTable {
    /// Returns the registry types of this crate, which read objects.
    fn default() -> Self {
        Self::new([&KUBERNETES, &SERVICE_ENTRY])
    }
}

impl RegistryTable {
    /// Returns a table of these types, in order of precedence.
    #[must_use]
    pub fn new(types: impl IntoIterator<Item = &'static RegistryType>) -> Self {
        let rank = |index: usize| u16::try_from(index).unwrap_or(u16::MAX);
        let ranked = |(index, entry): (usize, &'static RegistryType)| {
            (Provider::new(rank(index), entry.provider), entry)
        };
        Self(types.into_iter().enumerate().map(ranked).collect())
    }

    /// Moves the named types to the front, in the given order; the others keep theirs.
    ///
    /// # Errors
    /// When a name is unknown.
    pub fn ordered<S: AsRef<str>>(self, names: &[S]) -> Result<Self, UnknownRegistry> {
        let mut types: Vec<&'static RegistryType> = self.select(names)?.into_iter().map(|(_, t)| t).collect();
        for (_, entry) in self.0 {
            if !types.iter().any(|known| known.name == entry.name) {
                types.push(entry);
            }
        }
        Ok(Self::new(types))
    }

    /// Returns all types with their providers, in order of precedence.
    pub fn iter(&self) -> impl Iterator<Item = (Provider, &'static RegistryType)> {
        self.0.iter().copied()
    }

    /// Finds a type by name.
    ///
    /// # Errors
    /// When the name is unknown.
    pub fn find(&self, name: &str) -> Result<(Provider, &'static RegistryType), UnknownRegistry> {
        let found = self.iter().find(|(_, entry)| entry.name.eq_ignore_ascii_case(name.trim()));
        found.ok_or_else(|| UnknownRegistry {
            name: name.to_owned(),
            known: self.iter().map(|(_, entry)| entry.name).collect(),
        })
    }

    /// Finds types by their names, in the given order. A repeated name counts once, with a warning.
    ///
    /// # Errors
    /// When a name is unknown.
    pub fn select<S: AsRef<str>>(
        &self,
        names: &[S],
    ) -> Result<Vec<(Provider, &'static RegistryType)>, UnknownRegistry> {
        let mut chosen: Vec<(Provider, &'static RegistryType)> = Vec::new();
        for name in names {
            let found = self.find(name.as_ref())?;
            if chosen.iter().any(|(_, known)| known.name == found.1.name) {
                tracing::warn!(registry = found.1.name, "the registry is selected twice; it runs once");
            } else {
                chosen.push(found);
            }
        }
        Ok(chosen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registries_are_chosen_by_name() {
        let table = RegistryTable::default();
        let names = |list: &[&str]| {
            table.select(list).map(|found| found.iter().map(|(_, r)| r.name).collect::<Vec<_>>())
        };
        assert_eq!(
            names(&["serviceentry", "Kubernetes", "ServiceEntry"]).unwrap(),
            ["ServiceEntry", "Kubernetes"]
        );
        assert_eq!(
            names(&["Zookeeper"]).unwrap_err().to_string(),
            "there is no registry \"Zookeeper\"; known are Kubernetes, ServiceEntry"
        );
    }

    #[test]
    fn the_order_gives_the_ranks() {
        let ranks = |table: &RegistryTable| {
            table.iter().map(|(provider, entry)| (provider.rank(), entry.name)).collect::<Vec<_>>()
        };
        let table = RegistryTable::default();
        assert_eq!(ranks(&table), [(0, "Kubernetes"), (1, "ServiceEntry")]);
        let ordered = table.ordered(&["ServiceEntry"]).unwrap();
        assert_eq!(ranks(&ordered), [(0, "ServiceEntry"), (1, "Kubernetes")]);
    }
}
