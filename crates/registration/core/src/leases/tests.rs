use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn key(id: usize) -> InstanceKey {
    InstanceKey::new("default", "web", format!("i{id}"))
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// A table, and a clock that goes in ticks as that of a store does.
struct Driven {
    table: LeaseTable,
    now: Instant,
}

impl Driven {
    fn new() -> Self {
        let now = Instant::now();
        Self { table: LeaseTable::new(now), now }
    }

    /// Lets time pass, tick by tick. Returns what happened.
    fn pass(&mut self, time: Duration) -> Vec<LeaseEvent> {
        let end = self.now + time;
        while self.now < end {
            self.now += RunningClock::CADENCE.min(end - self.now);
            while self.table.advance(self.now, 16) {}
        }
        self.table.take_events()
    }
}

#[test]
fn a_lease_that_is_not_renewed_lapses_and_can_be_renewed() {
    let mut leases = Driven::new();
    assert!(!leases.table.renew(&key(1)), "there is none");
    leases.table.start(&key(1), seconds(10));
    assert_eq!(leases.pass(seconds(9)), []);
    assert!(leases.table.renew(&key(1)));
    assert_eq!(leases.pass(seconds(10)), [], "renewed at 9 s");
    assert_eq!(leases.pass(seconds(1)), [LeaseEvent::Lapsed(key(1))]);
    assert_eq!(leases.pass(seconds(100)), [], "once");
    assert_eq!((leases.table.len(), leases.table.lapsed()), (1, 1));
    assert!(leases.table.renew(&key(1)), "lapsed, and not gone");
    assert_eq!(leases.table.take_events(), [LeaseEvent::Renewed(key(1))]);
    assert_eq!(leases.pass(seconds(11)), [LeaseEvent::Lapsed(key(1))]);
    leases.table.end(&key(1));
    assert!(!leases.table.renew(&key(1)));
    assert_eq!((leases.table.len(), leases.table.lapsed()), (0, 0));
}

#[test]
fn a_shorter_ttl_counts_from_when_it_is_said() {
    let mut leases = Driven::new();
    leases.table.start(&key(1), seconds(3600));
    assert!(!leases.table.start(&key(1), seconds(1)));
    assert_eq!(leases.pass(seconds(2)), [LeaseEvent::Lapsed(key(1))]);
    assert!(leases.table.start(&key(1), seconds(20)), "it had lapsed");
    assert_eq!(leases.pass(seconds(20)), []);
    assert_eq!(leases.pass(seconds(1)), [LeaseEvent::Lapsed(key(1))]);
}

#[test]
fn our_own_pause_expires_nobody() {
    let mut leases = Driven::new();
    for id in 0..100 {
        leases.table.start(&key(id), seconds(10));
    }
    assert_eq!(leases.pass(seconds(8)), []);
    leases.now += seconds(3600);
    assert_eq!(leases.pass(LeaseTable::TICK), [], "an hour in which we heard nobody");
    assert_eq!(leases.pass(seconds(4)).len(), 100, "they had two seconds left and did not come");
}

#[test]
fn a_clock_that_goes_back_does_nothing() {
    let mut leases = Driven::new();
    let start = leases.now;
    leases.table.start(&key(1), seconds(2));
    leases.pass(seconds(1));
    leases.table.advance(start, 16);
    assert_eq!(leases.table.take_events(), []);
    assert_eq!(leases.pass(seconds(2)), [LeaseEvent::Lapsed(key(1))]);
}

/// Freezes of every length at every moment of a lease: the process runs for its whole TTL before it lapses.
#[test]
fn lease_lasts_its_ttl_of_running_time_whatever_freezes_the_process() {
    for freeze in [120, 201, 400, 870, 1_000, 3_000, 86_400_000] {
        for count in 1..4_u64 {
            let mut leases = Driven::new();
            leases.table.start(&key(1), seconds(2));
            let (mut ran, mut frozen) = (Duration::ZERO, 0);
            let events = loop {
                let events = leases.pass(RunningClock::CADENCE);
                ran += RunningClock::CADENCE;
                if !events.is_empty() {
                    break events;
                }
                if frozen < count && ran >= Duration::from_millis(400) * u32::try_from(frozen + 1).unwrap() {
                    leases.now += Duration::from_millis(freeze);
                    frozen += 1;
                }
            };
            assert_eq!(events, [LeaseEvent::Lapsed(key(1))]);
            assert!(ran >= seconds(2), "{count} freezes of {freeze} ms: lapsed after {ran:?} of running");
            assert!(ran <= Duration::from_millis(2_700), "{count} freezes of {freeze} ms: {ran:?}");
        }
    }
}

/// A container that is throttled to one wake-up in 100 ms, and a machine that wakes it later still.
#[test]
fn late_wakeups_neither_stop_nor_hurry_the_clock() {
    for late in [50, 100, 150, 200] {
        let mut leases = Driven::new();
        leases.table.start(&key(1), seconds(2));
        let begin = leases.now;
        while leases.table.take_events().is_empty() {
            leases.now += Duration::from_millis(late);
            leases.table.advance(leases.now, 16);
        }
        let took = leases.now - begin;
        assert!((seconds(2)..=seconds(5)).contains(&took), "woken every {late} ms: {took:?}");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Start(usize, u64),
    Renew(usize),
    End(usize),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..6usize, 1..20u64).prop_map(|(id, ttl)| Step::Start(id, ttl)),
        (0..6usize).prop_map(Step::Renew),
        (0..6usize).prop_map(Step::End),
        (1..80u64).prop_map(Step::Pass),
    ]
}

