//! Writes for connections, their times, and the interaction of several replicas.

use super::annotations::{self, Connected, Seen, later};
use super::entry::EntryName;
use super::stale_tracker::StaleEntry;
use super::tests::{annotations_of, at, made, mark, name, request};
use super::tracker::{ConnectionTracker, Event, Outcome, Task};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// The state machine with its clock.
struct Scene {
    tracker: ConnectionTracker,
    now: Instant,
}

impl Scene {
    fn new() -> Self {
        Self { tracker: ConnectionTracker::new(Duration::from_secs(10)), now: Instant::now() }
    }

    fn connect(&mut self, connection: u64, time: i64) {
        self.tracker.take(Event::Connected { connection, entry: name(), request: request(), at: at(time) });
    }

    fn disconnect(&mut self, connection: u64, time: i64) {
        self.tracker.take(Event::Disconnected { connection, entry: name(), at: at(time) });
    }

    fn due(&mut self) -> Option<Task> {
        let mut due = self.tracker.due(self.now);
        assert!(due.len() < 2);
        due.pop().map(|(_, task)| task)
    }

    fn done(&mut self, task: &Task, outcome: Outcome) {
        self.tracker.done(&name(), task, outcome, self.now);
    }

    /// Does the tasks that are due; describes them.
    fn work(&mut self) -> String {
        self.now += Duration::from_millis(1);
        let Some(task) = self.due() else { return String::new() };
        self.done(&task, Outcome::Done);
        match task {
            Task::Connect { at: time, .. } => {
                format!("connected at {}", time.duration_since(at(0)).as_secs())
            }
            Task::Disconnect { at: time } => {
                format!("disconnected at {}", time.duration_since(at(0)).as_secs())
            }
            Task::Report { health, .. } => format!("{health:?}"),
            Task::CleanUp { is_sure: true, .. } => "clean up".into(),
            Task::CleanUp { .. } => "check".into(),
        }
    }
}

#[test]
fn only_the_last_connection_counts_and_the_grace_time_follows() {
    let mut scene = Scene::new();
    scene.connect(1, 0);
    assert_eq!(scene.work(), "connected at 0");
    scene.connect(2, 5);
    assert_eq!(scene.work(), "connected at 5");
    scene.disconnect(1, 6);
    assert_eq!(scene.work(), "");
    scene.disconnect(2, 7);
    assert_eq!(scene.work(), "disconnected at 7");
    assert_eq!(scene.work(), "");
    scene.now += Duration::from_secs(9);
    assert_eq!(scene.work(), "");
    scene.now += Duration::from_secs(1);
    assert_eq!(scene.work(), "clean up");
    assert_eq!(scene.tracker.next(), None, "nothing is left");
}

#[test]
fn a_workload_that_returns_in_time_keeps_its_entry() {
    let mut scene = Scene::new();
    scene.connect(1, 0);
    scene.work();
    scene.disconnect(1, 1);
    scene.work();
    scene.connect(2, 3);
    assert_eq!(scene.work(), "connected at 3");
    scene.now += Duration::from_secs(60);
    assert_eq!(scene.work(), "");
}

#[test]
fn what_happens_meanwhile_is_written_once() {
    let mut scene = Scene::new();
    scene.connect(1, 0);
    let task = scene.due().unwrap();
    scene.disconnect(1, 1);
    scene.connect(2, 2);
    scene.disconnect(2, 3);
    scene.connect(3, 4);
    assert_eq!(scene.due(), None, "one thing at a time");
    scene.done(&task, Outcome::Done);
    assert_eq!(scene.work(), "connected at 4");
    assert_eq!(scene.work(), "");
}

#[test]
fn what_fails_is_tried_on_ever_more_seldom() {
    let mut scene = Scene::new();
    let fail = |scene: &mut Scene, outcome| {
        let task = scene.due().unwrap();
        scene.done(&task, outcome);
        assert_eq!(scene.due(), None);
        let next = scene.tracker.next()?;
        let pause = next.duration_since(scene.now).as_millis();
        scene.now = next;
        Some(pause)
    };
    scene.connect(1, 0);
    for pause in [5, 10, 20, 40] {
        assert_eq!(fail(&mut scene, Outcome::Retry), Some(pause));
    }
    for _ in 0..100 {
        let pause = fail(&mut scene, Outcome::Retry).unwrap();
        assert!((80..=15_000).contains(&pause), "{pause}");
    }
    assert_eq!(fail(&mut scene, Outcome::Retry), Some(15_000), "a connection is not forgotten");
    assert_eq!(scene.work(), "connected at 0");
    scene.disconnect(1, 1);
    for _ in 0..20 {
        fail(&mut scene, Outcome::Retry);
    }
    assert_eq!(scene.work(), "disconnected at 1", "nor is a workload that left");
}

