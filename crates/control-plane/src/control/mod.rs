//! The control loop, sole owner of the registries and of the world.
//!
//! ```text
//! sources ─ batches ─▶ AggregateController ─▶ Debouncer ─▶ WorldWriter ─▶ Translator ─▶ Fanout ─▶ streams
//! ```
//!
//! It runs on a thread of its own, so that computing the effects of a new world never takes a thread from the
//! streams.
//!
//! [`Control::step`] is the whole loop body: it blocks on nothing, and its decisions depend on no clock.
//! [`Control::run`] supplies messages and the time; a simulation can supply both.

mod backlog;
mod changed;
mod debouncer;
mod findings;
mod fork;
mod gateway_names;
mod liveness;
mod lookups;
mod observer;
mod remote;
mod report_log;
mod shared;
#[cfg(test)]
mod tests;
mod trouble;

pub use debouncer::{Window, Windows};
pub use findings::{Findings, PlacedFinding};
pub use fork::{Fork, Supposed};
pub use gateway_names::LookupResult;
pub use liveness::watch_silences;
pub use lookups::resolve_gateways;
pub use observer::{ControlObserver, Inbound, Trigger};
pub use remote::{REMOTE_SECRETS, RemoteRegistries, cluster_source};
pub use shared::{Follower, Shared, effective, time};
pub use trouble::{Silence, problem, unusable_entries};

use crate::control::backlog::{Backlog, Source};
use crate::control::debouncer::Debouncer;
use crate::control::gateway_names::{Answered, GatewayNames};
use crate::control::remote::feed_of;
use crate::history::{Began, Published};
use crate::resources::{Resources, publication};
use pilotfish_config::networking::MAX_CONDITIONS;
use pilotfish_config::{
    Effective, MeshFile, ProblemReport, Severity, SourceBatch, SourceEvent, SourceProblems,
};
use pilotfish_kube::access_review::Verdict;
use pilotfish_kube::remote::{ClusterGeneration, RemoteEvent};
use pilotfish_model::ShardKey;
use pilotfish_model::{Kind, NetworkGateway, ObjectKey, Revision, Update, WorldWriter};
use pilotfish_registry::{AggregateController, LiveInput, NoLiveRegistry, ReadObject, RefusedObject};
use pilotfish_runtime::{Health, Jitter};
use pilotfish_translate::{RefusedDelegate, Translator};
use pilotfish_xds::Fanout;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::mpsc;

/// Messages to the control loop.
pub enum ControlMessage {
    /// A batch of a source of objects.
    Batch {
        /// The feed of the source.
        feed: Arc<str>,
        /// Name of the source.
        source: Arc<str>,
        /// Events in order, and problems.
        batch: SourceBatch,
    },
    /// An event of remote clusters.
    Remote(RemoteEvent),
    /// Content or health from the source of a live registry.
    Registry { shard: ShardKey, input: LiveInput },
    /// The timeout of readiness for the first list of a live registry.
    RegistryTimeout(ShardKey),
    /// Request for a copy of the state, for a dry run.
    Fork { answer: std::sync::mpsc::SyncSender<Box<Fork>> },
    /// Request for an object as it was read. It is answered once everything that was read before the request
    /// is published.
    Read { key: ObjectKey, answer: std::sync::mpsc::SyncSender<ReadObject> },
    /// The tags of the revision whose objects are read have changed.
    Revision(Revision),
    /// Verdict of an API server on the right of a service account to read Secrets.
    SecretAccess(Verdict),
    /// A lookup of [`Outputs::lookups`] has ended.
    GatewayName {
        /// The name of a gateway between networks.
        name: Arc<str>,
        /// Its addresses, or the reason of the failure.
        result: LookupResult,
    },
}

/// Interval of dropping results of disconnected proxies, and maximum interval of the loop's heartbeat.
const TIDY: Duration = Duration::from_secs(1);
/// Number of tidy rounds after which all results are checked, if nothing was published since the last round.
const TIDY_ALL: u32 = 10;

/// Maximum number of messages that are handled before the next step.
const TAKEN_AT_ONCE: usize = 64;

/// A request that waits until everything before it is published.
struct Question {
    key: ObjectKey,
    asked: Instant,
    answer: std::sync::mpsc::SyncSender<ReadObject>,
}

