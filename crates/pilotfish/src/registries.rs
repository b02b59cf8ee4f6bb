//! The table of registries: all that `--registries` and `--registry` know. A new registry is one more line here.

use pilotfish_registry::{KUBERNETES, RegistryTable, RegistryType, SERVICE_ENTRY};
use pilotfish_zookeeper::ZOOKEEPER;

/// The registries, in the order in which they win where two have a service of the same host.
pub(crate) const REGISTRIES: &[&RegistryType] = &[&KUBERNETES, &SERVICE_ENTRY, &ZOOKEEPER];

/// The table with these and more: for programs that bring registries of their own, after the others.
#[must_use]
pub(crate) fn table_with(more: &[&'static RegistryType]) -> RegistryTable {
    RegistryTable::new(REGISTRIES.iter().chain(more).copied())
}
