//! The store of registrations on etcd (version 3): several Pilotfishes share it, and any of them serves any client.
//!
//! ```text
//! write ─▶ WriteQueues ─ Attempts ─▶ Plan (pure) ─ transactions that compare ─▶ etcd ─ watch ─▶ View (pure) ─ StoreEvents ─▶
//! renew ─▶ KeepAlives, a third of the TTL apart ──────────────────────────▶
//! ```
//!
//! | Key | What |
//! |---|---|
//! | `PREFIX/instances/NAMESPACE/SERVICE/ID` | a record, without a lease: it stays when its client is silent |
//! | `PREFIX/leases/NAMESPACE/SERVICE/ID` | ends with the lease of the instance: that it goes is its lapse, for every store that watches |
//! | `PREFIX/stores/NAME` | ends with the session of an open store |
//!
//! Revisions are those of etcd. A write is one transaction with others, which compares with what is believed to be there: so a removal
//! for a lapse happens once, and not when another store renewed the lease. It is acknowledged when the own watch has seen it.
//!
//! A store that loses its session says so and answers `Unavailable`; what is known stays. The next session goes to another server and
//! catches up from the revision that was seen, or reads everything where that was compacted. Leases of clients that wanted to be
//! renewed meanwhile begin anew before a lapse is told. So do all leases, where no other store was there to take renewals.

mod anew;
mod follow;
mod keep_alive;
mod keys;
mod plan;
mod queues;
mod runner;
mod session;
mod settings;
mod shared;
mod store;
mod txn;
mod value;
mod view;
mod work;

pub use settings::{ETCD_STORE_OPTIONS, EtcdStoreSettings};
pub use store::EtcdStore;
