//! State of a live source beside its content, for `/debug/registryz` and metrics. They read it on demand, so
//! an answer without changes wakes no task.

use crate::catalog::CatalogProblems;
use parking_lot::Mutex;
use pilotfish_runtime::{HeldLosses, ShownLoss};
use std::sync::Arc;
use std::time::SystemTime;

/// State shared between a live source and the pages and metrics that show it.
#[derive(Clone, Debug, Default)]
pub struct SourceReport {
    state: Arc<Mutex<SourceState>>,
    losses: HeldLosses,
}

/// State of a live source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceState {
    /// Time of the last successful answer, with or without changes. Its age is the maximum lag of the
    /// registry.
    pub last_answer: Option<SystemTime>,
    /// Number of requests sent to the product since the start; for a product that pushes, of its messages.
    pub requests: u64,
    /// Number of sessions since the start. Each session connects and reads everything.
    pub sessions: u64,
    /// Number of sessions that ended with a failure.
    pub failures: u64,
    /// Number of losses held back by the guard since the start; see [`SourceReport::losses`].
    pub holds: u64,
    /// Loss that is held back at present.
    pub held: Option<ShownLoss>,
    /// Number of objects of a source of objects; `None` for a source of services.
    pub objects: Option<usize>,
    /// Problems of the product's entries.
    pub problems: CatalogProblems,
}

impl SourceReport {
    /// Returns the current state.
    #[must_use]
    pub fn state(&self) -> SourceState {
        let state = self.state.lock().clone();
        SourceState { holds: self.losses.holds(), held: self.losses.held(), ..state }
    }

    /// Changes the state under its lock.
    pub fn change(&self, change: impl FnOnce(&mut SourceState)) {
        change(&mut self.state.lock());
    }

    /// Returns the losses that the guard of the source holds back.
    #[must_use]
    pub fn losses(&self) -> &HeldLosses {
        &self.losses
    }
}
