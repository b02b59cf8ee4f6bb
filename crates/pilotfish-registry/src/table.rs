//! The table of registries: what there is to run, by name, and the order in which they win.

use crate::catalog::RegistryOption;
use crate::live::{LiveSettings, LiveSettingsError, LiveSource};
use crate::objects::{ObjectSettings, ObjectSource};
use crate::{KubernetesRegistry, Registry, RegistrySettings, ServiceEntryRegistry};
use pilotfish_model::Provider;

/// One type of registry. A new one is one more of these in the table of the binary.
#[derive(Debug)]
pub struct RegistryType {
    /// The name by which it is chosen; compared without regard to case.
    pub name: &'static str,
    /// The name of its provider: Istio's where Istio has one, else the same name.
    pub provider: &'static str,
    /// What it reads, in a few words, for `--help`.
    pub about: &'static str,
    /// The shape of its address, for `--help`: `http://HOST:PORT`. Empty for one that reads objects.
    pub address: &'static str,
    /// Its options, with those that all of its kind have.
    pub options: &'static [&'static [RegistryOption]],
    /// Where its content comes from.
    pub input: Input,
}

impl RegistryType {
    /// All options.
    pub fn all_options(&self) -> impl Iterator<Item = &'static RegistryOption> + use<> {
        self.options.iter().copied().flatten()
    }
}

/// Where the content of a registry comes from.
#[derive(Clone, Copy, Debug)]
pub enum Input {
    /// From the objects of a feed: makes the state machine that turns them into services.
    Objects(fn(Provider, RegistrySettings) -> Box<dyn Registry>),
    /// From a source of its own: makes the source, which is then run as a task.
    Live(fn(LiveSettings) -> Result<Box<dyn LiveSource>, LiveSettingsError>),
    /// It is part of this process: whoever opens it adds its source.
    Process,
    /// It has none: it brings objects, which other registries and translation read.
    Source {
        /// Tells what is wrong with the settings.
        check: fn(LiveSettings) -> Result<(), LiveSettingsError>,
        /// Makes the source, which is then run as a task.
        open: fn(ObjectSettings) -> Result<Box<dyn ObjectSource>, LiveSettingsError>,
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

/// The registries that there are, in the order in which they win.
#[derive(Clone, Debug)]
pub struct RegistryTable(Vec<(Provider, &'static RegistryType)>);

/// A name that no registry has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", pilotfish_config::unknown_name("registry", .name, .known, "pilotfish registries"))]
pub struct UnknownRegistry {
    /// The name.
    pub name: String,
    /// The names that there are.
    pub known: Vec<&'static str>,
}

impl Default for RegistryTable {
    /// The registries of this crate, which read objects.
    fn default() -> Self {
        Self::new([&KUBERNETES, &SERVICE_ENTRY])
    }
}

impl RegistryTable {
    /// A table of these types: where they disagree, an earlier one wins.
    #[must_use]
    pub fn new(types: impl IntoIterator<Item = &'static RegistryType>) -> Self {
        let rank = |index: usize| u16::try_from(index).unwrap_or(u16::MAX);
        let ranked = |(index, entry): (usize, &'static RegistryType)| {
            (Provider::new(rank(index), entry.provider), entry)
        };
        Self(types.into_iter().enumerate().map(ranked).collect())
    }

    /// The same table with the named types first, in the order given; the others follow as they were.
    ///
    /// # Errors
    /// When there is no registry of a name.
    pub fn ordered<S: AsRef<str>>(self, names: &[S]) -> Result<Self, UnknownRegistry> {
        let mut types: Vec<&'static RegistryType> = self.select(names)?.into_iter().map(|(_, t)| t).collect();
        for (_, entry) in self.0 {
            if !types.iter().any(|known| known.name == entry.name) {
                types.push(entry);
            }
        }
        Ok(Self::new(types))
    }

    /// All types with their providers, the winning ones first.
    pub fn iter(&self) -> impl Iterator<Item = (Provider, &'static RegistryType)> {
        self.0.iter().copied()
    }

    /// The type of that name.
    ///
    /// # Errors
    /// When there is none.
    pub fn find(&self, name: &str) -> Result<(Provider, &'static RegistryType), UnknownRegistry> {
        let found = self.iter().find(|(_, entry)| entry.name.eq_ignore_ascii_case(name.trim()));
        found.ok_or_else(|| UnknownRegistry {
            name: name.to_owned(),
            known: self.iter().map(|(_, entry)| entry.name).collect(),
        })
    }

    /// The types of some names, in the order given. A name that is given twice counts once, with a warning.
    ///
    /// # Errors
    /// When there is no registry of a name.
    pub fn select<S: AsRef<str>>(
        &self,
        names: &[S],
    ) -> Result<Vec<(Provider, &'static RegistryType)>, UnknownRegistry> {
        let mut chosen: Vec<(Provider, &'static RegistryType)> = Vec::new();
        for name in names {
            let found = self.find(name.as_ref())?;
            if chosen.iter().any(|(_, known)| known.name == found.1.name) {
                tracing::warn!(registry = found.1.name, "the registry is named twice, it runs once");
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
