//! Writes to a cluster: leader elections, statuses of objects, WorkloadEntries of self-registering workloads,
//! ServiceExports, Secrets of certificate authorities, the roots of the mesh, requests to external signers,
//! and Events.
//!
//! Reading is in `pilotfish-kube`, which does not depend on this crate. Status and ServiceExports are written
//! by the leader of an election ([`lease::Leadership`]); WorkloadEntries by every replica, for the workloads
//! that are connected to it.

pub mod auto_registration;
pub mod ca_roots;
pub mod ca_secret;
pub mod events;
pub mod lease;
pub mod service_exports;
pub mod signing_requests;
pub mod status;
