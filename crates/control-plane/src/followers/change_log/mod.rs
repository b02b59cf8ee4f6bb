//! Log of changes and their outcomes, as clients acknowledge them.

mod polling;
mod traces;

use crate::control::Shared;
use crate::history::{Change, ChangeLog, Line, Many, Outcome, RefusedBy, Resolution, Tracker};
use crate::resources::Resources;
use pilotfish_otlp::Traces;
use pilotfish_proto::ResourceType;
use pilotfish_xds::{ClientId, ConnectionStatus, Fanout};
use polling::PollSchedule;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};
use tokio::time::{timeout, timeout_at};

/// Observer of changes on their way to clients, for metrics.
pub trait ChangeObserver: Send + Sync {
    /// A change was published.
    fn change_published(&self, revision: u64);
    /// Sets the revision up to which all changes are acknowledged.
    fn changes_acknowledged(&self, revision: u64);
    /// A change is in force, `after` its publication.
    fn change_in_force(&self, after: Duration);
    /// A change is not in force everywhere before its deadline.
    fn change_late(&self);
}

/// Watcher that tracks changes until all concerned clients have acknowledged them, logs them, and sends
/// traces if these are enabled.
pub struct ChangeWatcher {
    shared: Arc<Shared>,
    fanout: Arc<Fanout<Resources>>,
    observer: Arc<dyn ChangeObserver>,
    tracker: Tracker,
    log: ChangeLog,
    /// Sender of traces, if they are enabled.
    traces: Option<Traces>,
}

impl ChangeWatcher {
    /// Returns a watcher of the changes in the history of `shared`.
    #[must_use]
    pub fn new(
        shared: Arc<Shared>,
        fanout: Arc<Fanout<Resources>>,
        observer: Arc<dyn ChangeObserver>,
        traces: Option<Traces>,
    ) -> Self {
        let (tracker, log) = (Tracker::default(), ChangeLog::default());
        Self { shared, fanout, observer, tracker, log, traces }
    }

    /// Tracks changes, and logs their outcomes. Does not return.
    pub async fn run(mut self) {
        let mut schedule = PollSchedule::new(Instant::now());
        loop {
            for change in self.news(schedule.next()).await {
                schedule.changed(Instant::now(), change.concerned.len(), self.tracker.is_waiting());
                self.observer.change_published(change.revision);
                if let Some(given_up) = self.tracker.add(change) {
                    self.tell(&given_up);
                }
            }
            let began = Instant::now();
            if self.tracker.is_waiting() && schedule.next() <= began {
                let progress = self.fanout.progress_of(&self.tracker.concerned());
                self.tracker.published(self.fanout.revision());
                schedule.polled(began, Instant::now());
                self.tracker.refused(self.shared.history().refusals());
                for change in self.tracker.settle(&progress, SystemTime::now()) {
                    self.tell(&change);
                }
            }
            let newest = self.fanout.revision();
            self.observer.changes_acknowledged(
                self.tracker.oldest().map_or(newest, |oldest| oldest.saturating_sub(1)),
            );
            if let Some(line) = self.log.due(Instant::now()) {
                self.write(line);
            }
        }
    }

    /// Waits for new changes, for `poll`, the time of the next poll of clients, or for a log line that is
    /// due.
    async fn news(&self, poll: Instant) -> Vec<Arc<Change>> {
        let news = self.shared.history().untracked();
        match (self.tracker.is_waiting(), self.log.is_waiting()) {
            (false, false) => news.await,
            (true, _) => timeout_at(poll.into(), news).await.unwrap_or_default(),
            (false, true) => timeout(Duration::from_secs(1), news).await.unwrap_or_default(),
        }
    }

    fn tell(&mut self, change: &Arc<Change>) {
        match &*change.outcome.lock() {
            Some(Outcome::InForce(after)) if !change.concerned.is_empty() => {
                self.observer.change_in_force(*after);
            }
            Some(Outcome::Late { .. }) => self.observer.change_late(),
            _ => {}
        }
        self.trace(change);
        match self.log.add(change, Instant::now()) {
            Some(line) => self.write(line),
            None if change.is_first => {}
            None => {
                let (revision, what, source) = (change.revision, change.summary(), change.sources());
                tracing::debug!(revision, what, source, "published: part of the next summary");
            }
        }
    }

