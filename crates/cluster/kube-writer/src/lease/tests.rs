//! The election by sequences, and many machines against each other in a world where everything may go wrong.

use super::election::{Claim, Election, ElectionTimes, Step};
use super::record::Record;
use k8s_openapi::jiff::Timestamp;
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// What a holder with that clock writes.
fn record(holder: &str, clock: i64) -> Record {
    let clock = Timestamp::from_second(clock).unwrap();
    Record::next(None, &holder.into(), seconds(15), clock)
}

fn version(version: u64) -> Arc<str> {
    version.to_string().into()
}

fn election(now: Instant) -> Election {
    Election::new("me".into(), ElectionTimes::default(), now)
}

#[test]
fn a_free_lease_is_taken_at_once() {
    let now = Instant::now();
    let free = |lease: Option<(Record, Arc<str>)>, over| {
        let mut election = election(now);
        assert_eq!(election.step(now), Step::Read);
        election.read(lease.clone(), now, 0.5);
        let Step::Write(claim) = election.step(now) else { panic!("no claim") };
        assert_eq!(claim, Claim { over, before: lease.map(|(record, _)| record) });
        assert_eq!(election.leads_until(now), None, "a claim is no leadership");
        election.wrote(record("me", 1), version(2), now, now + seconds(1));
        assert_eq!(
            election.leads_until(now),
            Some(now + seconds(10)),
            "counted from before the claim was sent"
        );
    };
    free(None, None);
    free(Some((record("other", 1).released(), version(1))), Some(version(1)));
}

#[test]
fn a_lease_is_stale_after_it_was_unchanged_for_its_duration_whatever_its_times() {
    for clock in [0, 1_700_000_000, 4_000_000_000] {
        let mut now = Instant::now();
        let began = now;
        let mut election = election(now);
        let lease = Some((record("other", clock), version(1)));
        loop {
            match election.step(now) {
                Step::Read => election.read(lease.clone(), now, 1.0),
                Step::Wait(until) => now = until,
                Step::Write(_) => break,
            }
        }
        assert_eq!(now - began, seconds(15));
    }
}

#[test]
fn a_lease_that_is_renewed_is_never_taken() {
    let mut now = Instant::now();
    let mut election = election(now);
    let mut lease = record("other", 100);
    for turn in 0..100 {
        // A clock that stands still, and one that runs backwards.
        lease = Record::next(
            Some(&lease),
            &"other".into(),
            seconds(15),
            Timestamp::from_second(90 - turn).unwrap(),
        );
        while let Step::Wait(until) = election.step(now) {
            now = until;
        }
        assert_eq!(election.step(now), Step::Read);
        election.read(Some((lease.clone(), version(1))), now, 0.3);
        now += seconds(14);
    }
}

#[test]
fn a_leader_that_cannot_renew_stops_before_the_deadline_and_at_once_when_another_leads() {
    let now = Instant::now();
    let mut election = election(now);
    election.read(None, now, 0.0);
    election.wrote(record("me", 1), version(1), now, now);
    let renewal = now + seconds(2);
    assert_eq!(election.step(now), Step::Wait(renewal));
    assert!(matches!(election.step(renewal), Step::Write(_)));
    election.failed(renewal, renewal, 0.0);
    assert_eq!(election.leads_until(renewal), Some(now + seconds(10)));
    assert_eq!(election.leads_until(now + seconds(10)), None);
    election.read(Some((record("other", 1), version(2))), renewal + seconds(1), 0.0);
    assert_eq!(election.leads_until(renewal + seconds(1)), None);
}

#[test]
fn a_claim_whose_answer_was_lost_must_be_confirmed() {
    let now = Instant::now();
    let mut election = election(now);
    election.read(None, now, 0.0);
    election.failed(now, now, 0.0);
    let later = now + seconds(2);
    assert_eq!(election.step(later), Step::Read);
    election.read(Some((record("me", 1), version(1))), later, 0.0);
    assert_eq!(election.leads_until(later), None);
    assert!(matches!(election.step(later), Step::Write(claim) if claim.over == Some(version(1))));
}

