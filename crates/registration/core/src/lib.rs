//! Registration of services by their instances: instances, leases, the directory, and the contract of stores.
//!
//! ```text
//! Registration ─ validate ─▶ Instance ─ Registrar ─▶ Store (durable) ─ StoreEvent ─▶ Directory ─┬─▶ lists
//!                                                                                               ├─▶ watches
//!                                                                                               └─▶ model
//! ```
//!
//! Data flows in one direction: memory is changed only by store events, so everything visible is durable. No
//! wall clock is stored or compared.

mod clock;
mod directory;
mod health;
mod history;
mod instance;
mod leases;
pub mod limits;
mod liveness;
mod registrar;
mod registration;
mod store;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod text_map;
mod texts;
mod validate;
mod violations;

pub use clock::RunningClock;
pub use directory::{Counts, Directory, Filter, Listing};
pub use health::{Health, InstanceView};
pub use history::WatchEvent;
pub use instance::{Check, CheckKind, Instance, InstanceKey, Port, Record, RecordState, ServiceKey};
pub use leases::{LeaseEvent, LeaseTable};
pub use limits::Limits;
pub use liveness::LivenessSettings;
pub use pilotfish_model::{SpecialAddress, destination_of};
pub use registrar::{
    Caller, CheckResult, Deregister, Deregistered, Register, Registered, Registrar, RegistrarDriver,
    RegistrarError, RegistrarSettings, RegistrarStats, RenewalError, ServiceChanges, ServicesChanged, Watch,
    WatchBatch, WatchError, WatchFrom,
};
pub use registration::{Registration, RegistrationCheck, RegistrationCheckKind, RegistrationPort};
pub use store::{
    Expected, RenewError, Store, StoreDescription, StoreEvent, StoreEventSender, StoreEvents, Value, Write,
    WriteError, Written, store_events,
};
pub use text_map::TextMap;
pub use validate::{check_host, check_short_host, instance_key, is_label, service_key};
pub use violations::{FieldViolation, Violations};
