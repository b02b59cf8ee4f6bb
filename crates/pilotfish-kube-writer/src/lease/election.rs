//! The election without IO: what one candidate knows of a Lease, and what it does next.
//!
//! ```text
//!             read: free, or not renewed for its whole duration          written
//!   follows ────────────────────────────────────────────────▶ claims ──────────▶ leads
//!      ▲                                                         │                 │ renewed: leads on
//!      └──────────────────── refused, or no answer ◀─────────────┘                 │
//!      └──────────── not renewed until the deadline, or another replica holds it ◀───┘
//! ```
//!
//! Times in a Lease are other machines' clocks and are never compared with ours: a Lease is stale when we have watched it stay the
//! same for its whole duration. A leader counts its own time from the moment *before* its claim was sent, everybody else from
//! a moment after it was stored, and its deadline is shorter than the duration: it has stopped before another may follow. This
//! holds as long as clocks run at about the same speed, however wrong they are.

use super::record::Record;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The durations of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElectionTimes {
    /// How long a Lease that is not renewed keeps others away. Whole seconds are written.
    pub duration: Duration,
    /// How long a leader leads without having renewed; shorter than `duration`, and the difference is what a request that is
    /// under way has for landing.
    pub deadline: Duration,
    /// How often a leader renews and a follower reads the Lease.
    pub retry: Duration,
}

impl Default for ElectionTimes {
    /// As other controllers of Kubernetes have it.
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(15),
            deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

impl ElectionTimes {
    /// The same, with a duration that can be written and a deadline that leaves a quarter of it.
    pub(super) fn checked(self) -> Self {
        let duration = Duration::from_secs(self.duration.as_secs().max(1));
        Self { duration, deadline: self.deadline.min(duration * 3 / 4), retry: self.retry.min(duration / 4) }
    }
}

/// The longest duration of another replica's Lease that counts: a wrong one must not block the election for ever.
const LONGEST: Duration = Duration::from_secs(600);

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing until then.
    Wait(Instant),
    /// Read the Lease.
    Read,
    /// Write the Lease, on condition that it is still what was read.
    Write(Claim),
}

/// What is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    /// The `resourceVersion` that must still hold; `None` when the Lease must not exist.
    pub(super) over: Option<Arc<str>>,
    /// The record before.
    pub(super) before: Option<Record>,
}

/// The Lease as it was read or written last.
#[derive(Clone, Debug)]
struct Seen {
    /// `None` when there is none.
    lease: Option<(Record, Arc<str>)>,
    /// Since when we have seen this very record.
    since: Instant,
}

/// See the module's description.
#[derive(Debug)]
pub(super) struct Election {
    identity: Arc<str>,
    times: ElectionTimes,
    seen: Option<Seen>,
    /// Whether what was seen may be out of date.
    must_read: bool,
    leads_until: Option<Instant>,
    next: Instant,
}

impl Election {
    pub(super) fn new(identity: Arc<str>, times: ElectionTimes, now: Instant) -> Self {
        Self { identity, times, seen: None, must_read: true, leads_until: None, next: now }
    }

    /// Until when we lead, unless it is renewed; `None` when we do not.
    pub(super) fn leads_until(&self, now: Instant) -> Option<Instant> {
        self.leads_until.filter(|until| *until > now)
    }

    /// What to do now.
    pub(super) fn step(&self, now: Instant) -> Step {
        if now < self.next {
            return Step::Wait(self.next);
        }
        let Some(seen) = self.seen.as_ref().filter(|_| !self.must_read) else { return Step::Read };
        let (before, over) = seen.lease.clone().unzip();
        Step::Write(Claim { over, before })
    }

    /// The Lease was read. `jitter` is from 0 to 1.
    pub(super) fn read(&mut self, lease: Option<(Record, Arc<str>)>, now: Instant, jitter: f64) {
        let new = lease.as_ref().map(|(record, _)| record);
        let same = |seen: &&Seen| seen.lease.as_ref().map(|(record, _)| record) == new;
        let since = self.seen.as_ref().filter(same).map_or(now, |seen| seen.since);
        let holder = lease.as_ref().map(|(record, _)| (record.holder.clone(), record.duration));
        self.seen = Some(Seen { lease, since });
        self.must_read = false;
        match holder {
            // Ours: a claim whose answer was lost is no leadership until it is confirmed by writing again.
            Some((holder, _)) if holder == self.identity => self.next = now,
            Some((holder, duration)) if !holder.is_empty() => {
                self.leads_until = None;
                let duration = duration.unwrap_or(self.times.duration).min(LONGEST);
                let stale = since + duration;
                if now < stale {
                    self.must_read = true;
                    self.next = (now + self.jittered(jitter)).min(stale);
                } else {
                    self.next = now;
                }
            }
            _ => {
                self.leads_until = None;
                self.next = now;
            }
        }
    }

    /// The claim that was sent at `sent` was stored.
    pub(super) fn wrote(&mut self, record: Record, version: Arc<str>, sent: Instant, now: Instant) {
        self.seen = Some(Seen { lease: Some((record, version)), since: now });
        self.must_read = false;
        self.leads_until = Some(sent + self.times.deadline);
        self.next = now.max(sent + self.times.retry);
    }

    /// The claim was refused: the Lease is not what it was. A leader may still be one (a label was set), which reading
    /// it shows.
    pub(super) fn refused(&mut self, now: Instant, jitter: f64) {
        self.must_read = true;
        self.next = now + self.times.retry.mul_f64(0.1 * jitter.clamp(0.0, 1.0));
    }

    /// There was no answer to what was sent at `sent`, or one without the Lease. Whether a claim was stored is
    /// not known.
    pub(super) fn failed(&mut self, sent: Instant, now: Instant, jitter: f64) {
        self.must_read = true;
        let pause = self.jittered(jitter);
        // To wait in vain for an answer was pause enough: a leader's deadline comes nearer.
        self.next = (sent + pause).max(now + pause / 10);
    }

    /// We lead no longer, of our own will.
    pub(super) fn resign(&mut self) {
        self.leads_until = None;
    }

    /// The time to the next try: up to a fifth longer, so that candidates that began together do not stay together.
    fn jittered(&self, jitter: f64) -> Duration {
        self.times.retry.mul_f64(1.0 + 0.2 * jitter.clamp(0.0, 1.0))
    }
}
