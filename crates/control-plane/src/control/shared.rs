//! State that the control loop publishes: readers get the newest and never block the loop.

use crate::control::changed::ChangedObjects;
use crate::control::findings::{ANALYSIS, Findings};
use crate::control::report_log::ReportLog;
use crate::control::trouble::{self, Silence};
use crate::history::History;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use pilotfish_api as api;
use pilotfish_api::v1::{Cause, CauseKind};
use pilotfish_config::{Effective, ProblemReport, Severity, SourceProblems, is_unserved};
use pilotfish_model::{ChangeSet, ObjectKey, Revision, ShardKey, World};
use pilotfish_registry::{AggregateController, Conflict, ShownLoss, SourceReport, SourceState};
use pilotfish_runtime::{GuardBoard, Health, Heartbeat, HeldLosses, SILENT_AFTER};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::{Notify, watch};

/// The newest state of the control loop.
#[derive(Default)]
pub struct Shared {
    world: ArcSwap<World>,
    registries: ArcSwap<Vec<api::Registry>>,
    /// Reports of the registries' sources on themselves, by the name of the registry.
    reports: Mutex<BTreeMap<String, SourceReport>>,
    /// Losses held back by the guards of sources that are no registries: files and API servers.
    guards: GuardBoard,
    /// The sources of objects that belong to registries, with their feeds.
    object_sources: Mutex<Vec<(Arc<str>, Arc<str>)>>,
    waiting_for: ArcSwap<Vec<String>>,
    conflicts: ArcSwap<Conflicts>,
    /// Problems of names of gateways between networks.
    gateways: ArcSwap<Vec<String>>,
    problems: Mutex<BTreeMap<String, KnownProblems>>,
    revision: ArcSwap<Revision>,
    /// The number of objects that are left to other revisions.
    left_to_other_revisions: AtomicUsize,
    /// Rate limits of logging problems, by source, and findings.
    logs: Mutex<BTreeMap<String, ReportLog>>,
    draining: AtomicBool,
    pulse: Heartbeat,
    /// Heartbeats of sources, by their names.
    heartbeats: Mutex<Vec<(Arc<str>, Heartbeat)>>,
    followers: Mutex<Vec<Weak<Pending>>>,
    changed: Mutex<ChangedObjects>,
    history: Arc<History>,
    /// Latest findings of the analysis.
    findings: watch::Sender<Arc<Findings>>,
}

/// Problems of the content of a source.
#[derive(Default)]
struct KnownProblems {
    all: Arc<SourceProblems>,
    /// Problems without those of objects that are left to other revisions.
    shown: Arc<SourceProblems>,
}

/// Newest world and accumulated changes that a follower has not received yet.
#[derive(Default)]
struct Pending {
    news: Mutex<Option<(Arc<World>, ChangeSet)>>,
    wake: Notify,
}

/// Receiver of published worlds. A slow one gets the newest, with all changes since the one that it received
/// last.
pub struct Follower(Arc<Pending>);

impl Follower {
    /// Waits for the next world. Returns it with its changes since the previous one; the first has none.
    pub async fn next(&mut self) -> (Arc<World>, ChangeSet) {
        loop {
            if let Some(news) = self.0.news.lock().take() {
                return news;
            }
            self.0.wake.notified().await;
        }
    }

    /// As [`Self::next`], but waits for a pause after a world is published, to combine it with later ones.
    pub async fn next_after(&mut self, pause: Duration) -> (Arc<World>, ChangeSet) {
        while self.0.news.lock().is_none() {
            self.0.wake.notified().await;
        }
        tokio::time::sleep(pause).await;
        self.next().await
    }
}

impl Pending {
    fn add(&self, world: &Arc<World>, changes: &ChangeSet) {
        let mut news = self.news.lock();
        let mut all = news.take().map(|(_, before)| before).unwrap_or_default();
        all.facts.extend(changes.facts.iter().cloned());
        *news = Some((world.clone(), all));
        drop(news);
        self.wake.notify_one();
    }
}