#[test]
fn a_leader_that_waited_for_an_answer_retries_at_once() {
    let now = Instant::now();
    let mut election = election(now);
    election.read(None, now, 0.0);
    election.wrote(record("me", 1), version(1), now, now);
    let renewal = now + seconds(2);
    // The renewal takes the 5 seconds that a request may take, and with the pause the deadline would be as
    // good as over.
    let late = renewal + seconds(5);
    election.failed(renewal, late, 1.0);
    let Step::Wait(next) = election.step(late) else { panic!("it does not hammer") };
    assert!(next < late + seconds(1) && next > late, "{:?}", next - late);
    // What is refused at once is retried after the pause.
    election.failed(late, late, 0.0);
    assert_eq!(election.step(late), Step::Wait(late + seconds(2)));
}

#[test]
fn a_leader_whose_lease_was_labelled_goes_on() {
    let now = Instant::now();
    let mut election = election(now);
    election.read(None, now, 0.0);
    election.wrote(record("me", 1), version(1), now, now);
    let renewal = now + seconds(2);
    election.refused(renewal, 0.0);
    assert_eq!(election.step(renewal), Step::Read);
    election.read(Some((record("me", 1), version(9))), renewal, 0.0);
    assert_eq!(election.leads_until(renewal), Some(now + seconds(10)));
    assert!(matches!(election.step(renewal), Step::Write(claim) if claim.over == Some(version(9))));
}

#[test]
fn times_are_made_sound() {
    let odd =
        ElectionTimes { duration: Duration::from_millis(2900), deadline: seconds(60), retry: seconds(60) };
    let checked = odd.checked();
    assert_eq!(checked.duration, seconds(2));
    assert!(checked.deadline < checked.duration && checked.retry < checked.deadline);
    assert_eq!(ElectionTimes::default().checked(), ElectionTimes::default());
}

/// What happens to one request: when it lands and when the answer comes, in ticks after it was sent.
#[derive(Clone, Copy, Debug)]
struct Fate {
    lands: Option<u32>,
    answered: u32,
    answer_is_lost: bool,
}

/// A candidate's election with its clock.
#[derive(Clone, Copy, Debug)]
struct Clock {
    /// Parts of a thousand by which it is too fast.
    rate: i32,
    /// The wall clock's error in seconds.
    wrong_by: i64,
}

/// The length of a tick.
const TICK: Duration = Duration::from_millis(200);
/// A request that is not answered by then has failed; it may still land a little later.
const LIMIT: u32 = 25;

fn fate() -> impl Strategy<Value = Fate> {
    let good = (0..3u32, 0..3u32).prop_map(|(lands, more)| Fate {
        lands: Some(lands),
        answered: lands + more,
        answer_is_lost: false,
    });
    let late =
        (0..LIMIT + 15).prop_map(|lands| Fate { lands: Some(lands), answered: LIMIT, answer_is_lost: true });
    let lost = (1..=LIMIT).prop_map(|answered| Fate { lands: None, answered, answer_is_lost: true });
    prop_oneof![6 => good, 2 => late, 2 => lost]
}

fn clock() -> impl Strategy<Value = Clock> {
    (-80..80i32, -100_000..100_000i64).prop_map(|(rate, wrong_by)| Clock { rate, wrong_by })
}

/// The API server's part: the one Lease.
#[derive(Default)]
struct Stored {
    lease: Option<(Record, u64)>,
}

impl Stored {
    fn get(&self) -> Option<(Record, Arc<str>)> {
        self.lease.clone().map(|(record, at)| (record, version(at)))
    }

    fn put(&mut self, over: Option<&str>, record: &Record) -> Option<Arc<str>> {
        let current = self.lease.as_ref().map(|(_, at)| version(*at));
        if current.as_deref() != over {
            return None;
        }
        let next = self.lease.as_ref().map_or(1, |(_, at)| at + 1);
        self.lease = Some((record.clone(), next));
        Some(version(next))
    }
}

enum PendingRequest {
    Read(Option<Option<(Record, Arc<str>)>>),
    Write { over: Option<Arc<str>>, record: Record, stored: Option<Option<Arc<str>>> },
}

struct Flight {
    request: PendingRequest,
    sent: u32,
    fate: Fate,
    answered: bool,
}

struct Candidate {
    identity: Arc<str>,
    election: Election,
    clock: Clock,
    base: Instant,
    flights: Vec<Flight>,
}