/// Maximum number of waiting requests. Further ones are dropped without an answer, as are those after the end
/// of the loop.
const QUESTIONS: usize = 64;

/// The time of a step.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Monotonic time, for deadlines.
    pub instant: Instant,
    /// Wall-clock time, for display.
    pub time: SystemTime,
}

impl Now {
    /// The time of this machine.
    #[must_use]
    pub fn read() -> Self {
        Self { instant: Instant::now(), time: SystemTime::now() }
    }
}

/// Receivers of a new world.
pub struct Outputs {
    /// Translates the world into resources.
    pub translator: Arc<Translator>,
    /// Resources, served from the first complete lists on.
    pub resources: Arc<Resources>,
    /// Wakes the streams whose resources changed.
    pub fanout: Arc<Fanout<Resources>>,
    /// State that the admin API and followers of worlds read.
    pub shared: Arc<Shared>,
    /// Receives the names of gateways between networks to look up; each must be answered with a
    /// [`ControlMessage::GatewayName`]. Without it, such gateways are left out.
    pub lookups: Option<mpsc::UnboundedSender<Arc<str>>>,
}

/// The state of the loop.
pub struct Control {
    controller: AggregateController,
    /// Registries of remote clusters.
    remote: RemoteRegistries,
    /// Source events that wait to be applied.
    backlog: Backlog,
    debouncer: Debouncer,
    writer: WorldWriter,
    /// The gateways between networks as registries name them.
    gateways: Arc<[NetworkGateway]>,
    names: GatewayNames,
    /// Problems of gateway names, as last reported.
    unresolved: Vec<String>,
    outputs: Outputs,
    observer: Arc<dyn ControlObserver>,
    /// Refused delegates, as last reported.
    refused: Arc<Vec<RefusedDelegate>>,
    /// Objects that registries refused, as last reported.
    refused_objects: Vec<Arc<[RefusedObject]>>,
    /// True if sources have delivered any object other than mesh-wide settings.
    has_objects: bool,
    /// True if the registries' state may differ from the published one by more than counts of objects.
    registries_changed: bool,
    /// Requests that are not answered yet.
    questions: Vec<Question>,
    /// True if a world was published since results were last tidied.
    published: bool,
    /// Number of tidy rounds since all results were checked.
    tidied: u32,
}

impl Control {
    /// A loop over those registries, with an empty world.
    #[must_use]
    pub fn new(
        controller: AggregateController,
        remote: RemoteRegistries,
        windows: Windows,
        outputs: Outputs,
        observer: Arc<dyn ControlObserver>,
    ) -> Self {
        outputs.shared.set_revision(controller.revision().clone());
        outputs.shared.set_registries(&controller);
        let (debouncer, writer) = (Debouncer::new(windows), WorldWriter::new());
        Self {
            controller,
            remote,
            backlog: Backlog::default(),
            debouncer,
            writer,
            gateways: Arc::default(),
            names: GatewayNames::new(Jitter::default()),
            unresolved: Vec::new(),
            outputs,
            observer,
            refused: Arc::default(),
            refused_objects: Vec::new(),
            has_objects: false,
            registries_changed: false,
            questions: Vec::new(),
            published: false,
            tidied: 0,
        }
    }

