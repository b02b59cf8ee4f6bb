//! What a live source tells about itself beside its content: for `/debug/registryz` and metrics, which read it when asked, so that
//! answers without news wake nobody.

use crate::catalog::CatalogProblems;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::SystemTime;

/// The state of a live source, shared between the source and who shows it.
#[derive(Clone, Debug, Default)]
pub struct SourceReport(Arc<Mutex<SourceState>>);

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
    /// Answers held back by the guard against mass change since the start.
    pub holds: u64,
    /// The answer that is held back now.
    pub held: Option<HeldAnswer>,
    /// Objects that a source of objects has; `None` for one that has services.
    pub objects: Option<usize>,
    /// What is wrong with what the product has.
    pub problems: CatalogProblems,
}

/// An answer that would lose too much and waits for a second one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldAnswer {
    /// When it came.
    pub since: SystemTime,
    /// From when on a full read counts as the second answer.
    pub until: SystemTime,
    /// Usable endpoints in force.
    pub before: usize,
    /// Usable endpoints that the answer has.
    pub after: usize,
}

impl SourceReport {
    /// The state now.
    #[must_use]
    pub fn state(&self) -> SourceState {
        self.0.lock().clone()
    }

    /// Changes the state.
    pub fn change(&self, change: impl FnOnce(&mut SourceState)) {
        change(&mut self.0.lock());
    }
}
