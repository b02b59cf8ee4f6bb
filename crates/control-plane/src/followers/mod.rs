//! Work that follows the published worlds, beside the control loop.
//!
//! ```text
//! control loop ── worlds, history ─▶ analysis, change log, collections (every replica)
//!                                └─▶ status, exports (leading replica) ─▶ API server
//! ```

mod analysis;
mod change_log;
mod collections;
mod exports;
mod status;

pub use analysis::Analysis;
pub use change_log::{ChangeObserver, ChangeWatcher};
pub use collections::publish_configuration;
pub use exports::ServiceExporter;
pub use status::{StatusObserver, StatusPublisher, touches_namespaces};