impl Shared {
    /// The heartbeat of the control loop.
    pub fn pulse(&self) -> &Heartbeat {
        &self.pulse
    }

    /// History of recent publications.
    pub fn history(&self) -> &Arc<History> {
        &self.history
    }

    #[must_use]
    pub fn world(&self) -> Arc<World> {
        self.world.load_full()
    }

    /// Publishes a world without a control loop.
    #[cfg(any(test, feature = "testing"))]
    pub fn publish(&self, world: Arc<World>) {
        self.set_world(world, &ChangeSet::default());
    }

    pub(crate) fn set_world(&self, world: Arc<World>, changes: &ChangeSet) {
        let mut followers = self.followers.lock();
        followers.retain(|follower| match follower.upgrade() {
            Some(follower) => {
                follower.add(&world, changes);
                true
            }
            None => false,
        });
        self.world.store(world);
    }

    /// Records that the objects of these changes are in force since a revision.
    pub(crate) fn note_changes(&self, revision: u64, changes: &ChangeSet) {
        self.changed.lock().note(revision, changes);
    }

    /// Revision since which the newest version of an object is in force; a later one if the change is no
    /// longer remembered.
    pub fn revision_of(&self, key: &ObjectKey) -> u64 {
        self.changed.lock().revision_of(key)
    }

    /// Revisions of those objects that changed recently.
    pub(crate) fn revisions_of(&self, keys: &BTreeSet<&ObjectKey>) -> BTreeMap<ObjectKey, u64> {
        self.changed.lock().revisions_of(keys)
    }

    /// True if the object changed or was removed recently.
    pub fn changed_lately(&self, key: &ObjectKey) -> bool {
        self.changed.lock().has(key)
    }

    /// Follows worlds from the newest one on, or from the first one if none is published yet.
    #[must_use]
    pub fn follow(&self) -> Follower {
        let pending = Arc::new(Pending::default());
        // Under the lock, so that no world is published in between.
        let mut followers = self.followers.lock();
        let world = self.world();
        if world.revision() > 0 {
            pending.add(&world, &ChangeSet::default());
        }
        followers.push(Arc::downgrade(&pending));
        Follower(pending)
    }

    /// Findings of the analysis in the newest world that it has processed.
    pub fn findings(&self) -> Arc<Findings> {
        self.findings.borrow().clone()
    }

    /// A receiver of the findings, for waiting on new ones.
    pub fn follow_findings(&self) -> watch::Receiver<Arc<Findings>> {
        self.findings.subscribe()
    }

    /// Stores the findings of the analysis, and logs new ones.
    pub fn set_findings(&self, findings: Findings) {
        findings.log_since(&self.findings(), self.logs.lock().entry(ANALYSIS.to_owned()).or_default());
        self.findings.send_replace(Arc::new(findings));
    }

    /// The registries, with the current reports of their sources.
    #[must_use]
    pub fn registries(&self) -> Vec<api::Registry> {
        let mut registries = self.registry_states().to_vec();
        let reports = self.reports.lock();
        for registry in &mut registries {
            registry.source = reports.get(&registry.name).map(|report| source(&report.state()));
        }
        // Files and API servers are no registries: they are listed after their guard has held a loss.
        let sources = self.guards.sources().into_iter().filter(|(_, losses)| losses.holds() > 0);
        registries.extend(sources.map(|(name, losses)| guarded_source(&name, &losses)));
        registries
    }

    /// Held losses of sources that are no registries.
    pub fn guards(&self) -> &GuardBoard {
        &self.guards
    }

    /// Accepts the held loss of a registry or source. Returns false if there is none.
    pub fn accept_loss(&self, source: &str) -> bool {
        let of_registry = self.reports.lock().get(source).map(|report| report.losses().clone());
        let of_source = || self.guards.sources().into_iter().find(|(name, _)| &**name == source);
        let losses = of_registry.or_else(|| of_source().map(|(_, losses)| losses));
        losses.is_some_and(|losses| losses.accept() > 0)
    }

    /// The registries, as the control loop last published them.
    pub fn registry_states(&self) -> Arc<Vec<api::Registry>> {
        self.registries.load_full()
    }

