//! The last changes on their way to the proxies.

use pilotfish_admin::{CHANGES, millis};
use pilotfish_api::v1::ChangeProgress;
use pilotfish_model::{ChangeSet, Fact};
use pilotfish_xds::ConnectionStatus;
use std::collections::{BTreeSet, VecDeque};
use std::time::SystemTime;

/// Things that one change names.
const NAMED: usize = 5;

/// The last changes, the newest first.
#[derive(Debug, Default)]
pub(super) struct ChangeLog {
    changes: VecDeque<Change>,
}

#[derive(Debug)]
struct Change {
    at: SystemTime,
    progress: ChangeProgress,
}

impl ChangeLog {
    /// Notes a publication.
    pub(super) fn note(&mut self, revision: u64, changes: &ChangeSet, at: SystemTime) {
        let all = named(changes);
        let progress = ChangeProgress {
            revision,
            at: millis(at),
            more: all.len().saturating_sub(NAMED),
            what: all.into_iter().take(NAMED).collect(),
            ..ChangeProgress::default()
        };
        self.changes.truncate(CHANGES - 1);
        self.changes.push_front(Change { at, progress });
    }

    /// Whether some proxy may not have acknowledged one of them.
    pub(super) fn is_open(&self) -> bool {
        self.changes.iter().any(|change| !change.progress.complete)
    }

    /// Looks at who has acknowledged what. `current` is the revision of which the connections tell.
    pub(super) fn look(&mut self, current: u64, connections: &[ConnectionStatus]) {
        let open = self.changes.iter_mut().filter(|change| !change.progress.complete);
        for change in open.filter(|change| change.progress.revision <= current) {
            change.look(current, connections);
        }
    }

    /// What is told about them.
    pub(super) fn told(&self) -> Vec<ChangeProgress> {
        self.changes.iter().map(|change| change.progress.clone()).collect()
    }
}

impl Change {
    fn look(&mut self, current: u64, connections: &[ConnectionStatus]) {
        let revision = self.progress.revision;
        let concerned =
            || connections.iter().filter(|one| one.concerned >= revision && one.connected_at < self.at);
        let (mut all, mut acknowledged, mut rejected, mut last) = (0, 0, 0, None);
        for connection in concerned() {
            all += 1;
            let mut missing = connection.missing(revision).peekable();
            if missing.peek().is_none() {
                acknowledged += 1;
            } else if missing.any(|(_, status)| status.rejection.is_some()) {
                rejected += 1;
            }
            last = connection.types.values().filter_map(|status| status.acked_at).chain(last).max();
        }
        // A later change concerns others: how many this one did is what was seen before.
        if revision == current || self.progress.proxies == 0 {
            self.progress.proxies = all;
        }
        let left = all - acknowledged;
        self.progress.acknowledged = self.progress.proxies.saturating_sub(left);
        self.progress.rejected = rejected;
        self.progress.complete = left == 0;
        let is_newest = revision == current && all > 0 && left == 0;
        // Where all had acknowledged it before it was noted here, how long that took is not known.
        let took = last.filter(|_| is_newest).and_then(|last| last.duration_since(self.at).ok());
        self.progress.seconds = took.map(|took| (took.as_secs_f64() * 10_000.0).round() / 10_000.0);
    }
}

/// What changed, in words: objects first, then what has none.
fn named(changes: &ChangeSet) -> BTreeSet<String> {
    let objects: BTreeSet<String> = changes.facts.iter().filter_map(object).collect();
    if objects.is_empty() { changes.facts.iter().filter_map(other).collect() } else { objects }
}

fn object(fact: &Fact) -> Option<String> {
    match fact {
        Fact::Object(key) => Some(key.to_string()),
        _ => None,
    }
}

fn other(fact: &Fact) -> Option<String> {
    match fact {
        Fact::Service(key) => Some(format!("service {}", key.hostname)),
        Fact::Endpoints(key) => Some(format!("endpoints of {}", key.hostname)),
        Fact::Workload(key) => Some(format!("workload {}/{}", key.namespace, key.name)),
        Fact::NetworkGateways => Some("gateways between networks".to_owned()),
        Fact::SecretAccess(reader) => Some(format!("who may read Secrets: {reader}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_model::{Kind, ObjectKey};

    fn changes(names: &[&str]) -> ChangeSet {
        let fact = |name: &&str| Fact::Object(ObjectKey::new(Kind::VirtualService, "shop", *name));
        ChangeSet { facts: names.iter().map(fact).collect() }
    }

    #[test]
    fn a_change_names_few_objects_and_counts_the_others() {
        let mut log = ChangeLog::default();
        log.note(3, &changes(&["a", "b", "c", "d", "e", "f", "g"]), SystemTime::now());
        let told = log.told();
        assert_eq!((told[0].what.len(), told[0].more), (5, 2));
        assert_eq!(told[0].what[0], "VirtualService shop/a");
        assert!(log.is_open());
        log.look(2, &[]);
        assert!(log.is_open(), "the connections tell of an older revision");
        log.look(3, &[]);
        assert!(!log.is_open(), "it concerns nobody");
    }

    #[test]
    fn so_many_changes_are_kept() {
        let mut log = ChangeLog::default();
        for revision in 1..200 {
            log.note(revision, &changes(&["a"]), SystemTime::now());
        }
        assert_eq!((log.told().len(), log.told()[0].revision), (CHANGES, 199));
    }
}
