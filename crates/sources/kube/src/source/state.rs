//! Merges updates of all watches of a cluster into batches of one source, without IO.

use super::unserved::{Counts, UnservedKind};
use crate::watch::{Change, WatchUpdate};
use pilotfish_config::{
    Effective, ObjectCheck, Problem, ProblemReport, Severity, SourceBatch, SourceEvent, SourceProblems,
};
use pilotfish_model::{Kind, ObjectKey};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

/// State of one watch.
#[derive(Debug, Default)]
struct WatchState {
    listed: bool,
    failing: Option<String>,
}

/// See the module's description.
pub(super) struct SourceState {
    /// `cluster NAME`, for messages.
    origin: Arc<str>,
    checks: Vec<ObjectCheck>,
    watches: BTreeMap<Kind, WatchState>,
    problems: BTreeMap<ObjectKey, Vec<ProblemReport>>,
    /// Kinds that are not served, with the number of their objects, or the error of counting them.
    unserved: BTreeMap<UnservedKind, Result<usize, String>>,
    problems_changed: bool,
    events: Vec<SourceEvent>,
    /// True if discovery has succeeded.
    discovered: bool,
    discovery_failing: Option<String>,
    /// True once no update came for [`KubeSourceSettings::settle`](super::KubeSourceSettings::settle) after
    /// all lists.
    settled: bool,
    sent_listed: bool,
    /// The reported failure: the plural of a kind, and the reason.
    reported_failure: Option<(&'static str, String)>,
}

impl SourceState {
    pub(super) fn new(cluster: &str, checks: Vec<ObjectCheck>, settled: bool) -> Self {
        Self {
            origin: format!("cluster {cluster}").into(),
            checks,
            watches: BTreeMap::new(),
            problems: BTreeMap::new(),
            unserved: BTreeMap::new(),
            problems_changed: false,
            events: Vec::new(),
            discovered: false,
            discovery_failing: None,
            settled,
            sent_listed: false,
            reported_failure: None,
        }
    }

    /// Adds a watched kind. It belongs to the first list only if it was there at the start.
    pub(super) fn watch(&mut self, kind: Kind) {
        self.watches.entry(kind).or_default();
    }

    /// Removes a watched kind.
    pub(super) fn unwatch(&mut self, kind: Kind) {
        self.watches.remove(&kind);
    }

    /// Records the result of a discovery.
    pub(super) fn discovered(&mut self, result: Result<(), String>) {
        match result {
            Ok(()) => {
                self.discovered = true;
                self.discovery_failing = None;
            }
            Err(reason) => self.discovery_failing = Some(reason),
        }
    }

    /// Records the counts of objects of unserved kinds. A transient failure keeps the last count.
    pub(super) fn counted(&mut self, counts: Counts) {
        let mut unserved = BTreeMap::new();
        for (kind, count) in counts {
            let before = self.unserved.get(&kind);
            let now = match (count, before) {
                (Ok(0), _) => continue,
                (Ok(count), _) => Ok(count),
                (Err(error), Some(before)) if error.class.is_transient() => before.clone(),
                // The definition was deleted meanwhile.
                (Err(error), _) if error.status == Some(404) => continue,
                (Err(error), _) => Err(error.to_string()),
            };
            unserved.insert(kind, now);
        }
        self.problems_changed |= unserved != self.unserved;
        self.unserved = unserved;
    }

    /// Handles an update of a watch.
    pub(super) fn handle(&mut self, kind: Kind, update: WatchUpdate) {
        match update {
            WatchUpdate::Changes(changes) => {
                for change in changes {
                    self.change(change);
                }
            }
            WatchUpdate::Listed => self.watches.entry(kind).or_default().listed = true,
            WatchUpdate::Failed(reason) => {
                if let Some(watch) = self.watches.get_mut(&kind) {
                    watch.failing = Some(reason);
                }
            }
            WatchUpdate::Healthy => {
                if let Some(watch) = self.watches.get_mut(&kind) {
                    watch.failing = None;
                }
            }
        }
    }

    /// Returns everything that was not sent yet.
    pub(super) fn batch(&mut self, now: SystemTime) -> SourceBatch {
        let mut batch = SourceBatch { events: std::mem::take(&mut self.events), problems: None };
        if std::mem::take(&mut self.problems_changed) {
            let unserved = self.unserved.iter().map(|(kind, count)| self.unserved_report(kind, count));
            let reports = self.problems.values().flatten().cloned().chain(unserved).collect();
            let counted = self.unserved.iter();
            let ignored = counted.filter_map(|(kind, count)| Some((kind.to_string(), *count.as_ref().ok()?)));
            let ignored = ignored.collect();
            batch.problems = Some(Arc::new(SourceProblems { reports, ignored }));
        }
        if !self.sent_listed && self.settled && self.is_listed() {
            self.sent_listed = true;
            batch.events.push(SourceEvent::Listed);
        }
        self.report_failure(&mut batch, now);
        batch
    }