    /// Adds the report of a registry's source on itself.
    pub fn add_report(&self, shard: &ShardKey, report: SourceReport) {
        self.reports.lock().insert(shard.to_string(), report);
    }

    /// Adds a source of objects that is a registry of its own, by the name of its feed and its own.
    pub fn add_object_source(&self, feed: &Arc<str>, name: &Arc<str>, report: SourceReport) {
        report.change(|state| state.objects = Some(0));
        self.reports.lock().insert(name.to_string(), report);
        self.object_sources.lock().push((feed.clone(), name.clone()));
    }

    /// The registries that are not in sync, by name.
    #[must_use]
    pub fn waiting_for(&self) -> Arc<Vec<String>> {
        self.waiting_for.load_full()
    }

    pub(crate) fn set_registries(&self, controller: &AggregateController) {
        let conflicts = self.conflicts(controller);
        let registries = controller.status().into_iter().map(|status| {
            let name = status.shard.to_string();
            api::Registry {
                losers: conflicts.losers.get(&name).cloned().unwrap_or_default(),
                given_up: status.given_up,
                replacing: status.replacing,
                services: status.services,
                endpoints: status.endpoints,
                workloads: status.workloads,
                ..registry(name, &status.sync)
            }
        });
        let registries = registries.chain(self.object_registries(controller));
        self.registries.store(Arc::new(registries.collect()));
        self.left_to_other_revisions.store(controller.left_to_other_revisions(), Ordering::Relaxed);
        let missing = controller.synced().err().map(|error| error.missing).unwrap_or_default();
        self.waiting_for.store(Arc::new(missing));
    }

    /// The registries that read objects.
    fn object_registries(&self, controller: &AggregateController) -> Vec<api::Registry> {
        let sources = self.object_sources.lock();
        let with_status =
            sources.iter().filter_map(|(feed, name)| Some((name, controller.source_status(feed, name)?)));
        with_status.map(|(name, health)| registry(name.to_string(), health)).collect()
    }

    /// Current conflicts, as text. Registries that share their services have many, which seldom change.
    fn conflicts(&self, controller: &AggregateController) -> Arc<Conflicts> {
        let known = self.conflicts.load_full();
        if known.revision == controller.conflicts_revision() {
            return known;
        }
        let now = Arc::new(Conflicts::of(controller));
        self.conflicts.store(now.clone());
        now
    }

    pub(crate) fn set_gateway_problems(&self, problems: Vec<String>) {
        self.gateways.store(Arc::new(problems));
    }

    /// Adds the heartbeat of a source. The most silent of a source's heartbeats decides.
    pub fn add_heartbeat(&self, source: &str, heartbeat: Heartbeat) {
        self.heartbeats.lock().push((source.into(), heartbeat));
    }

    /// Time since the last heartbeat of each source.
    pub fn source_silence(&self, now: Instant) -> BTreeMap<String, Duration> {
        let mut sources = BTreeMap::new();
        for (source, heartbeat) in self.heartbeats.lock().iter() {
            let longest: &mut Duration = sources.entry(source.to_string()).or_default();
            *longest = heartbeat.silent_for(now).max(*longest);
        }
        sources
    }

    /// The sources that have been silent for too long, and the control loop if it has.
    pub fn silences(&self, now: Instant) -> Vec<Silence> {
        let own = ("the control loop".to_owned(), self.pulse.silent_for(now));
        let all = std::iter::once(own).chain(self.source_silence(now));
        all.filter(|(_, silent_for)| *silent_for >= SILENT_AFTER)
            .map(|(source, silent_for)| Silence { source, silent_for })
            .collect()
    }

    /// Causes of the health verdict from sources and registries: silent or unreadable ones, those that
    /// readiness no longer waits for, invalid entries, refused services of two registries, and gateways whose
    /// names cannot be resolved.
    pub fn source_causes(&self, now: Instant) -> Vec<Cause> {
        let mut causes: Vec<_> = self.silences(now).iter().map(Silence::cause).collect();
        let (conflicts, gateways) = (self.conflicts.load(), self.gateways.load());
        let conflicts = conflicts.refused.iter().chain(gateways.iter());
        causes.extend(conflicts.map(|text| Cause::new(CauseKind::Conflict, "", text)));
        causes.extend(trouble::of_registries(&self.registries()));
        causes
    }