proptest! {
    /// A lease lapses not before its TTL and at most four ticks later, and what the table says is what a map
    /// of deadlines says.
    #[test]
    fn histories_are_those_of_a_map(steps in proptest::collection::vec(step(), 1..80)) {
        let mut leases = Driven::new();
        // Since when and for how long, by key; and which have lapsed.
        let mut model: BTreeMap<usize, (Instant, Duration, bool)> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Start(id, ttl) => {
                    let had_lapsed = leases.table.start(&key(id), seconds(ttl));
                    let before = model.insert(id, (leases.now, seconds(ttl), false));
                    prop_assert_eq!(had_lapsed, before.is_some_and(|(.., lapsed)| lapsed));
                }
                Step::Renew(id) => {
                    let now = leases.now;
                    prop_assert_eq!(leases.table.renew(&key(id)), model.contains_key(&id));
                    let had_lapsed = model.get_mut(&id).is_some_and(|lease| {
                        lease.0 = now;
                        std::mem::take(&mut lease.2)
                    });
                    let expected = if had_lapsed { vec![LeaseEvent::Renewed(key(id))] } else { vec![] };
                    prop_assert_eq!(leases.table.take_events(), expected);
                }
                Step::End(id) => {
                    leases.table.end(&key(id));
                    model.remove(&id);
                }
                Step::Pass(count) => for _ in 0..count {
                    let events = leases.pass(LeaseTable::TICK);
                    for (id, (since, ttl, lapsed)) in &mut model {
                        let age = leases.now - *since;
                        let lapses = events.contains(&LeaseEvent::Lapsed(key(*id)));
                        prop_assert!(!lapses || (age >= *ttl && !*lapsed), "early or twice: {id} at {age:?}");
                        *lapsed |= lapses;
                        prop_assert!(*lapsed || age < *ttl + LeaseTable::TICK * 4, "late: {id} at {age:?}");
                    }
                },
            }
            let lapsed = model.values().filter(|(.., lapsed)| *lapsed).count();
            prop_assert_eq!((leases.table.len(), leases.table.lapsed()), (model.len(), lapsed));
            prop_assert_eq!(leases.table.due.len(), model.len() - lapsed, "no leftovers");
        }
    }
}