#[test]
fn what_may_be_hopeless_is_tried_five_times_and_again_at_the_sweep() {
    let mut scene = Scene::new();
    scene.connect(1, 0);
    for _ in 0..5 {
        scene.now += Duration::from_secs(1);
        let task = scene.due().unwrap();
        scene.done(&task, Outcome::Missing);
    }
    assert_eq!((scene.due(), scene.tracker.next()), (None, None));
    scene.now += Duration::from_secs(10);
    scene.tracker.renew(|_| None, (scene.now, at(100)));
    assert_eq!(scene.work(), "connected at 0");
    scene.tracker.renew(|_| Some(Some(at(0))), (scene.now, at(5000)));
    assert_eq!(scene.work(), "", "nothing is due, whatever the wall clock shows");
}

#[test]
fn marks_are_renewed_after_half_an_hour_whatever_the_wall_clock() {
    let mut scene = Scene::new();
    scene.connect(1, 0);
    assert_eq!(scene.work(), "connected at 0");
    scene.now += Duration::from_secs(1799);
    scene.tracker.renew(|_| Some(Some(at(0))), (scene.now, at(1799)));
    assert_eq!(scene.work(), "");
    scene.now += Duration::from_secs(1);
    scene.tracker.renew(|_| Some(Some(at(0))), (scene.now, at(1800)));
    assert_eq!(scene.work(), "connected at 1800");
    scene.now += Duration::from_secs(1800);
    // The clock was turned back by an hour: the mark must differ all the same.
    scene.tracker.renew(|_| Some(Some(at(1800))), (scene.now, at(0)));
    let Some(Task::Connect { at: time, .. }) = scene.due() else { panic!("nothing is renewed") };
    assert!(time > at(1800));
}

#[test]
fn a_workload_that_another_replica_claims_is_claimed_at_the_next_sweep() {
    let mut scene = Scene::new();
    scene.connect(1, 0);
    let task = scene.due().unwrap();
    // Another replica's clock is ahead, and its mark came between.
    scene.done(&task, Outcome::Elsewhere);
    scene.now += Duration::from_secs(10);
    scene.tracker.renew(|_| Some(Some(at(3600))), (scene.now, at(100)));
    let Some(Task::Connect { at: time, .. }) = scene.due() else { panic!("it is given up") };
    assert!(time > at(3600));
}

#[test]
fn what_seems_to_be_nobodys_is_watched_once_more() {
    let mut scene = Scene::new();
    let stale = |scene: &Scene| StaleEntry {
        name: name(),
        mark: mark(&made(&request())).unwrap(),
        at: scene.now,
        is_sure: false,
    };
    scene.tracker.stale(stale(&scene));
    let task = scene.due().unwrap();
    assert!(matches!(task, Task::CleanUp { is_sure: false, .. }));
    scene.done(&task, Outcome::Again);
    scene.tracker.stale(stale(&scene));
    scene.now += Duration::from_secs(59);
    assert_eq!(scene.due(), None);
    scene.now += Duration::from_secs(1);
    let task = scene.due().unwrap();
    assert!(matches!(task, Task::CleanUp { is_sure: true, .. }));
    // The API server was unreachable: the replica with the connection could not write either.
    for _ in 0..3 {
        scene.done(&task, Outcome::Retry);
        assert_eq!(scene.due(), None, "not at once");
        scene.now += Duration::from_secs(15);
        assert!(matches!(scene.due(), Some(Task::CleanUp { is_sure: false, .. })));
    }
    scene.done(&task, Outcome::Again);
    // It connects here meanwhile.
    scene.connect(1, 0);
    assert_eq!(scene.work(), "connected at 0");
    scene.now += Duration::from_secs(600);
    assert_eq!(scene.work(), "");
}