    /// Lines of these causes, for `/ready`.
    #[must_use]
    pub fn registry_problems(&self) -> Vec<String> {
        self.source_causes(Instant::now()).iter().map(ToString::to_string).collect()
    }

    /// All problems of the content of sources, by source.
    #[must_use]
    pub fn problems(&self) -> Vec<ProblemReport> {
        self.source_problems().iter().flat_map(|problems| problems.reports.iter().cloned()).collect()
    }

    /// Kinds of Istio and the Gateway API that are not served and have objects, with their number in all
    /// sources.
    #[must_use]
    pub fn unserved(&self) -> Vec<String> {
        let sources = self.source_problems();
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for (kind, count) in sources.iter().flat_map(|problems| problems.unserved()) {
            *counts.entry(kind).or_default() += count;
        }
        let in_words = |(kind, count)| match count {
            1 => format!("{kind}: 1 object has no effect"),
            _ => format!("{kind}: {count} objects have no effect"),
        };
        counts.into_iter().map(in_words).collect()
    }

    /// Shared problems of all sources: the lock is held for the number of sources, not for that of reports.
    pub fn source_problems(&self) -> Vec<Arc<SourceProblems>> {
        self.problems.lock().values().map(|problems| problems.shown.clone()).collect()
    }

    /// Number of objects with errors in all sources. An object counts once for each source.
    #[must_use]
    pub fn rejected(&self) -> i64 {
        let count: usize = self.source_problems().iter().map(|problems| rejected_objects(problems)).sum();
        i64::try_from(count).unwrap_or(i64::MAX)
    }

    /// Removes the problems of a source that left.
    pub fn remove_problems(&self, source: &str) {
        self.problems.lock().remove(source);
        self.logs.lock().remove(source);
    }

    /// The revision whose objects are read.
    pub fn revision(&self) -> Arc<Revision> {
        self.revision.load_full()
    }

    /// The number of objects that are left to other revisions.
    pub fn left_to_other_revisions(&self) -> usize {
        self.left_to_other_revisions.load(Ordering::Relaxed)
    }

    /// Sets the revision whose objects are read, and whose problems are shown.
    pub(crate) fn set_revision(&self, revision: Revision) {
        self.revision.store(Arc::new(revision));
        let known: Vec<_> =
            self.problems.lock().iter().map(|(source, known)| (source.clone(), known.all.clone())).collect();
        for (source, all) in known {
            self.set_problems(&source, &all);
        }
    }

    /// Stores the current problems of a source, and logs new and fixed ones at a limited rate.
    pub fn set_problems(&self, source: &str, problems: &Arc<SourceProblems>) {
        let all = problems;
        let problems = &read_by(&self.revision.load(), all);
        let known = KnownProblems { all: all.clone(), shown: problems.clone() };
        let before = self.problems.lock().insert(source.to_owned(), known).unwrap_or_default().shown;
        let (mut logs, now) = (self.logs.lock(), Instant::now());
        let log = logs.entry(source.to_owned()).or_default();
        for report in new_reports(&before, problems) {
            log.write(source, now, || match report.severity {
                Severity::Error => tracing::error!("{report}"),
                Severity::Warning => tracing::warn!("{report}"),
            });
        }
        if before.errors() > 0 && problems.errors() == 0 {
            log.write(source, now, || tracing::info!(source, "all objects are in force as written"));
        }
        // Reports name the unserved kinds.
        for (kind, count) in problems.ignored.iter().filter(|(kind, _)| !is_unserved(kind)) {
            if !before.ignored.contains_key(kind) {
                log.write(source, now, || {
                    tracing::info!(kind, count, "objects of a kind that is not read are ignored");
                });
            }
        }
    }

