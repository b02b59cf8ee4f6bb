//! Queue of ConfigMaps to write: a state machine without IO.

use super::DesiredRoots;
use pilotfish_runtime::BackoffPolicy;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Pauses between writes of one ConfigMap that fail, or that somebody else keeps undoing. Without jitter,
/// because only one replica writes.
const BACKOFF: BackoffPolicy =
    BackoffPolicy::new(Duration::from_secs(1), Duration::from_secs(300)).with_jitter(0.0);
/// Time without a write after which the next one is immediate again.
const CALM: Duration = Duration::from_secs(600);
/// Pause between two writes, which limits them to 50 per second.
const BETWEEN: Duration = Duration::from_millis(20);
/// Writes of one ConfigMap without a calm period that are reported as a conflict.
const DISPUTED: u32 = 5;

/// State of the ConfigMap of one namespace.
#[derive(Debug, Default)]
struct Entry {
    /// Hash of the stored roots; `None` without a ConfigMap, or without the label.
    stored: Option<u64>,
    last_write: Option<Instant>,
    /// Consecutive writes without a calm period between them.
    writes: u32,
}

/// Contents of all ConfigMaps, and of those that must be written.
#[derive(Debug, Default)]
pub(super) struct RootsQueue {
    /// True after the first complete list: before, nothing is known to be missing.
    listed: bool,
    desired: DesiredRoots,
    /// Makes hashes of roots, which others can store in any length.
    hasher: RandomState,
    /// Hash of the desired roots.
    wanted: u64,
    entries: BTreeMap<Arc<str>, Entry>,
    /// Namespaces of which the ConfigMap differs, by the time of its write.
    agenda: BTreeSet<(Instant, Arc<str>)>,
    due: BTreeMap<Arc<str>, Instant>,
    not_before: Option<Instant>,
}

impl RootsQueue {
    /// Handles the end of the first list.
    pub(super) fn listed(&mut self, now: Instant) {
        if !std::mem::replace(&mut self.listed, true) {
            self.check_all(now);
        }
    }

    /// Replaces the roots and the namespaces.
    pub(super) fn set_desired(&mut self, desired: DesiredRoots, now: Instant) {
        if self.desired.roots != desired.roots {
            self.entries.values_mut().for_each(|entry| entry.writes = 0);
            self.agenda.clear();
            self.due.clear();
        }
        let gone: Vec<_> = self.desired.namespaces.difference(&desired.namespaces).cloned().collect();
        self.wanted = self.hasher.hash_one(&*desired.roots);
        self.desired = desired;
        gone.iter().for_each(|namespace| self.unschedule(namespace));
        self.check_all(now);
    }

    /// Handles a stored ConfigMap, or its deletion.
    pub(super) fn stored(&mut self, namespace: &str, roots: Option<&str>, now: Instant) {
        let namespace: Arc<str> = namespace.into();
        let stored = roots.map(|roots| self.hasher.hash_one(roots));
        self.entries.entry(namespace.clone()).or_default().stored = stored;
        self.check(&namespace, now);
    }

    /// Time of the next write.
    pub(super) fn next(&self) -> Option<Instant> {
        let (at, _) = self.agenda.first()?;
        Some(self.not_before.map_or(*at, |not_before| not_before.max(*at)))
    }

    /// Takes the next write, if it is due. The caller must report the result with [`RootsQueue::ended`].
    pub(super) fn take(&mut self, now: Instant) -> Option<(Arc<str>, Arc<str>)> {
        if self.next()? > now {
            return None;
        }
        let (_, namespace) = self.agenda.first()?.clone();
        self.unschedule(&namespace);
        self.not_before = Some(now + BETWEEN);
        Some((namespace, self.desired.roots.clone()))
    }

    /// Handles the result of a write of these roots: it may have failed. Returns true if somebody else keeps
    /// changing the ConfigMap, once.
    pub(super) fn ended(
        &mut self,
        namespace: &Arc<str>,
        roots: &str,
        is_written: bool,
        now: Instant,
    ) -> bool {
        let written = self.hasher.hash_one(roots);
        let entry = self.entries.entry(namespace.clone()).or_default();
        let is_calm = entry.last_write.is_none_or(|last| now.duration_since(last) >= CALM);
        entry.writes = if is_calm { 1 } else { entry.writes + 1 };
        entry.last_write = Some(now);
        if is_written {
            entry.stored = Some(written);
        }
        let is_disputed = is_written && entry.writes == DISPUTED;
        self.check(namespace, now);
        is_disputed
    }

    /// Postpones all writes, for an API server that does not answer.
    pub(super) fn pause(&mut self, until: Instant) {
        self.not_before = self.not_before.max(Some(until));
    }

    fn check_all(&mut self, now: Instant) {
        let all: Vec<_> = self.desired.namespaces.iter().cloned().collect();
        all.iter().for_each(|namespace| self.check(namespace, now));
        let Self { entries, desired, .. } = self;
        entries.retain(|namespace, entry| entry.stored.is_some() || desired.namespaces.contains(namespace));
    }

