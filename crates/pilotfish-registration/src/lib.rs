//! Services that register themselves: instances, leases, the directory, and the contract of stores.
//!
//! ```text
//! Registration ─ validate ─▶ Instance ─ Registrar ─▶ Store (durable) ─ StoreEvent ─▶ Directory ─▶ lists, watches, the world
//! ```
//!
//! One direction: memory is changed by events of the store only, so what can be seen is durable. No wall clock is stored or
//! compared.

mod instance;
pub mod limits;
mod registration;
mod store;
mod validate;
mod violations;

pub use instance::{Check, CheckKind, Instance, InstanceKey, Port, Record, RecordState, ServiceKey};
pub use limits::Limits;
pub use registration::{Registration, RegistrationCheck, RegistrationCheckKind, RegistrationPort};
pub use store::{
    Expected, RenewError, Store, StoreDescription, StoreEvent, StoreEventSender, StoreEvents, Value, Write,
    WriteError, Written, store_events,
};
pub use validate::{instance_key, service_key};
pub use violations::{FieldViolation, Violations};