    /// Starts draining: the process is no longer ready.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// True if the process is draining.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }
}

/// Services that registries of several types have, as text.
#[derive(Default)]
struct Conflicts {
    revision: u64,
    /// Losing services, by the name of the registry that loses.
    losers: BTreeMap<String, Arc<[api::LosingService]>>,
    /// Descriptions of refused services, at most as many as losers are listed.
    refused: Vec<String>,
}

impl Conflicts {
    fn of(controller: &AggregateController) -> Self {
        let mut losers: BTreeMap<&ShardKey, Vec<api::LosingService>> = BTreeMap::new();
        for conflict in controller.conflicts() {
            let of_loser = losers.entry(&conflict.loser).or_default();
            if of_loser.len() < MOST_LOSERS {
                of_loser.push(losing_service(conflict));
            }
        }
        let refused = controller.refused().take(MOST_LOSERS).map(|conflict| format!("refused: {conflict}"));
        Self {
            revision: controller.conflicts_revision(),
            losers: losers.into_iter().map(|(shard, list)| (shard.to_string(), list.into())).collect(),
            refused: refused.collect(),
        }
    }
}

/// A registry of which only the health is known.
fn registry(name: String, health: &Health) -> api::Registry {
    let failure = health.failure();
    api::Registry {
        name,
        synced: health.is_synced(),
        failure: failure.map(|failure| failure.reason.to_string()),
        failing_since: failure.map(|failure| time(failure.since)),
        ..api::Registry::default()
    }
}

/// Converts the state of a registry's source for the admin API.
fn source(state: &SourceState) -> api::RegistrySource {
    let age = state.last_answer.map(|at| SystemTime::now().duration_since(at).unwrap_or_default());
    api::RegistrySource {
        last_answer: state.last_answer.map(time),
        lag_seconds: age.map(|age| (age.as_secs_f64() * 1000.0).round() / 1000.0),
        requests: state.requests,
        sessions: state.sessions,
        failures: state.failures,
        holds: state.holds,
        held: state.held.as_ref().map(held_answer),
        objects: state.objects,
        problem_count: state.problems.total,
        problems: state.problems.first.iter().map(ToString::to_string).collect(),
    }
}

/// A source that is no registry, shown only for its held losses.
fn guarded_source(name: &str, losses: &HeldLosses) -> api::Registry {
    let held = losses.held();
    let objects = held.as_ref().map(|held| held.before).or(Some(0));
    let source = api::RegistrySource {
        holds: losses.holds(),
        held: held.as_ref().map(held_answer),
        objects,
        ..api::RegistrySource::default()
    };
    api::Registry { name: name.to_owned(), synced: true, source: Some(source), ..api::Registry::default() }
}

fn held_answer(held: &ShownLoss) -> api::HeldAnswer {
    api::HeldAnswer {
        of: held.scope.to_string(),
        since: time(held.since),
        until: time(held.until),
        endpoints: held.before,
        would_leave: held.after,
    }
}

/// Maximum number of losing services that are listed for each registry.
const MOST_LOSERS: usize = 1_000;

fn losing_service(conflict: &Conflict) -> api::LosingService {
    api::LosingService {
        hostname: conflict.service.hostname.to_string(),
        namespace: conflict.service.namespace.to_string(),
        winner: conflict.winner.to_string(),
        reason: conflict.reason(),
    }
}

/// Problems of the objects that the revision reads.
fn read_by(revision: &Revision, problems: &Arc<SourceProblems>) -> Arc<SourceProblems> {
    let is_read = |report: &ProblemReport| {
        let kind = report.object.as_ref().map(|object| object.kind);
        kind.is_none_or(|kind| revision.reads(kind, report.revision.as_deref()))
    };
    if problems.reports.iter().all(is_read) {
        return problems.clone();
    }
    let reports = problems.reports.iter().filter(|report| is_read(report)).cloned().collect();
    Arc::new(SourceProblems { reports, ignored: problems.ignored.clone() })
}

