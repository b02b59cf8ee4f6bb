use super::*;
use crate::Instance;
use crate::testing::{instance, key};
use std::collections::BTreeMap;
use std::sync::Arc;

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// Liveness of a service with leases of 10 s, and what it said.
struct Driven {
    liveness: Liveness,
    now: Duration,
    records: BTreeMap<usize, Record>,
    /// What is believed: lapsed, and disbelieved.
    lapsed: BTreeMap<String, bool>,
    removed: Vec<String>,
    said: Vec<Verdict>,
}

impl Driven {
    /// With that many instances.
    fn new(count: usize, settings: LivenessSettings) -> Self {
        let mut driven = Self {
            liveness: Liveness::new(settings),
            now: seconds(0),
            records: BTreeMap::new(),
            lapsed: BTreeMap::new(),
            removed: Vec::new(),
            said: Vec::new(),
        };
        (0..count).for_each(|id| driven.register(id, RecordState::Serving));
        driven
    }

    fn register(&mut self, id: usize, state: RecordState) {
        let instance = Instance { drain: seconds(20), ..instance(&id.to_string()) };
        let before = self.records.remove(&id);
        let revision = before.as_ref().map_or(1, |record| record.revision + 1);
        let instance = Arc::new(instance);
        let record = Record { instance, owner: "o".into(), revision, created: 1, state };
        let verdicts = self.liveness.changed(&record.instance.key, before.as_ref(), Some(&record), self.now);
        self.lapsed.remove(&id.to_string());
        self.records.insert(id, record);
        self.take(verdicts);
    }

    fn remove(&mut self, id: usize) {
        let record = self.records.remove(&id).expect("registered");
        let verdicts = self.liveness.changed(&record.instance.key, Some(&record), None, self.now);
        self.lapsed.remove(&id.to_string());
        self.take(verdicts);
    }

    fn lapse(&mut self, ids: impl IntoIterator<Item = usize>) {
        for id in ids {
            let verdicts = self.liveness.lapsed(&self.records[&id], self.now);
            self.take(verdicts);
        }
    }

    fn renew(&mut self, ids: impl IntoIterator<Item = usize>) {
        for id in ids {
            let verdicts = self.liveness.renewed(&key(&id.to_string()), self.now);
            self.take(verdicts);
        }
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += Duration::from_millis(500);
            let verdicts = self.liveness.due(self.now, 1_000);
            self.take(verdicts);
        }
    }

    fn take(&mut self, verdicts: Vec<Verdict>) {
        for verdict in verdicts {
            match verdict {
                Verdict::Lapsed { key, lapsed: true, preserved } => {
                    self.lapsed.insert(key.id.to_string(), preserved);
                }
                Verdict::Lapsed { key, .. } => drop(self.lapsed.remove(&*key.id)),
                Verdict::Remove { key, revision } => {
                    let id: usize = key.id.parse().expect("a number");
                    assert_eq!(self.records.get(&id).map(|record| record.revision), Some(revision));
                    self.removed.push(key.id.to_string());
                }
                other => self.said.push(other),
            }
        }
    }

    /// How many are believed to have lapsed, and how many are not.
    fn counts(&self) -> (usize, usize) {
        let preserved = self.lapsed.values().filter(|preserved| **preserved).count();
        (self.lapsed.len() - preserved, preserved)
    }
}

fn web() -> ServiceKey {
    ServiceKey::new("default", "web")
}

#[test]
fn what_lapses_is_removed_after_a_while() {
    let mut driven = Driven::new(10, LivenessSettings::default());
    driven.lapse([0]);
    assert_eq!(driven.counts(), (1, 0), "marked at once");
    driven.pass(seconds(19));
    assert_eq!(driven.removed, [] as [&str; 0]);
    driven.pass(seconds(2));
    assert_eq!(driven.removed, ["0"], "after twice its TTL");
    driven.pass(seconds(11));
    assert_eq!(driven.removed, ["0", "0"], "said again until it is gone");
    driven.remove(0);
    driven.pass(seconds(100));
    assert_eq!(driven.removed.len(), 2);
    assert!(driven.liveness.due.is_empty() && driven.liveness.removals.is_empty(), "nothing is left over");
}

#[test]
fn an_instance_with_its_own_time_is_removed_after_that() {
    let mut driven = Driven::new(10, LivenessSettings::default());
    let record = driven.records.get_mut(&0).expect("registered");
    let own = Instance { remove_after: Some(seconds(60)), ..(*record.instance).clone() };
    record.instance = Arc::new(own);
    driven.lapse([0]);
    driven.pass(seconds(59));
    assert_eq!((driven.counts(), driven.removed.len()), ((1, 0), 0));
    driven.pass(seconds(2));
    assert_eq!(driven.removed, ["0"]);
}

#[test]
fn what_comes_back_is_not_removed() {
    let mut driven = Driven::new(10, LivenessSettings::default());
    driven.lapse([0, 1]);
    driven.pass(seconds(15));
    driven.renew([0]);
    driven.register(1, RecordState::Serving);
    assert_eq!(driven.counts(), (0, 0));
    driven.pass(seconds(100));
    assert_eq!(driven.removed, [] as [&str; 0]);
}

