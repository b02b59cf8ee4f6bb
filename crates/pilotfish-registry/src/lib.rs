//! Service registries as state machines, and the hub that merges them.
//!
//! A registry turns objects (or inputs of its own) into services, endpoints and workloads of the model. It does no IO and
//! asks no clock; [`Hub`] owns the registries, brings them what they want to know, and merges what they say into the
//! updates of the world. See the hub's description for the way of the data.
//!
//! A new registry is one module that implements [`Registry`], and one line in [`REGISTRIES`].

mod hub;
mod kubernetes;
mod labels;
mod links;
mod memory;
mod networks;
mod pool;
mod registry;
mod selector;
pub mod service_entry;
mod settings;
mod source;
mod table;
pub mod testing;

pub use hub::{Hub, HubSettings, NotSynced, RegistryStatus, UnknownSource};
pub use kubernetes::KubernetesRegistry;
pub use memory::MemoryRegistry;
pub use registry::{
    Failure, Import, Mesh, ObjectEvent, Registry, RegistryOutput, RegistryUpdate, SyncStatus, WorkloadChange,
};
pub use service_entry::ServiceEntryRegistry;
pub use settings::{MultiClusterServices, RegistrySettings};
pub use source::SourceEvent;
pub use table::{REGISTRIES, RegistryType, UnknownRegistry, select};