/// Number of objects with errors; a document in which no object is recognised counts as one.
fn rejected_objects(problems: &SourceProblems) -> usize {
    let errors = problems.reports.iter().filter(|report| report.severity == Severity::Error);
    let places = errors.map(|report| {
        let unknown = report.object.is_none().then_some((&report.file, report.document));
        (&report.object, unknown)
    });
    places.collect::<HashSet<_>>().len()
}

/// Reports that are new. A source sends all of its problems when one changes, so comparing them must not be
/// quadratic.
fn new_reports<'a>(
    before: &'a SourceProblems,
    now: &'a SourceProblems,
) -> impl Iterator<Item = &'a ProblemReport> {
    let known: HashSet<_> = before.reports.iter().map(fields).collect();
    now.reports.iter().filter(move |report| !known.contains(&fields(report)))
}

/// Identity of a report. The count is left out, since it may change all the time.
fn fields(report: &ProblemReport) -> impl Hash + Eq {
    let ProblemReport {
        severity,
        file,
        document,
        line,
        object,
        revision,
        path,
        message,
        hint,
        effective,
        ..
    } = report;
    ((severity, file, document, line), (object, revision, path, message, hint, effective))
}

/// A time as RFC 3339, in seconds; empty for the epoch, which means unknown.
#[must_use]
pub fn time(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).ok().filter(|seconds| *seconds > 0);
    let time = seconds.and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    time.map(|time| time.to_string()).unwrap_or_default()
}