    /// Sends the trace of a change, once.
    fn trace(&self, change: &Change) {
        let Some(traces) = &self.traces else { return };
        let outcome = change.outcome.lock().clone();
        let Some(outcome) = outcome else { return };
        // The trace of a late change has been sent.
        let is_last_word = matches!(outcome, Outcome::InForce(_) | Outcome::Refused { .. });
        if is_last_word && change.was_late.load(Ordering::Relaxed) {
            return;
        }
        let missing = match &outcome {
            Outcome::Late { clients, .. } => Some(names(&self.fanout.acknowledgements().1, clients, change)),
            Outcome::Refused { by, .. } => Some(refused_by(by)),
            Outcome::InForce(_) | Outcome::Unwatched => None,
        };
        traces.send(traces::of_change(change, &outcome, missing, SystemTime::now()));
    }

    fn write(&self, line: Line) {
        match line {
            Line::One(change) => self.write_one(&change),
            Line::Many(many) => write_many(&many),
        }
    }

    fn write_one(&self, change: &Change) {
        let (revision, what, source) = (change.revision, change.summary(), change.sources());
        let proxies = change.concerned.len();
        match change.outcome.lock().clone() {
            Some(Outcome::InForce(_)) if proxies == 0 => {
                tracing::info!(revision, what, source, proxies, "in force: it concerns no connected proxy");
            }
            Some(Outcome::InForce(after)) => {
                let after = rounded(after);
                if change.was_late.load(Ordering::Relaxed) {
                    tracing::info!(revision, what, source, proxies, ?after, "in force at last");
                } else {
                    tracing::info!(revision, what, source, proxies, ?after, "in force");
                }
            }
            Some(Outcome::Late { missing, clients }) => {
                let names = names(&self.fanout.acknowledgements().1, &clients, change);
                tracing::warn!(
                    revision,
                    what,
                    source,
                    proxies,
                    missing,
                    names,
                    "some proxies have not acknowledged a change"
                );
            }
            Some(Outcome::Refused { by, resolution }) => write_refused(change, &by, resolution),
            Some(Outcome::Unwatched) | None => {
                tracing::info!(
                    revision,
                    what,
                    source,
                    proxies,
                    "published; too many changes to see when it is in force"
                );
            }
        }
    }
}

fn write_refused(change: &Change, by: &RefusedBy, resolution: Resolution) {
    let (revision, what, source) = (change.revision, change.summary(), change.sources());
    let (proxies, refused, names) = (change.concerned.len(), by.count(), refused_by(by));
    match resolution {
        Resolution::Accepted(accepted_with) => tracing::info!(
            revision,
            what,
            source,
            proxies,
            refused,
            names,
            accepted_with,
            "in force at last: the proxies that refused the change have accepted it with a later response"
        ),
        Resolution::Superseded(superseded_by) => tracing::warn!(
            revision,
            what,
            source,
            proxies,
            refused,
            names,
            superseded_by,
            "superseded: some proxies refused the change, and it never was in force there"
        ),
        Resolution::Left => tracing::warn!(
            revision,
            what,
            source,
            proxies,
            refused,
            names,
            "the proxies that refused the change have left; it never was in force there"
        ),
    }
}

fn write_many(many: &Many) {
    let Many { revisions: (first, last), changes, configuration, registrations, .. } = many;
    let Many { slowest, late, refused, newest, .. } = many;
    let slowest = rounded(*slowest);
    if late + refused == 0 {
        tracing::info!(
            first,
            last,
            changes,
            configuration,
            registrations,
            ?slowest,
            newest,
            "in force: changes that share this line; pilotfish history lists them"
        );
        return;
    }
    tracing::warn!(
        first,
        last,
        changes,
        configuration,
        registrations,
        late,
        refused,
        ?slowest,
        newest,
        "changes that share this line, not all of them in force everywhere; pilotfish history lists them"
    );
}

/// Formats the clients that refused a change, with the refused types.
fn refused_by(by: &RefusedBy) -> String {
    const FEW: usize = 5;
    let name = |(connection, ty): &(Arc<str>, ResourceType)| format!("{connection} ({})", ty.short());
    by.connections.iter().take(FEW).map(name).collect::<Vec<_>>().join(", ")
}

/// Formats the clients that have not acknowledged a change, with their errors.
fn names(connections: &[ConnectionStatus], clients: &[ClientId], change: &Change) -> String {
    const FEW: usize = 5;
    let missing = connections.iter().filter(|connection| clients.contains(&connection.client));
    let name = |connection: &ConnectionStatus| {
        let name = connection.proxy_name();
        let mut missing = connection.missing(change.revision, change.types_of(connection.client));
        let refused = missing.find_map(|(ty, status)| Some((ty, status.rejection.as_ref()?)));
        match refused {
            Some((ty, _)) => format!("{name} (refused {})", ty.short()),
            None => format!("{name} (pending)"),
        }
    };
    missing.take(FEW).map(name).collect::<Vec<_>>().join(", ")
}

fn rounded(duration: Duration) -> Duration {
    Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}