#[test]
fn the_time_until_removal_can_be_set() {
    let settings = LivenessSettings { remove_after: Some(seconds(60)), ..LivenessSettings::default() };
    let mut driven = Driven::new(10, settings);
    driven.lapse([0]);
    driven.pass(seconds(59));
    assert_eq!(driven.removed, [] as [&str; 0]);
    driven.pass(seconds(2));
    assert_eq!(driven.removed, ["0"]);
}

#[test]
fn what_drains_is_removed_after_its_grace_and_not_for_its_lease() {
    let mut driven = Driven::new(10, LivenessSettings::default());
    driven.register(0, RecordState::Draining);
    driven.lapse([0]);
    assert_eq!(driven.counts(), (0, 0), "it has no lease");
    driven.pass(seconds(19));
    assert_eq!(driven.removed, [] as [&str; 0]);
    driven.pass(seconds(1));
    assert_eq!(driven.removed, ["0"]);
    // Registered again, it stays.
    driven.remove(0);
    driven.register(1, RecordState::Draining);
    driven.pass(seconds(10));
    driven.register(1, RecordState::Serving);
    driven.pass(seconds(100));
    assert_eq!(driven.removed, ["0"]);
}

#[test]
fn most_leases_that_lapse_together_are_not_believed() {
    let mut driven = Driven::new(10, LivenessSettings::default());
    driven.lapse(0..5);
    assert_eq!(driven.counts(), (5, 0), "half of them can be true");
    driven.pass(seconds(5));
    driven.lapse([5]);
    assert_eq!(driven.counts(), (0, 6), "all of them are as they were");
    assert_eq!(driven.said, [Verdict::Preserving { service: web(), lapsed: 6, leased: 10 }]);
    assert_eq!(driven.liveness.preserving(), [web()]);
    driven.lapse([6]);
    driven.pass(seconds(600));
    assert_eq!((driven.counts(), driven.removed.len()), ((0, 7), 0));
    // Too long: it is believed, and they are removed after the usual time.
    driven.pass(seconds(301));
    assert_eq!(driven.counts(), (7, 0));
    assert_eq!(driven.said[1], Verdict::Preserved { service: web(), is_overdue: true });
    driven.pass(seconds(21));
    assert_eq!(driven.removed.len(), 7);
}

#[test]
fn who_comes_back_ends_it() {
    let mut driven = Driven::new(10, LivenessSettings::default());
    driven.lapse(0..10);
    assert_eq!(driven.counts(), (0, 10));
    driven.pass(seconds(60));
    driven.renew(0..8);
    assert_eq!(driven.counts(), (0, 2), "the others have a while");
    driven.pass(seconds(29));
    driven.renew([8]);
    assert_eq!(driven.counts(), (0, 1));
    driven.pass(seconds(2));
    assert_eq!(driven.counts(), (1, 0));
    assert_eq!(driven.said[1], Verdict::Preserved { service: web(), is_overdue: false });
    driven.pass(seconds(21));
    assert_eq!(driven.removed, ["9"]);
    // All back: it ends at once, and nothing is left over.
    driven.remove(9);
    driven.lapse(0..9);
    assert_eq!(driven.counts(), (0, 9));
    driven.renew(0..9);
    assert_eq!((driven.counts(), driven.liveness.preserving().len()), ((0, 0), 0));
    assert!(driven.liveness.due.is_empty());
}

#[test]
fn most_that_lapse_again_while_they_come_back_are_kept() {
    let mut driven = Driven::new(10, LivenessSettings::default());
    driven.lapse(0..10);
    driven.renew(0..6);
    driven.pass(seconds(10));
    driven.lapse(0..6);
    driven.pass(seconds(120));
    assert_eq!((driven.counts(), driven.removed.len()), ((0, 10), 0));
}

#[test]
fn a_few_and_what_lapses_one_after_another_is_believed() {
    let mut driven = Driven::new(3, LivenessSettings::default());
    driven.lapse([0, 1]);
    assert_eq!(driven.counts(), (2, 0), "two are too few to disbelieve");
    driven.lapse([2]);
    assert_eq!(driven.counts(), (0, 3), "three of three are not");
    let settings = LivenessSettings { remove_after: Some(seconds(1_000)), ..LivenessSettings::default() };
    let mut driven = Driven::new(5, settings);
    for id in 0..5 {
        driven.lapse([id]);
        driven.pass(seconds(20));
    }
    assert_eq!(driven.counts(), (5, 0), "each 20 s after the one before, within 30 s there are two");
    let settings = LivenessSettings { preservation: false, ..LivenessSettings::default() };
    let mut driven = Driven::new(10, settings);
    driven.lapse(0..10);
    assert_eq!(driven.counts(), (10, 0), "switched off");
}

#[test]
fn a_service_that_is_gone_leaves_nothing() {
    let mut driven = Driven::new(10, LivenessSettings::default());
    driven.lapse(0..10);
    (0..10).for_each(|id| driven.remove(id));
    assert!(driven.liveness.services.is_empty() && driven.liveness.due.is_empty());
    assert!(driven.liveness.removals.is_empty());
}

#[test]
fn a_step_does_a_part() {
    let settings = LivenessSettings { preservation: false, ..LivenessSettings::default() };
    let mut driven = Driven::new(100, settings);
    driven.lapse(0..100);
    let now = seconds(1_000);
    let counts: Vec<usize> = (0..4).map(|_| driven.liveness.due(now, 40).len()).collect();
    assert_eq!(counts, [40, 40, 20, 0]);
}
