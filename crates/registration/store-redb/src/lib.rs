//! The embedded registration store: one file in the data directory.
//!
//! ```text
//! writes ─▶ queue ─▶ writer thread: one transaction for all waiting writes, fsync ─▶ events ─▶ answers
//! ```
//!
//! Acknowledged means durable: a write is answered after its commit was synced to the disk and its events
//! were published. Leases are in memory and restart when the store is opened.
//!
//! Two small files beside it are written in place: `registrations.revision`, the highest acknowledged
//! revision, which detects a file that lost its newest changes; and `registrations.removals`, reserved space
//! for removals on a full disk.

mod codec;
mod error;
mod file;
mod fixed;
mod folder;
mod interner;
mod removals;
mod revision;
mod store;
mod writer;

pub use error::OpenError;
pub use store::{OpenStore, RedbStore};

/// Name of the file in the data directory.
pub const FILE_NAME: &str = "registrations.redb";