impl Candidate {
    fn now(&self, tick: u32) -> Instant {
        let rate = f64::from(1000 + self.clock.rate) / 1000.0;
        self.base + (TICK * tick).mul_f64(rate)
    }

    fn leads(&self, tick: u32) -> bool {
        self.election.leads_until(self.now(tick)).is_some()
    }

    /// One tick: what lands, what is answered, what is sent.
    fn tick(&mut self, tick: u32, stored: &mut Stored, fate: impl FnOnce() -> Fate) {
        let now = self.now(tick);
        let mut flights = std::mem::take(&mut self.flights);
        for flight in &mut flights {
            flight.land(tick, stored);
            if !flight.answered && tick >= flight.sent + flight.fate.answered {
                flight.answered = true;
                self.answer(flight, now);
            }
        }
        flights
            .retain(|flight| !flight.answered || flight.fate.lands.is_some_and(|at| tick < flight.sent + at));
        let waits = flights.iter().any(|flight| !flight.answered);
        self.flights = flights;
        if !waits {
            self.send(tick, now, fate);
        }
    }

    fn send(&mut self, tick: u32, now: Instant, fate: impl FnOnce() -> Fate) {
        let request = match self.election.step(now) {
            Step::Wait(_) => return,
            Step::Read => PendingRequest::Read(None),
            Step::Write(claim) => {
                let wall = 1_000_000 + self.clock.wrong_by + i64::from(tick / 5);
                let clock = Timestamp::from_second(wall).unwrap();
                let record = Record::next(claim.before.as_ref(), &self.identity, seconds(15), clock);
                PendingRequest::Write { over: claim.over, record, stored: None }
            }
        };
        self.flights.push(Flight { request, sent: tick, fate: fate(), answered: false });
    }

    fn answer(&mut self, flight: &Flight, now: Instant) {
        let sent = self.now(flight.sent);
        if flight.fate.answer_is_lost {
            return self.election.failed(sent, now, 0.5);
        }
        match &flight.request {
            PendingRequest::Read(Some(lease)) => self.election.read(lease.clone(), now, 0.5),
            PendingRequest::Write { record, stored: Some(Some(version)), .. } => {
                self.election.wrote(record.clone(), version.clone(), sent, now);
            }
            PendingRequest::Write { stored: Some(None), .. } => self.election.refused(now, 0.5),
            _ => panic!("answered before it landed"),
        }
    }
}

impl Flight {
    fn land(&mut self, tick: u32, server: &mut Stored) {
        if self.fate.lands.is_none_or(|at| tick < self.sent + at) {
            return;
        }
        match &mut self.request {
            PendingRequest::Read(found @ None) => *found = Some(server.get()),
            PendingRequest::Write { over, record, stored: stored @ None } => {
                *stored = Some(server.put(over.as_deref(), record));
            }
            // It landed before.
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Answers lost, requests that land late, wrong clocks and clocks of different speed: never two leaders;
    /// and when the failures end some replica leads.
    #[test]
    fn there_are_never_two_leaders(
        clocks in prop::collection::vec(clock(), 2..5),
        fates in prop::collection::vec(fate(), 400),
        trouble in 300..900u32,
    ) {
        let base = Instant::now();
        let mut stored = Stored::default();
        let mut candidates: Vec<Candidate> = clocks.iter().enumerate().map(|(index, clock)| Candidate {
            identity: format!("c{index}").into(),
            election: Election::new(format!("c{index}").into(), ElectionTimes::default(), base),
            clock: *clock,
            base,
            flights: Vec::new(),
        }).collect();
        let mut fates = fates.into_iter().cycle();
        let good = Fate { lands: Some(0), answered: 0, answer_is_lost: false };
        for tick in 0..trouble + 200 {
            for candidate in &mut candidates {
                let next = if tick < trouble { fates.next().unwrap() } else { good };
                candidate.tick(tick, &mut stored, || next);
            }
            let leaders = candidates.iter().filter(|candidate| candidate.leads(tick)).count();
            prop_assert!(leaders <= 1, "{leaders} leaders at tick {tick}");
        }
        let led = candidates.iter().filter(|candidate| candidate.leads(trouble + 199)).count();
        prop_assert_eq!(led, 1);
    }
}
