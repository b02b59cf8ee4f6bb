//! The events of a source of objects.

use crate::registry::ObjectEvent;
use pilotfish_model::Kind;
use std::sync::Arc;
use std::time::SystemTime;

/// One message of a source: a folder of files, an API server, a server of MCP.
#[derive(Clone, Debug)]
pub enum SourceEvent {
    /// An object appeared, changed or is gone.
    Object(ObjectEvent),
    /// A fresh and complete list of a kind begins, after a reconnect: until it ended, nothing is taken away.
    ListBegan(Kind),
    /// The fresh list is complete; objects of the kind that were not in it are gone.
    ListEnded(Kind),
    /// The first complete list was handed over, or a failure is over.
    Synced,
    /// The source cannot be read now. Everything that it sent before stays in force.
    Failed {
        /// When that was noticed.
        at: SystemTime,
        /// Why, in one line.
        reason: Arc<str>,
    },
}
