//! The embedded store of registrations: one file under the data directory.
//!
//! ```text
//! writes ─▶ queue ─▶ writer thread: one transaction for all that wait, fsync ─▶ events ─▶ answers
//! ```
//!
//! Acknowledged means durable: a write is answered after the commit that has it was synced to the disk, and after its events were handed
//! on. Leases are in memory and begin anew when the store is opened.

mod codec;
mod error;
mod file;
mod interner;
mod store;
mod writer;

pub use error::OpenError;
pub use store::{OpenStore, RedbStore};

/// The name of the file in the data directory.
pub const FILE_NAME: &str = "registrations.redb";
