//! The embedded store of registrations: one file under the data directory.
//!
//! ```text
//! writes ─▶ queue ─▶ writer thread: one transaction for all that wait, fsync ─▶ events ─▶ answers
//! ```
//!
//! Acknowledged means durable: a write is answered after the commit that has it was synced to the disk, and
//! after its events were handed on. Leases are in memory and start again when the store is opened.
//!
//! Two small files beside it are written in place: `registrations.revision`, the highest revision that was
//! acknowledged, which finds a file that lost its newest changes; and `registrations.removals`, space for
//! removals on a full disk.

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

/// The name of the file in the data directory.
pub const FILE_NAME: &str = "registrations.redb";