    /// Runs until every source has ended.
    pub async fn run(mut self, mut messages: mpsc::Receiver<ControlMessage>) {
        let mut next = None;
        let mut tidy = tokio::time::interval(TIDY);
        tidy.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            self.outputs.shared.pulse().beat(Instant::now());
            // All available messages are handled before anything is computed: costly events only enter the
            // queue of their namespace.
            for message in std::iter::from_fn(|| messages.try_recv().ok()).take(TAKEN_AT_ONCE) {
                self.handle(message, Now::read());
                next = Some(Instant::now());
            }
            let due = async {
                match next {
                    Some(due) => tokio::time::sleep_until(Instant::into(due)).await,
                    None => std::future::pending().await,
                }
            };
            let message = tokio::select! {
                biased;
                message = messages.recv() => match message {
                    Some(message) => Some(message),
                    None => return,
                },
                () = due => None,
                _ = tidy.tick() => {
                    self.tidy();
                    continue;
                }
            };
            next = self.step(message, Now::read());
        }
    }

    /// Drops unused results: periodically all of them, if that delays no publication.
    fn tidy(&mut self) {
        let is_quiet = !std::mem::take(&mut self.published);
        self.tidied += 1;
        if is_quiet && self.tidied >= TIDY_ALL {
            self.tidied = 0;
            self.outputs.translator.tidy_all();
        } else {
            self.outputs.translator.tidy();
        }
    }

    /// Handles a message, if there is one, and publishes due changes. Returns when the next step is due even
    /// without a message.
    pub fn step(&mut self, message: Option<ControlMessage>, now: Now) -> Option<Instant> {
        if let Some(message) = message {
            self.handle(message, now);
        }
        self.work(now.instant);
        self.look_up(now.instant);
        self.publish(now.instant);
        self.answer_questions();
        if std::mem::take(&mut self.registries_changed) {
            self.outputs.shared.set_registries(&self.controller);
        }
        if !self.backlog.is_empty() {
            return Some(now.instant);
        }
        // Before the first complete lists no change is due.
        let changes = self.debouncer.next_due().filter(|_| self.outputs.resources.is_ready());
        changes.into_iter().chain(self.names.next()).min()
    }

    /// Answers requests that are older than everything that waits to be published.
    fn answer_questions(&mut self) {
        if self.questions.is_empty() || !self.outputs.resources.is_ready() {
            return;
        }
        let oldest = [self.debouncer.oldest(), self.backlog.oldest()].into_iter().flatten().min();
        let is_due = |question: &mut Question| oldest.is_none_or(|oldest| question.asked < oldest);
        for question in self.questions.extract_if(.., is_due) {
            // The receiver is gone if the answer took too long.
            let _ = question.answer.try_send(self.controller.read_object(&question.key));
        }
    }

    /// Requests lookups of the names that are due.
    fn look_up(&mut self, now: Instant) {
        let Some(lookups) = &self.outputs.lookups else { return };
        for name in self.names.take_due(now) {
            // An error means that the resolver has ended, and with it the process.
            let _ = lookups.send(name);
        }
    }

    /// Updates the names of gateways between networks, and resolves those with known addresses.
    fn resolve(&mut self, update: Update, now: Instant) -> Update {
        match update {
            Update::NetworkGateways(gateways) => {
                if self.outputs.lookups.is_some() {
                    self.names.want(&gateways, now);
                    self.report_names();
                }
                self.gateways = gateways;
                Update::NetworkGateways(self.names.resolve(&self.gateways))
            }
            other => other,
        }
    }

    /// A copy of the state, without updates that wait to be published.
    fn fork(&self) -> Fork {
        Fork { controller: self.controller.clone(), writer: self.writer.fork(), names: self.names.clone() }
    }

    fn handle_name(&mut self, name: &Arc<str>, result: LookupResult, now: Instant) {
        let answered = self.names.answer(name, result, now);
        self.report_names();
        if answered == Answered::Changed {
            self.debouncer.push(vec![Update::NetworkGateways(self.names.resolve(&self.gateways))], now);
        }
    }

    fn report_names(&mut self) {
        let problems = self.names.problems();
        if problems != self.unresolved {
            self.observer.unresolved_gateways(problems.len());
            self.outputs.shared.set_gateway_problems(problems.clone());
            self.unresolved = problems;
        }
    }

    fn handle(&mut self, message: ControlMessage, now: Now) {
        match message {
            ControlMessage::Batch { feed, source, batch } => {
                self.handle_problems(&source, &batch);
                self.handle_batch(&(feed, source), batch, now.instant);
            }
            ControlMessage::Remote(event) => self.handle_remote(event, now),
            ControlMessage::Registry { shard, input } => {
                if let Err(error) = self.handle_live(&shard, input, now.time) {
                    tracing::error!(%error, "message of a live source dropped");
                }
            }
            ControlMessage::RegistryTimeout(shard) => {
                if self.controller.give_up(&shard) {
                    tracing::warn!(
                        registry = %shard,
                        "readiness no longer waits for this registry; what it sends later counts"
                    );
                }
                self.registries_changed = true;
            }
            ControlMessage::Fork { answer } => {
                // The receiver is gone if the answer took too long.
                let _ = answer.try_send(Box::new(self.fork()));
            }
            ControlMessage::Read { key, answer } => {
                if self.questions.len() < QUESTIONS {
                    self.questions.push(Question { key, asked: now.instant, answer });
                }
            }
            ControlMessage::Revision(revision) => {
                self.controller.set_revision(&revision);
                self.outputs.shared.set_revision(revision);
                self.observer.rejected_objects(self.outputs.shared.rejected());
                self.registries_changed = true;
            }
            ControlMessage::SecretAccess(Verdict { reader, allowed }) => {
                self.debouncer.push(vec![Update::SecretAccess(reader, allowed)], now.instant);
            }
            ControlMessage::GatewayName { name, result } => self.handle_name(&name, result, now.instant),
        }
        self.settle(now.instant);
    }

    /// Applies the next slice of the backlog.
    fn work(&mut self, now: Instant) {
        let slice = self.backlog.take_slice();
        if slice.is_empty() {
            return;
        }
        for (source, event) in slice {
            self.apply_event(&source, event);
        }
        self.settle(now);
    }

    fn settle(&mut self, now: Instant) {
        let updates = self.controller.settle();
        let updates = updates.into_iter().map(|update| self.resolve(update, now)).collect();
        self.debouncer.push(updates, now);
        self.report_refused_objects();
    }

    /// Applies content first, then health: a registry that is in sync has settled all that it sent.
    fn handle_live(
        &mut self,
        shard: &ShardKey,
        input: LiveInput,
        at: SystemTime,
    ) -> Result<(), NoLiveRegistry> {
        self.registries_changed = true;
        if let Some(batch) = input.batch {
            self.observer.received(Inbound::Registry);
            self.has_objects = true;
            self.controller.registry_batch(shard, batch)?;
        }
        if input.synced && self.controller.registry_synced(shard)?.is_some() {
            tracing::info!(registry = %shard, "the registry can be read again");
        }
        if let Some(reason) = input.failure {
            // Each retry fails again: the log has the first one, /debug/registryz the newest reason.
            match self.controller.registry_failed(shard, at, reason.clone())? {
                Some(health) if health.is_synced() => {
                    tracing::warn!(
                        registry = %shard, %reason,
                        "the registry cannot be read; its last good state stays in force"
                    );
                }
                Some(_) => tracing::warn!(registry = %shard, %reason, "the registry cannot be read yet"),
                None => {}
            }
        }
        Ok(())
    }

    /// Records problems of objects, under the name of the source that read them.
    fn handle_problems(&self, reader: &str, batch: &SourceBatch) {
        if let Some(problems) = &batch.problems {
            self.outputs.shared.set_problems(reader, problems);
            self.observer.rejected_objects(self.outputs.shared.rejected());
        }
    }

    fn forget(&mut self, generation: &ClusterGeneration) {
        self.backlog.forget_feed(&feed_of(generation));
        self.outputs.shared.remove_problems(&feed_of(generation));
        self.observer.rejected_objects(self.outputs.shared.rejected());
    }

    /// Applies events directly before the first lists are complete; afterwards they enter the backlog.
    fn handle_batch(&mut self, source: &Source, batch: SourceBatch, now: Instant) {
        for event in batch.events {
            let inbound = Inbound::of(&event);
            self.observer.received(inbound);
            self.has_objects |= is_object_of_users(&event);
            if !self.outputs.resources.is_ready() {
                self.apply_event(source, event);
            } else if matches!(event, SourceEvent::ListBegan(_) | SourceEvent::ListEnded(_)) {
                // Such a list covers all objects of a kind, so no earlier event may be applied after it.
                for before in self.backlog.take_source(source) {
                    self.apply_event(source, before);
                }
                self.apply_event(source, event);
            } else if let Some(event) = self.backlog.push(source, event, now) {
                self.apply_event(source, event);
            }
        }
    }

    fn apply_event(&mut self, (feed, source): &Source, event: SourceEvent) {
        if let SourceEvent::Failed { reason, .. } = &event {
            self.log_failure(feed, source, reason);
        }
        let kind = observer::kind_of(&event);
        self.registries_changed |= Inbound::of(&event) == Inbound::Source;
        match (self.controller.source_event(feed, source, event), kind) {
            (Ok(applied), Some(kind)) => self.observer.applied(kind, applied),
            (Ok(_), None) => {}
            (Err(error), _) => tracing::error!(%error, "event of a source dropped"),
        }
    }

    /// Logs each reason of a failure once, since each retry fails again; /debug/registryz shows the start.
    fn log_failure(&self, feed: &str, source: &str, reason: &str) {
        let health = self.controller.source_status(feed, source);
        let failure = health.and_then(Health::failure);
        if failure.is_some_and(|failure| &*failure.reason == reason) {
            return;
        }
        if health.is_some_and(Health::is_synced) {
            tracing::warn!(source, reason, "the source cannot be read; what was read before stays in force");
        } else {
            tracing::warn!(source, reason, "the source cannot be read yet");
        }
    }

    fn handle_remote(&mut self, event: RemoteEvent, now: Now) {
        self.registries_changed = true;
        match event {
            RemoteEvent::Secrets(batch) => {
                let feed = self.remote.config_feed.clone();
                self.handle_problems(REMOTE_SECRETS, &batch);
                self.handle_batch(&(feed, REMOTE_SECRETS.into()), batch, now.instant);
            }
            RemoteEvent::Batch(generation, batch) => {
                // Two generations of a cluster have separate problems, which are removed with their
                // generation.
                self.handle_problems(&feed_of(&generation), &batch);
                let source = (feed_of(&generation).into(), cluster_source(&generation.cluster).into());
                self.handle_batch(&source, batch, now.instant);
            }
            RemoteEvent::Opened(generation) => self.remote.open(&mut self.controller, &generation),
            RemoteEvent::GivenUp(generation, reason) => {
                self.observer.remote_cluster_timed_out();
                self.remote.give_up(&mut self.controller, &generation, &reason, now.time);
            }
            RemoteEvent::Closed(generation) => {
                self.controller.remove_feed(&feed_of(&generation));
                self.forget(&generation);
            }
            RemoteEvent::Removed(cluster, generations) => {
                self.remote.remove(&mut self.controller, &cluster, &generations);
                generations.iter().for_each(|generation| self.forget(generation));
                self.observer.remote_cluster_removed(&cluster);
            }
        }
        self.observer.remote_clusters(self.remote.count());
    }

    /// Publishes due changes, once the first lists are complete.
    fn publish(&mut self, now: Instant) {
        if !self.outputs.resources.is_ready() {
            // Without the addresses of gateways, endpoints of other networks would be missing for a moment.
            let is_settled = self.names.is_settled(now);
            if self.controller.synced().is_err() || !is_settled {
                return;
            }
            self.names.stop_waiting();
            let updates = self.debouncer.take_all();
            self.apply(updates, Instant::now());
            self.outputs.resources.set_ready();
            self.registries_changed = true;
            let services = self.writer.world().service_count();
            let status = self.controller.status();
            let without: Vec<String> = status
                .iter()
                .filter(|status| status.given_up)
                .map(|status| status.shard.to_string())
                .collect();
            if without.is_empty() {
                tracing::info!(services, "all registries are in sync, proxies are served");
            } else {
                tracing::warn!(
                    services,
                    without = without.join(", "),
                    "proxies are served without some registries"
                );
            }
            self.warn_of_default_mesh();
            if !self.has_objects {
                tracing::warn!("there is not one object in the sources; proxies get nothing to route to");
            }
        } else if let Some((updates, oldest)) = self.debouncer.take_due(now) {
            self.observer.debounced(oldest);
            self.apply(updates, oldest);
        }
    }

    /// Warns if a revision has no mesh-wide settings: those of another revision do not apply.
    fn warn_of_default_mesh(&self) {
        let revision = self.controller.revision();
        if revision.name().is_some() && self.writer.world().object(&MeshFile::Config.key()).is_none() {
            tracing::warn!(
                config_map = revision.mesh_config_map(),
                "there are no mesh-wide settings for this revision; Istio's defaults apply"
            );
        }
    }

    /// Publishes the world with these changes; `oldest` is the arrival of the first.
    fn apply(&mut self, updates: Vec<Update>, oldest: Instant) {
        // For metrics only.
        let started = Instant::now();
        let computing = SystemTime::now();
        let received = computing.checked_sub(started.saturating_duration_since(oldest)).unwrap_or(computing);
        let before_that = Began { received, computing };
        for update in updates {
            self.writer.apply(update);
        }
        let Some((world, changes)) = self.writer.publish() else { return };
        self.observer.published(Trigger::of(&changes));
        let revision = world.revision();
        self.registries_changed = true;
        let before = self.outputs.shared.world();
        self.outputs.shared.set_world(world.clone(), &changes);
        let publication = publication(self.outputs.translator.publish(world.clone(), &changes));
        let (resources, view_changed) = (publication.changes.len(), publication.view_changed.len());
        // For display only.
        let at = SystemTime::now();
        let concerned = self.outputs.fanout.publish(&publication);
        self.published = true;
        self.outputs.shared.note_changes(publication.revision, &changes);
        self.observer.computed(started);
        let published =
            Published { revision: publication.revision, at, before_that, before, world, changes, concerned };
        self.outputs.shared.history().note(published);
        self.report_refused();
        self.drop_unwanted(revision);
        // After the publication, which this would delay.
        self.outputs.translator.tidy();
        tracing::debug!(revision, resources, view_changed, took = ?started.elapsed(), "published");
    }

    /// Reports delegates that are refused because of their combination with others, which no single source
    /// can detect.
    fn report_refused(&mut self) {
        let refused = self.outputs.translator.refused_delegates();
        if Arc::ptr_eq(&refused, &self.refused) || refused == self.refused {
            return;
        }
        let reports = refused.iter().map(refused_delegate).collect();
        let problems = SourceProblems { reports, ..SourceProblems::default() };
        self.outputs.shared.set_problems(TRANSLATION, &Arc::new(problems));
        self.observer.rejected_objects(self.outputs.shared.rejected());
        self.refused = refused;
    }

    /// Reports objects that registries do not put in force because of other objects in their namespace.
    fn report_refused_objects(&mut self) {
        let refused = self.controller.refused_objects();
        if refused == self.refused_objects {
            return;
        }
        let reports = refused.iter().flat_map(|refused| refused.iter()).map(refused_object).collect();
        let problems = SourceProblems { reports, ..SourceProblems::default() };
        self.outputs.shared.set_problems(REGISTRIES, &Arc::new(problems));
        self.observer.rejected_objects(self.outputs.shared.rejected());
        self.refused_objects = refused;
    }

    /// Drops resources without a subscription, periodically.
    fn drop_unwanted(&self, revision: u64) {
        const EVERY: u64 = 256;
        if revision.is_multiple_of(EVERY) {
            let wanted = |view: pilotfish_translate::ViewId, ty, name: &str| {
                self.outputs.fanout.is_subscribed(pilotfish_xds::ViewId(view.0), ty, name)
            };
            self.outputs.translator.retain_named(wanted);
        }
    }
}