#[test]
fn at_the_end_nothing_is_tried_for_ever() {
    let mut scene = Scene::new();
    scene.connect(1, 0);
    for _ in 0..20 {
        scene.now += Duration::from_secs(15);
        let task = scene.due().unwrap();
        scene.done(&task, Outcome::Retry);
    }
    scene.disconnect(1, 1);
    let task = scene.due().unwrap();
    scene.done(&task, Outcome::Retry);
    scene.tracker.end();
    for _ in 0..5 {
        assert!(scene.tracker.has_news());
        let task = scene.due().unwrap();
        scene.done(&task, Outcome::Retry);
        scene.now += Duration::from_millis(500);
    }
    assert!(!scene.tracker.has_news());
}

#[test]
fn a_workload_that_reconnects_without_end_is_written_once_in_a_second() {
    let mut scene = Scene::new();
    let mut writes = 0;
    for n in 0..1000 {
        scene.connect(n, n as i64);
        writes += usize::from(!scene.work().is_empty());
        scene.tracker.take(Event::Health { entry: name(), at: at(n as i64), health: Ok(()) });
        writes += usize::from(!scene.work().is_empty());
        scene.disconnect(n, n as i64);
        writes += usize::from(!scene.work().is_empty());
        scene.now += Duration::from_millis(7);
    }
    assert!((14..=16).contains(&writes), "{writes} in 10 s, 5 of them at once");
    scene.now += Duration::from_secs(1);
    assert_eq!(scene.work(), "disconnected at 999", "the last state is written");
}

#[test]
fn what_others_did_to_the_entry_of_a_connected_workload_is_mended() {
    let mut scene = Scene::new();
    scene.tracker.take(Event::Left { entry: name() });
    assert_eq!(scene.work(), "", "nothing is connected here");
    scene.connect(1, 0);
    scene.tracker.take(Event::Health { entry: name(), at: at(1), health: Err("down".into()) });
    assert_eq!((scene.work(), scene.work()), ("connected at 0".into(), "Err(\"down\")".into()));
    scene.tracker.take(Event::Left { entry: name() });
    assert_eq!((scene.work(), scene.work()), ("connected at 0".into(), "Err(\"down\")".into()));
    scene.tracker.take(Event::Gone { entry: name(), at: scene.now });
    assert_eq!(scene.work(), "", "not at once: it may be deleted again and again");
    scene.now += Duration::from_secs(1);
    assert_eq!((scene.work(), scene.work()), ("connected at 0".into(), "Err(\"down\")".into()));
}

#[test]
fn health_follows_the_connection_and_the_newest_counts() {
    let mut scene = Scene::new();
    let report = |scene: &mut Scene, time, health: Result<(), &str>| {
        scene.tracker.take(Event::Health {
            entry: name(),
            at: at(time),
            health: health.map_err(str::to_owned),
        });
    };
    report(&mut scene, 0, Ok(()));
    assert_eq!(scene.work(), "", "nothing is connected");
    scene.connect(1, 0);
    report(&mut scene, 1, Ok(()));
    report(&mut scene, 2, Err("down"));
    assert_eq!(scene.work(), "connected at 0");
    assert_eq!(scene.work(), "Err(\"down\")");
    assert_eq!(scene.work(), "");
    report(&mut scene, 3, Ok(()));
    scene.disconnect(1, 4);
    assert_eq!(scene.work(), "disconnected at 4");
    assert_eq!(scene.work(), "", "a workload that is gone has no health");
}

#[test]
fn a_group_that_is_made_again_registers_its_workloads() {
    let mut scene = Scene::new();
    scene.connect(1, 0);
    scene.work();
    let added = |group: &str| Event::GroupAdded { namespace: "vms".into(), name: group.into() };
    scene.tracker.take(added("other"));
    assert_eq!(scene.work(), "");
    scene.tracker.take(added("machines"));
    assert_eq!(scene.work(), "connected at 0");
}

#[test]
fn clean_ups_come_one_after_the_other_and_spare_the_connected() {
    let mut scene = Scene::new();
    let entry = |n: u32| EntryName { namespace: "vms".into(), name: format!("e{n}").into() };
    scene.connect(1, 0);
    scene.work();
    let seen = mark(&made(&request())).unwrap();
    let stale = |name: EntryName, at| StaleEntry { name, mark: seen.clone(), at, is_sure: true };
    scene.tracker.stale(stale(name(), scene.now));
    (0..3).for_each(|n| scene.tracker.stale(stale(entry(n), scene.now)));
    let task = Task::CleanUp { seen: Seen::ConnectionMark(seen.clone()), is_sure: true };
    for n in 0..3 {
        assert_eq!(scene.tracker.due(scene.now), [(entry(n), task.clone())]);
        scene.tracker.done(&entry(n), &task, Outcome::Done, scene.now);
        assert_eq!(scene.tracker.due(scene.now), []);
        scene.now += Duration::from_millis(50);
    }
    assert_eq!(scene.tracker.next(), None);
}

