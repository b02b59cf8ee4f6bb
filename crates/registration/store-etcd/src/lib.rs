//! The registration store on etcd (version 3): several Pilotfish processes share it, and each of them serves
//! any client.
//!
//! ```text
//! write ─▶ WriteQueues ─ Attempts ─▶ Plan (pure) ─ transaction ─▶ etcd ─ watch ─▶ View (pure) ─▶ StoreEvents
//! renew ─▶ KeepAlives, a third of the TTL apart ─────────────────▶
//! ```
//!
//! | Key | Content |
//! |---|---|
//! | `PREFIX/instances/NAMESPACE/SERVICE/ID` | a record, not attached to a lease: it outlives its lease |
//! | `PREFIX/leases/NAMESPACE/SERVICE/ID` | attached to the instance's lease: its deletion is the lapse |
//! | `PREFIX/stores/NAME` | attached to the session of an open store |
//!
//! Revisions are those of etcd. Writes are batched into transactions that compare with the expected state: so
//! a removal after a lapse happens once, and not if another store renewed the lease. A write is acknowledged
//! once this store's watch has seen it.
//!
//! A store that loses its session reports it and answers `Unavailable`; its known state stays. The next
//! session uses another server and catches up from the last seen revision, or reads everything if that was
//! compacted. Leases whose clients tried to renew them meanwhile are renewed before lapses are published. If
//! no other store was open to serve renewals, all leases are.

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