/// Name of the problems that only translation detects.
const TRANSLATION: &str = "translation";
/// Name of the problems that registries report.
const REGISTRIES: &str = "registries";

fn refused_object(refused: &RefusedObject) -> ProblemReport {
    ProblemReport {
        severity: Severity::Error,
        file: if refused.origin.is_empty() { REGISTRIES.into() } else { refused.origin.clone() },
        document: 0,
        line: 0,
        object: Some(refused.key.clone()),
        revision: None,
        path: "spec".to_owned(),
        message: refused.message.clone(),
        count: None,
        hint: Some("the object is not in force until older ones go or shrink".to_owned()),
        effective: Effective::Dropped,
    }
}

fn refused_delegate(refused: &RefusedDelegate) -> ProblemReport {
    let RefusedDelegate { root, delegate } = refused;
    ProblemReport {
        severity: Severity::Error,
        file: TRANSLATION.into(),
        document: 0,
        line: 0,
        object: Some(delegate.clone()),
        revision: None,
        path: "spec.http".to_owned(),
        message: format!(
            "under the routes of {root} its conditions would be more than {MAX_CONDITIONS} (limit \
             virtual-service-conditions), or its routes too large (limit virtual-service-bytes)"
        ),
        count: None,
        hint: Some("requests that belong to it there are answered with 503".to_owned()),
        effective: Effective::Dropped,
    }
}

/// True if the event is an object other than the mesh-wide settings.
fn is_object_of_users(event: &SourceEvent) -> bool {
    match event {
        SourceEvent::Apply(object) => !matches!(object.key().kind, Kind::MeshConfig | Kind::MeshNetworks),
        _ => false,
    }
}