    /// True if all lists are complete and only the settle time is missing until they are reported.
    pub(super) fn waits_for_quiet(&self) -> bool {
        !self.settled && self.is_listed()
    }

    /// Records that the settle time is over.
    pub(super) fn settled(&mut self) {
        self.settled = true;
    }

    fn is_listed(&self) -> bool {
        self.discovered && self.watches.values().all(|watch| watch.listed)
    }

    /// Reports that something fails, or that nothing fails any more. While one failure is reported, others
    /// are not: when an API server dies, thirty watches fail one after the other.
    fn report_failure(&mut self, batch: &mut SourceBatch, now: SystemTime) {
        let failing = self.failing();
        let still = self.reported_failure.as_ref().is_some_and(|reported| failing.contains(reported));
        if still {
            return;
        }
        match failing.first() {
            Some((what, reason)) => {
                let reason = format!("{what}: {reason}").into();
                batch.events.push(SourceEvent::Failed { at: now, reason });
            }
            // Before the first list is complete, the end of a failure does not mean that everything was read.
            None if self.reported_failure.is_some() && self.sent_listed => {
                batch.events.push(SourceEvent::Recovered)
            }
            None => {}
        }
        self.reported_failure = failing.into_iter().next();
    }

    /// Current failures, each with its reason.
    fn failing(&self) -> Vec<(&'static str, String)> {
        let watches =
            self.watches.iter().filter_map(|(kind, watch)| Some((kind.plural(), watch.failing.clone()?)));
        watches.chain(self.discovery_failing.clone().map(|reason| ("API groups", reason))).collect()
    }

    fn change(&mut self, change: Change) {
        match change {
            Change::Apply { object, mut warnings } => {
                warnings.extend(self.checks.iter().flat_map(|check| check(&object)));
                let revision = object.meta.revision().map(Arc::from);
                self.set_problems(object.key(), revision.as_ref(), &warnings, Effective::Written);
                self.events.push(SourceEvent::Apply(object));
            }
            Change::Rejected { key, revision, problems, last_good, closed } => {
                let effective = Effective::of_refused(last_good, closed.is_some());
                self.set_problems(&key, revision.as_ref(), &problems, effective);
                self.events.extend(closed.map(SourceEvent::Apply));
            }
            // This source never requests statuses.
            Change::Stored { .. } | Change::Json { .. } => {}
            Change::Delete(key) => {
                self.set_problems(&key, None, &[], Effective::Written);
                self.events.push(SourceEvent::Delete(key));
            }
        }
    }

    fn unserved_report(&self, kind: &UnservedKind, count: &Result<usize, String>) -> ProblemReport {
        let message = match count {
            Ok(_) => format!("objects of {kind} have no effect: this version does not serve their kind"),
            Err(reason) => format!(
                "{kind} is not served by this version, and whether it has objects is unknown: {reason}"
            ),
        };
        ProblemReport {
            severity: Severity::Warning,
            file: self.origin.clone(),
            document: 0,
            line: 0,
            object: None,
            revision: None,
            path: String::new(),
            message,
            count: count.as_ref().ok().copied(),
            hint: None,
            effective: Effective::Written,
        }
    }

    fn set_problems(
        &mut self,
        key: &ObjectKey,
        revision: Option<&Arc<str>>,
        problems: &[Problem],
        effective: Effective,
    ) {
        if problems.is_empty() {
            self.problems_changed |= self.problems.remove(key).is_some();
            return;
        }
        let reports = problems.iter().map(|problem| ProblemReport {
            severity: problem.severity,
            file: self.origin.clone(),
            document: 0,
            line: 0,
            object: Some(key.clone()),
            revision: revision.cloned(),
            path: problem.path.to_string(),
            message: problem.message.clone(),
            count: None,
            hint: problem.hint.clone(),
            effective: if problem.severity == Severity::Error { effective } else { Effective::Written },
        });
        let reports: Vec<_> = reports.collect();
        // Objects with a warning change all the time; their reports, which are sent together with all others,
        // do not.
        if self.problems.get(key) != Some(&reports) {
            self.problems.insert(key.clone(), reports);
            self.problems_changed = true;
        }
    }
}