/// Two replicas that share the annotations of one entry; the workload moves between them.
#[derive(Clone, Copy, Debug)]
enum Move {
    /// It connects, and the replica has seen the entry's latest version, or not yet.
    Connect(usize, bool),
    Disconnect(usize),
    /// The replica does its next task.
    Work(usize),
    See(usize),
}

const NAMES: [&str; 2] = ["replica-a", "replica-b"];

/// Does a replica's next task. Returns false if there is none.
fn work(entry: &mut Value, replicas: &mut [Scene; 2], at_replica: usize) -> bool {
    let replica = &mut replicas[at_replica];
    replica.now += Duration::from_secs(1);
    let Some(task) = replica.due() else { return false };
    let outcome = match &task {
        Task::Connect { at, .. } => match annotations::connect(entry, NAMES[at_replica], *at) {
            Connected::Here(_) => Outcome::Done,
            Connected::Elsewhere => Outcome::Elsewhere,
        },
        Task::Disconnect { at } => {
            annotations::disconnect(entry, NAMES[at_replica], *at);
            Outcome::Done
        }
        _ => Outcome::Done,
    };
    replica.done(&task, outcome);
    true
}

/// Shows the current entry to a replica.
fn see(entry: &Value, replica: &mut Scene) {
    if mark(entry).is_some_and(|mark| mark.has_left()) {
        replica.tracker.take(Event::Left { entry: name() });
    }
}

proptest! {
    /// For any order of writes, clock error and knowledge of each other: in the end the entry names the
    /// replica with the connection, or the time since which there is none.
    #[test]
    fn replicas_agree_in_the_end(
        moves in proptest::collection::vec((0usize..2, 0u8..5), 1..40),
        wrong in [-7200i64..7200, -7200i64..7200],
    ) {
        let mut replicas = [Scene::new(), Scene::new()];
        let mut entry = json!({"metadata": {"name": "machines-10.0.0.1"}});
        // The workload's connection: at most one, as of one proxy.
        let mut connected: Option<(usize, u64)> = None;
        let mut time = 0;
        let moves = moves.into_iter().map(|(replica, what)| match what {
            0 => Move::Connect(replica, true),
            1 => Move::Connect(replica, false),
            2 => Move::Disconnect(replica),
            3 => Move::See(replica),
            _ => Move::Work(replica),
        });
        for (number, next) in moves.enumerate() {
            time += 1;
            match next {
                Move::Connect(replica, knows) => {
                    let known = mark(&entry).filter(|_| knows).and_then(|mark| mark.latest());
                    let at = later(at(time + wrong[replica]), known);
                    // It connects before the other replica sees that it left.
                    let (connection, entry) = (number as u64, name());
                    let event = Event::Connected { connection, entry, request: request(), at };
                    replicas[replica].tracker.take(event);
                    time += 1;
                    if let Some((old, number)) = connected.replace((replica, number as u64)) {
                        replicas[old].disconnect(number, time + wrong[old]);
                    }
                }
                Move::Disconnect(replica) => {
                    if let Some((_, number)) = connected.take_if(|(at, _)| *at == replica) {
                        replicas[replica].disconnect(number, time + wrong[replica]);
                    }
                }
                Move::Work(replica) => {
                    work(&mut entry, &mut replicas, replica);
                }
                Move::See(replica) => see(&entry, &mut replicas[replica]),
            }
        }
        for replica in [0, 1, 0, 1] {
            while work(&mut entry, &mut replicas, replica) {}
            replicas.iter_mut().for_each(|replica| see(&entry, replica));
        }
        let annotations = annotations_of(&entry);
        match connected {
            Some((replica, _)) => prop_assert_eq!(
                (annotations[0], annotations[1].is_some(), annotations[2]),
                (Some(NAMES[replica]), true, None)
            ),
            None => prop_assert!(annotations[1].is_none(), "{:?}", annotations),
        }
    }
}
