//! Service registries, and the aggregate controller that merges them.
//!
//! There are two types of registries. A registry that **reads objects** (Kubernetes, ServiceEntry) is a state
//! machine without IO that implements [`Registry`]; [`AggregateController`] passes it the objects of its
//! feed. A registry with a **source of its own** has no state machine: its [`LiveSource`] implements the
//! protocol of its product and sends [`RegistryBatch`]es. Either is a [`RegistryType`] in the table of
//! registries. docs/design/registries.md walks through a complete one.

mod aggregate;
mod catalog;
mod kubernetes;
mod labels;
mod links;
mod live;
mod networks;
mod objects;
mod pool;
mod registry;
mod report;
mod selector;
mod service_entry;
mod settings;
mod table;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use aggregate::{
    AggregateController, AggregateSettings, Applied, Conflict, MergePolicy, NoLiveRegistry, NotSynced,
    ReadObject, RegistryStatus, UnknownSource, WhatIf,
};
pub use catalog::{
    CATALOG_OPTIONS, Catalog, CatalogDefaults, CatalogInstance, CatalogOptions, CatalogPort, CatalogProblems,
    CatalogService, Change, GUARD_OPTION, GUARD_WAIT_OPTION, InstancePort, MAX_INSTANCES, MAX_SERVICES,
    hostname,
};
pub use kubernetes::KubernetesRegistry;
pub use live::{
    LiveInput, LiveSettings, LiveSource, RegistryBatch, RegistryReceiver, RegistrySender, channel,
};
pub use objects::{BatchSender, Delivery, ObjectSettings, ObjectSource};
pub use pilotfish_runtime::{
    Failure, GuardSettings, Health, HeldLoss, OptionSpec, OptionValues, OptionsError, ShownLoss,
};
pub use registry::{
    Import, Mesh, ObjectEvent, RefusedObject, Registry, RegistryOutput, RegistryUpdate, WorkloadChange,
};
pub use report::{SourceReport, SourceState};
pub use selector::SelectorIndex;
pub use service_entry::{NAMESPACE_ENDPOINTS, ServiceEntryRegistry, endpoint_count};
pub use settings::{MultiClusterServices, RegistrySettings};
pub use table::{
    Input, KUBERNETES, REGISTRATION, RegistryTable, RegistryType, SERVICE_ENTRY, UnknownRegistry,
};
