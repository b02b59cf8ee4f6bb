//! Instances of Netflix's Eureka: the JSON of its servers and clients, and its decoding.

mod instance;
mod wire;

pub use instance::{Instance, InstanceKey, Status, hash};
pub use wire::{Applications, DataCenterInfo, InstanceInfo, LeaseInfo, Metadata, PortInfo, Text};