/// Name of the version in force in the admin API.
#[must_use]
pub fn effective(what: Effective) -> &'static str {
    match what {
        Effective::Written => "newest",
        Effective::LastGood => "last-good",
        Effective::Closed => "closed",
        Effective::Dropped => "dropped",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_config::gateway_api::GatewayClass;
    use pilotfish_model::{Fact, Kind, Update, WorldWriter};
    use pilotfish_model::{KindSpec, Object, ObjectMeta};

    fn publish(shared: &Shared, writer: &mut WorldWriter, name: &str) {
        let key = ObjectKey::new(GatewayClass::KIND, "", name);
        writer.apply(Update::Object(Object::new(ObjectMeta::of(key), GatewayClass::default())));
        let (world, changes) = writer.publish().expect("it differs");
        shared.set_world(world, &changes);
    }

    fn report(message: &str, line: u32) -> ProblemReport {
        ProblemReport {
            severity: Severity::Error,
            file: "a.yaml".into(),
            document: line,
            line,
            object: None,
            revision: None,
            path: "spec".into(),
            message: message.into(),
            count: None,
            hint: None,
            effective: Effective::Dropped,
        }
    }

    fn problems(reports: Vec<ProblemReport>) -> SourceProblems {
        SourceProblems { reports, ..SourceProblems::default() }
    }

    #[test]
    fn a_report_is_new_when_any_part_of_it_is() {
        let before = problems(vec![report("a", 1), report("b", 2)]);
        let moved = report("b", 3);
        let warning = ProblemReport { severity: Severity::Warning, ..report("a", 1) };
        let now = problems(vec![report("a", 1), moved.clone(), warning.clone(), report("b", 2)]);
        assert_eq!(new_reports(&before, &now).collect::<Vec<_>>(), [&moved, &warning]);
        assert_eq!(new_reports(&now, &before).count(), 0);
    }

    #[test]
    fn silent_source_is_a_cause_with_its_name() {
        let shared = Shared::default();
        let [first, second, other] = [(); 3].map(|()| Heartbeat::default());
        let paused = Heartbeat::paused();
        for (source, heartbeat) in
            [("files", &first), ("files", &second), ("cluster", &paused), ("registry a", &other)]
        {
            shared.add_heartbeat(source, heartbeat.clone());
        }
        let began = Instant::now();
        let at = |seconds: u64| began + Duration::from_secs(seconds);
        let beat = |heartbeats: &[&Heartbeat], seconds| {
            heartbeats.iter().for_each(|heartbeat| heartbeat.beat(at(seconds)));
        };
        let causes = |seconds| -> Vec<(CauseKind, String)> {
            shared.source_causes(at(seconds)).into_iter().map(|cause| (cause.kind, cause.subject)).collect()
        };
        beat(&[&first, &second, shared.pulse()], 100);
        beat(&[&other], 120);
        assert!(causes(129).is_empty());
        // One silent thread of a source suffices; a task that has not started is not waited for.
        beat(&[&first, shared.pulse()], 129);
        assert_eq!(causes(131), [(CauseKind::SilentSource, "files".to_owned())]);
        let silence = shared.source_silence(at(131));
        assert_eq!(silence.get("files").map(Duration::as_secs), Some(31));
        assert_eq!(silence.get("cluster"), Some(&Duration::ZERO));
        let said = shared.silences(at(131)).first().map(|silence| silence.cause().to_string());
        assert!(said.is_some_and(|said| said.contains("no sign of life for 31 s")));
        beat(&[&first, &second], 160);
        let silent = |subject: &str| (CauseKind::SilentSource, subject.to_owned());
        assert_eq!(causes(161), [silent("the control loop"), silent("registry a")]);
    }

    #[test]
    fn problems_of_a_source_replace_those_before() {
        let shared = Shared::default();
        shared.set_problems("files", &Arc::new(problems(vec![report("a", 1), report("b", 2)])));
        shared.set_problems("cluster", &Arc::new(problems(vec![report("c", 1)])));
        assert_eq!((shared.problems().len(), shared.rejected()), (3, 3));
        shared.set_problems("files", &Arc::new(problems(vec![report("b", 2)])));
        assert_eq!(shared.rejected(), 2);
        shared.remove_problems("cluster");
        assert_eq!(shared.problems(), [report("b", 2)]);
    }

    #[test]
    fn object_with_many_errors_is_rejected_once() {
        let shared = Shared::default();
        let of = |name: &str, document, severity| ProblemReport {
            severity,
            document,
            object: (!name.is_empty()).then(|| ObjectKey::new(Kind::VirtualService, "shop", name)),
            ..report("mistake", 1)
        };
        let files = vec![
            of("a", 1, Severity::Error),
            of("a", 1, Severity::Error),
            of("a", 2, Severity::Error),
            of("b", 3, Severity::Warning),
            of("", 4, Severity::Error),
            of("", 4, Severity::Error),
            of("", 5, Severity::Error),
        ];
        shared.set_problems("files", &Arc::new(problems(files)));
        assert_eq!(shared.rejected(), 3, "the object, and two documents without a recognised one");
        shared.set_problems("cluster", &Arc::new(problems(vec![of("a", 1, Severity::Error)])));
        assert_eq!(shared.rejected(), 4);
    }

    #[test]
    fn objects_of_unserved_kinds_are_counted_over_sources_and_logged_once_a_kind() {
        use tracing_subscriber::layer::SubscriberExt;
        const UDP: &str = "gateway.networking.k8s.io/v1alpha2 UDPRoute";
        let (shared, lines) = (Shared::default(), Lines::default());
        let logged = lines.0.clone();
        let of = |kinds: &[(&str, usize)]| {
            let report =
                |(kind, count): &(&str, usize)| ProblemReport { count: Some(*count), ..report(kind, 0) };
            let ignored = kinds.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect();
            Arc::new(SourceProblems { reports: kinds.iter().map(report).collect(), ignored })
        };
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || {
            shared.set_problems("files", &of(&[(UDP, 2)]));
            shared
                .set_problems("cluster", &of(&[(UDP, 1), ("gateway.networking.x-k8s.io/v1alpha1 XMesh", 1)]));
            shared
                .set_problems("cluster", &of(&[(UDP, 7), ("gateway.networking.x-k8s.io/v1alpha1 XMesh", 1)]));
        });
        assert_eq!(
            shared.unserved(),
            [
                "gateway.networking.k8s.io/v1alpha2 UDPRoute: 9 objects have no effect",
                "gateway.networking.x-k8s.io/v1alpha1 XMesh: 1 object has no effect"
            ]
        );
        assert_eq!(logged.load(Ordering::Relaxed), 3);
        assert!(shared.problems().iter().any(|report| report.to_string().contains("UDPRoute (7 objects)")));
        let other =
            SourceProblems { ignored: [("apps/v1 Deployment".to_owned(), 3)].into(), ..Default::default() };
        shared.set_problems("files", &Arc::new(other));
        shared.set_problems("cluster", &of(&[]));
        assert!(shared.unserved().is_empty());
    }

    #[test]
    fn problems_of_other_revisions_are_shown_to_nobody() {
        let of = |name: &str, kind, revision: Option<&str>| ProblemReport {
            object: Some(ObjectKey::new(kind, "shop", name)),
            revision: revision.map(Arc::from),
            ..report(name, 1)
        };
        let all = problems(vec![
            of("ours", Kind::VirtualService, Some("canary")),
            of("unlabelled", Kind::VirtualService, None),
            of("theirs", Kind::VirtualService, Some("stable")),
            of("gateway", Kind::KubernetesGateway, Some("stable")),
            report("file", 1),
        ]);
        let shown = |shared: &Shared| {
            let names = shared.problems().into_iter().map(|report| report.message);
            (names.collect::<Vec<_>>(), shared.rejected())
        };
        let shared = Shared::default();
        shared.set_revision(Revision::named("canary"));
        shared.set_problems("files", &Arc::new(all));
        let ours = ["ours", "unlabelled", "gateway", "file"].map(str::to_owned).to_vec();
        assert_eq!(shown(&shared), (ours, 4));
        shared.set_revision(Revision::named("canary").with_tags(BTreeSet::from(["stable".into()])));
        assert_eq!(shown(&shared).1, 5, "the tag makes it ours");
        shared.set_revision(Revision::named("canary"));
        assert_eq!(shown(&shared).1, 4);
    }

    /// Counts what is logged.
    #[derive(Default)]
    struct Lines(Arc<std::sync::atomic::AtomicUsize>);

    impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Lines {
        fn on_event(&self, _: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A user writes an object with a hundred mistakes again and again, each time with others.
    #[test]
    fn configuration_that_changes_does_not_fill_the_log() {
        use tracing_subscriber::layer::SubscriberExt;
        let (shared, lines) = (Shared::default(), Lines::default());
        let count = lines.0.clone();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || {
            for round in 0..100 {
                let reports = (0..100).map(|n| report(&format!("{round} {n}"), n)).collect();
                shared.set_problems("files", &Arc::new(problems(reports)));
                shared.set_problems("files", &Arc::default());
            }
            shared.set_problems("cluster", &Arc::new(problems(vec![report("a", 1)])));
        });
        let written = count.load(Ordering::Relaxed);
        assert!((52..120).contains(&written), "{written} lines; another source has lines of its own");
    }

    #[tokio::test]
    async fn a_slow_follower_gets_the_newest_world_with_all_changes() {
        let (shared, mut writer) = (Shared::default(), WorldWriter::new());
        let mut early = shared.follow();
        publish(&shared, &mut writer, "a");
        publish(&shared, &mut writer, "b");
        let mut late = shared.follow();
        let names = |changes: &ChangeSet| {
            let of = |fact: &Fact| match fact {
                Fact::Object(key) => Some(key.name.to_string()),
                _ => None,
            };
            changes.facts.iter().filter_map(of).collect::<Vec<_>>()
        };
        let (world, changes) = early.next().await;
        assert_eq!((world.revision(), names(&changes)), (2, vec!["a".to_owned(), "b".to_owned()]));
        let (world, changes) = late.next().await;
        assert_eq!((world.revision(), names(&changes)), (2, Vec::new()));
        publish(&shared, &mut writer, "c");
        for follower in [&mut early, &mut late] {
            let (world, changes) = follower.next().await;
            assert_eq!(
                (world.objects(Kind::GatewayClass).count(), names(&changes)),
                (3, vec!["c".to_owned()])
            );
        }
        drop(early);
        publish(&shared, &mut writer, "d");
        assert_eq!(shared.followers.lock().len(), 1, "a dropped follower is forgotten");
    }
}
