//! What Pilotfish writes to a cluster: who may write (elections), the status of objects, WorkloadEntries of workloads that register
//! themselves, ServiceExports, and Events.
//!
//! Reading is `pilotfish-kube`, which knows nothing of this crate. Status and ServiceExports are written by one replica, which its
//! [`lease::Leadership`] elects; WorkloadEntries by every replica, for the workloads that are connected to it.

pub mod auto_registration;
pub mod events;
pub mod lease;
pub mod service_exports;
pub mod status;