    /// Schedules the write of a ConfigMap that differs.
    fn check(&mut self, namespace: &Arc<str>, now: Instant) {
        let is_desired =
            self.listed && !self.desired.roots.is_empty() && self.desired.namespaces.contains(namespace);
        let entry = self.entries.entry(namespace.clone()).or_default();
        let differs = entry.stored != Some(self.wanted);
        let at = match entry.last_write {
            Some(last) if entry.writes > 0 => (last + BACKOFF.wait(entry.writes, 1.0)).max(now),
            _ => now,
        };
        if !is_desired || !differs {
            self.unschedule(namespace);
        } else if !self.due.contains_key(namespace) {
            self.due.insert(namespace.clone(), at);
            self.agenda.insert((at, namespace.clone()));
        }
    }

    fn unschedule(&mut self, namespace: &Arc<str>) {
        if let Some(at) = self.due.remove(namespace) {
            self.agenda.remove(&(at, namespace.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Case {
        queue: RootsQueue,
        now: Instant,
    }

    impl Case {
        fn new(roots: &str, namespaces: &[&str]) -> Self {
            let mut case = Self { queue: RootsQueue::default(), now: Instant::now() };
            case.desire(roots, namespaces);
            case
        }

        fn desire(&mut self, roots: &str, namespaces: &[&str]) {
            let namespaces = namespaces.iter().map(|&name| name.into()).collect();
            self.queue.set_desired(DesiredRoots { roots: roots.into(), namespaces }, self.now);
        }

        fn stored(&mut self, namespace: &str, roots: Option<&str>) {
            self.queue.stored(namespace, roots, self.now);
        }

        /// Namespaces that are written within this time, all with or without success.
        fn written(&mut self, within: Duration, is_written: bool) -> Vec<String> {
            let end = self.now + within;
            let mut names = Vec::new();
            while let Some(at) = self.queue.next().filter(|at| *at <= end) {
                self.now = self.now.max(at);
                let (namespace, roots) = self.queue.take(self.now).unwrap();
                self.queue.ended(&namespace, &roots, is_written, self.now);
                names.push(namespace.to_string());
            }
            self.now = end;
            names
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn missing_and_different_config_maps_are_written_after_the_first_list() {
        let mut case = Case::new("one", &["a", "b", "c"]);
        case.stored("a", Some("one"));
        case.stored("b", Some("other"));
        assert!(case.written(SECOND, true).is_empty(), "the list is not complete");
        case.queue.listed(case.now);
        assert_eq!(case.written(SECOND, true), ["b", "c"]);
        assert!(case.written(SECOND, true).is_empty());
        case.desire("one", &["a", "b", "c", "d"]);
        assert_eq!(case.written(SECOND, true), ["d"]);
        case.desire("two", &["a", "d"]);
        assert_eq!(case.written(SECOND, true), ["a", "d"], "others are left as they are");
        case.stored("b", None);
        assert!(case.written(SECOND, true).is_empty());
    }

    #[test]
    fn nothing_is_written_without_roots() {
        let mut case = Case::new("", &["a"]);
        case.queue.listed(case.now);
        assert!(case.written(SECOND, true).is_empty());
    }

    #[test]
    fn changes_by_others_are_undone_ever_more_slowly() {
        let mut case = Case::new("one", &["a"]);
        case.queue.listed(case.now);
        assert_eq!(case.written(SECOND, true), ["a"]);
        let mut writes = 0;
        for _ in 0..3_600 {
            case.stored("a", Some("other"));
            writes += case.written(SECOND, true).len();
        }
        assert!((8..25).contains(&writes), "{writes} in an hour");
        case.written(CALM, true);
        case.written(CALM, true);
        case.stored("a", None);
        let before = case.written(Duration::from_secs(300), true);
        assert_eq!(before, ["a"], "at the latest after five minutes");
        // New roots are not delayed by the dispute.
        case.desire("two", &["a"]);
        assert_eq!(case.written(SECOND, true), ["a"]);
    }

    #[test]
    fn a_dispute_is_reported_once() {
        let mut case = Case::new("one", &["a"]);
        case.queue.listed(case.now);
        let mut reports = Vec::new();
        for write in 1..10 {
            case.now = case.queue.next().unwrap();
            let (namespace, roots) = case.queue.take(case.now).unwrap();
            if case.queue.ended(&namespace, &roots, true, case.now) {
                reports.push(write);
            }
            case.stored("a", Some("other"));
        }
        assert_eq!(reports, [DISPUTED]);
    }

    #[test]
    fn failures_are_repeated_while_the_namespace_is_desired() {
        let mut case = Case::new("one", &["a"]);
        case.queue.listed(case.now);
        let tries = case.written(Duration::from_secs(60), false).len();
        assert!((4..8).contains(&tries), "{tries}");
        // New roots are not delayed by a failure.
        case.desire("two", &["a"]);
        assert_eq!(case.written(Duration::ZERO, false), ["a"]);
        case.desire("two", &[]);
        assert!(case.written(CALM, false).is_empty() && case.queue.entries.is_empty());
    }

    #[test]
    fn writes_are_limited_to_fifty_per_second_and_pause() {
        let names: Vec<String> = (0..200).map(|n| format!("n{n:03}")).collect();
        let mut case = Case::new("one", &names.iter().map(String::as_str).collect::<Vec<_>>());
        case.queue.listed(case.now);
        assert!(case.written(SECOND, true).len() <= 51);
        case.queue.pause(case.now + 2 * SECOND);
        assert!(case.written(SECOND, true).is_empty());
        assert_eq!(case.written(10 * SECOND, true).len(), 149);
    }
}
