//! What a live source tells about itself beside its content: for `/debug/registryz` and metrics, which read it when asked, so that
//! answers without news wake nobody.

use crate::catalog::CatalogProblems;
use parking_lot::Mutex;
use pilotfish_source::{HeldLosses, ShownLoss};
use std::sync::Arc;
use std::time::SystemTime;

/// The state of a live source, shared between the source and who shows it.
#[derive(Clone, Debug, Default)]
pub struct SourceReport {
    state: Arc<Mutex<SourceState>>,
    losses: HeldLosses,
}

/// How a live source is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceState {
    /// When the product last answered well, with or without news. Its age is how far the registry may lag behind.
    pub last_answer: Option<SystemTime>,
    /// Requests sent to the product since the start; with a product that pushes, messages.
    pub requests: u64,
    /// Sessions that began since the start: each connects and reads everything.
    pub sessions: u64,
    /// Sessions that ended with a failure.
    pub failures: u64,
    /// Losses held back by the guard since the start; see [`SourceReport::losses`].
    pub holds: u64,
    /// Loss that is held back now.
    pub held: Option<ShownLoss>,
    /// Objects that a source of objects has; `None` for one that has services.
    pub objects: Option<usize>,
    /// What is wrong with what the product has.
    pub problems: CatalogProblems,
}

impl SourceReport {
    /// The state now.
    #[must_use]
    pub fn state(&self) -> SourceState {
        let state = self.state.lock().clone();
        SourceState { holds: self.losses.holds(), held: self.losses.held(), ..state }
    }

    /// Changes the state.
    pub fn change(&self, change: impl FnOnce(&mut SourceState)) {
        change(&mut self.state.lock());
    }

    /// The losses that the guard of the source holds back.
    #[must_use]
    pub fn losses(&self) -> &HeldLosses {
        &self.losses
    }
}
