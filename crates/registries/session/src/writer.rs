//! The output of a session: catalog changes and source state.

use crate::SessionError;
use pilotfish_registry::{Catalog, CatalogService, Change, RegistrySender, SourceReport};
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::watch;
use tokio::time::Instant;

/// Receives what a session reads, and publishes the differences. Never waits.
pub struct CatalogWriter {
    catalog: Catalog,
    sender: RegistrySender,
    /// Deadline of a held-back answer, for the task that starts sessions.
    held: watch::Sender<Option<Instant>>,
    has_answered: bool,
    /// The current read error of the product.
    failure: Option<Arc<str>>,
}

impl CatalogWriter {
    pub(crate) fn new(catalog: Catalog, sender: RegistrySender) -> Self {
        Self { catalog, sender, held: watch::Sender::new(None), has_answered: false, failure: None }
    }

    /// Publishes a full answer: all services of the product. Services missing from it are removed.
    pub fn replace(&mut self, services: Vec<CatalogService>) {
        let change = self.catalog.replace(services, Instant::now().into_std());
        self.publish(change);
    }

    /// Publishes changed services, each with all its instances, and the ids of removed services. Requires a
    /// [`CatalogWriter::replace`] earlier in the same session.
    pub fn apply(&mut self, set: Vec<CatalogService>, removed: Vec<Arc<str>>) {
        let change = self.catalog.apply(set, removed, Instant::now().into_std());
        self.publish(change);
    }

    /// Records a successful answer without changes.
    pub fn answered(&mut self) {
        self.has_answered = true;
        self.report().change(|state| state.last_answer = Some(SystemTime::now()));
    }

    /// Records an unusable object of the product, by its name there; `None` when it is usable again. It is
    /// shown and logged with the problems of services, from the next published answer on.
    pub fn note(&mut self, id: &Arc<str>, problem: Option<Arc<str>>) {
        self.catalog.note(id, problem);
    }

    /// Records an error that does not end the session, for example one of many failing watches. Published
    /// services stay in force.
    pub fn failing(&mut self, reason: impl Into<SessionError>) {
        let reason: Arc<str> = reason.into().to_string().into();
        if self.failure.as_ref() != Some(&reason) {
            self.sender.failed(reason.clone());
            self.failure = Some(reason);
        }
    }

    /// Clears the error of [`Self::failing`].
    pub fn recovered(&mut self) {
        if self.failure.take().is_some() {
            self.sender.synced();
        }
    }

    /// Counts a request to the product, or a message from one that pushes.
    pub fn requested(&self) {
        self.report().change(|state| state.requests += 1);
    }

    /// The state report of the source, to count requests where the writer is not available.
    #[must_use]
    pub fn report(&self) -> &SourceReport {
        self.sender.report()
    }

    /// Marks the start of a session.
    pub(crate) fn begin(&mut self) -> watch::Receiver<Option<Instant>> {
        self.has_answered = false;
        self.report().change(|state| state.sessions += 1);
        self.held.subscribe()
    }

    /// Accepts what is held back with the next full answer, on the order of an operator.
    pub(crate) fn accept(&mut self) {
        self.catalog.accept(Instant::now().into_std());
    }

    /// True once the product answered in this session.
    pub(crate) const fn has_answered(&self) -> bool {
        self.has_answered
    }

    /// Marks the end of a session with its error.
    pub(crate) fn end(&mut self, error: &SessionError) {
        self.report().change(|state| state.failures += 1);
        self.failing(error.clone());
    }

    fn publish(&mut self, change: Change) {
        self.answered();
        if let Change::Batch(batch) = change {
            self.sender.send(batch);
        }
        // A held-back answer also shows that the product can be read.
        self.recovered();
        self.show();
    }

    /// Publishes the problems and the held-back answer in the state report.
    fn show(&self) {
        let problems = self.catalog.problems();
        self.report().change(|state| state.problems = problems);
        let held = self.catalog.held();
        self.report().losses().set(&self.catalog.shard().to_string(), "endpoints", held);
        let until = held.map(|held| Instant::from_std(held.until));
        self.held.send_if_modified(|known| std::mem::replace(known, until) != until);
    }
}
