//! What a session tells.

use crate::SessionError;
use pilotfish_model::ShardKey;
use pilotfish_registry::{Catalog, CatalogService, Change, RegistrySender, SourceReport};
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::watch;
use tokio::time::Instant;

/// Takes what a session finds, and sends what differs. Never waits.
pub struct CatalogWriter {
    catalog: Catalog,
    sender: RegistrySender,
    /// Until when an answer is held back, for the one who begins sessions.
    held: watch::Sender<Option<Instant>>,
    has_answered: bool,
    /// Why the product cannot be read now.
    failure: Option<Arc<str>>,
}

impl CatalogWriter {
    pub(crate) fn new(catalog: Catalog, sender: RegistrySender) -> Self {
        Self { catalog, sender, held: watch::Sender::new(None), has_answered: false, failure: None }
    }

    /// Tells everything that the product has: a full and good answer. What it does not name is gone.
    pub fn replace(&mut self, services: Vec<CatalogService>) {
        let change = self.catalog.replace(services, Instant::now().into_std());
        self.publish(change);
    }

    /// Tells some services, each as a whole, and the ids of services that are gone. Counts after a [`CatalogWriter::replace`] of the
    /// same session only.
    pub fn apply(&mut self, set: Vec<CatalogService>, removed: Vec<Arc<str>>) {
        let change = self.catalog.apply(set, removed, Instant::now().into_std());
        self.publish(change);
    }

    /// Tells that the product answered well and had no news.
    pub fn answered(&mut self) {
        self.has_answered = true;
        self.report().change(|state| state.last_answer = Some(SystemTime::now()));
    }

    /// Tells that something of the product's, by its name there, cannot be used although the answer is good; `None` when it can be again.
    /// It is shown and logged with what is wrong with services. The next answer that is told shows it.
    pub fn note(&mut self, id: &Arc<str>, problem: Option<Arc<str>>) {
        self.catalog.note(id, problem);
    }

    /// Tells of trouble that does not end the session, for example one of many watches that fails. What was told stays in force.
    pub fn failing(&mut self, reason: impl Into<SessionError>) {
        let reason: Arc<str> = reason.into().to_string().into();
        if self.failure.as_ref() != Some(&reason) {
            self.sender.failed(reason.clone());
            self.failure = Some(reason);
        }
    }

    /// Tells that the trouble is over.
    pub fn recovered(&mut self) {
        if self.failure.take().is_some() {
            self.sender.synced();
        }
    }

    /// The registry that is written to, for the log.
    #[must_use]
    pub fn registry(&self) -> &ShardKey {
        self.catalog.shard()
    }

    /// Counts a request to the product, or a message from one that pushes.
    pub fn requested(&self) {
        self.report().change(|state| state.requests += 1);
    }

    /// What the source tells about itself: to count requests where the writer is not at hand.
    #[must_use]
    pub fn report(&self) -> &SourceReport {
        self.sender.report()
    }

    /// A session begins.
    pub(crate) fn begin(&mut self) -> watch::Receiver<Option<Instant>> {
        self.has_answered = false;
        self.report().change(|state| state.sessions += 1);
        self.held.subscribe()
    }

    /// Takes the next full answer as the second one of what is held back: an operator accepts it.
    pub(crate) fn accept(&mut self) {
        self.catalog.accept(Instant::now().into_std());
    }

    /// Whether the product answered well in this session.
    pub(crate) const fn has_answered(&self) -> bool {
        self.has_answered
    }

    /// The session ended.
    pub(crate) fn end(&mut self, error: &SessionError) {
        self.report().change(|state| state.failures += 1);
        self.failing(error.clone());
    }

    fn publish(&mut self, change: Change) {
        self.answered();
        if let Change::Batch(batch) = change {
            self.sender.send(batch);
        }
        // Also where the answer is held back: the product can be read.
        self.recovered();
        self.show();
    }

    /// Shows what is wrong and what is held back.
    fn show(&self) {
        let problems = self.catalog.problems();
        self.report().change(|state| state.problems = problems);
        let held = self.catalog.held();
        self.report().losses().set(&self.catalog.shard().to_string(), "endpoints", held);
        let until = held.map(|held| Instant::from_std(held.until));
        self.held.send_if_modified(|known| std::mem::replace(known, until) != until);
    }
}
