//! Election without IO: one candidate's knowledge of a Lease, and its next step.
//!
//! ```text
//!             read: free, or not renewed for its whole duration          written
//!   follows ────────────────────────────────────────────────▶ claims ──────────▶ leads
//!      ▲                                                         │                 │ renewed: leads on
//!      └──────────────────── refused, or no answer ◀─────────────┘                 │
//!      └──────────── not renewed until the deadline, or another replica holds it ◀───┘
//! ```
//!
//! Times in a Lease are from other machines' clocks and are never compared with ours: a Lease is stale if it
//! was watched for its whole duration without a change. A leader measures from the moment *before* its claim
//! was sent, all others from a moment after it was stored, and its deadline is shorter than the duration: it
//! stops before another one can become the leader. This holds as long as clocks run at about the same speed,
//! for any offset.

use super::record::Record;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Durations of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElectionTimes {
    /// Time that a Lease without renewal blocks other candidates. Written in whole seconds.
    pub duration: Duration,
    /// Time that a leader stays one without a renewal; shorter than `duration`, and the difference is the
    /// time for requests in flight.
    pub deadline: Duration,
    /// Interval at which a leader renews and a follower reads the Lease.
    pub retry: Duration,
}

impl Default for ElectionTimes {
    /// Defaults of Kubernetes controllers.
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(15),
            deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

impl ElectionTimes {
    /// Limits the durations: `duration` to one that can be written, and `deadline` to three quarters of it.
    pub(super) fn checked(self) -> Self {
        let duration = Duration::from_secs(self.duration.as_secs().max(1));
        Self { duration, deadline: self.deadline.min(duration * 3 / 4), retry: self.retry.min(duration / 4) }
    }
}

/// Maximum duration of another replica's Lease that is respected: a wrong one must not block the election for
/// ever.
const LONGEST: Duration = Duration::from_secs(600);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing until that time.
    Wait(Instant),
    Read,
    /// Write the Lease, if it is still the one that was read.
    Write(Claim),
}

/// Write of a Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    /// Required `resourceVersion`; `None` if the Lease must not exist.
    pub(super) over: Option<Arc<str>>,
    pub(super) before: Option<Record>,
}

/// The Lease as it was last read or written.
#[derive(Clone, Debug)]
struct Seen {
    /// `None` if it does not exist.
    lease: Option<(Record, Arc<str>)>,
    /// Time since which this record has been observed.
    since: Instant,
}

/// State of one candidate, as described in the module.
#[derive(Debug)]
pub(super) struct Election {
    identity: Arc<str>,
    times: ElectionTimes,
    seen: Option<Seen>,
    /// True if the known Lease may be outdated.
    must_read: bool,
    leads_until: Option<Instant>,
    next: Instant,
}

impl Election {
    pub(super) fn new(identity: Arc<str>, times: ElectionTimes, now: Instant) -> Self {
        Self { identity, times, seen: None, must_read: true, leads_until: None, next: now }
    }

    /// End of the leadership without a renewal; `None` for a follower.
    pub(super) fn leads_until(&self, now: Instant) -> Option<Instant> {
        self.leads_until.filter(|until| *until > now)
    }

    /// Returns the action that is due: wait, read or write the Lease.
    pub(super) fn step(&self, now: Instant) -> Step {
        if now < self.next {
            return Step::Wait(self.next);
        }
        let Some(seen) = self.seen.as_ref().filter(|_| !self.must_read) else { return Step::Read };
        let (before, over) = seen.lease.clone().unzip();
        Step::Write(Claim { over, before })
    }

    /// Handles a read Lease. `jitter` is from 0 to 1.
    pub(super) fn read(&mut self, lease: Option<(Record, Arc<str>)>, now: Instant, jitter: f64) {
        let new = lease.as_ref().map(|(record, _)| record);
        let same = |seen: &&Seen| seen.lease.as_ref().map(|(record, _)| record) == new;
        let since = self.seen.as_ref().filter(same).map_or(now, |seen| seen.since);
        let holder = lease.as_ref().map(|(record, _)| (record.holder.clone(), record.duration));
        self.seen = Some(Seen { lease, since });
        self.must_read = false;
        match holder {
            // A claim whose response was lost is no leadership until another write confirms it.
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

    /// Handles the successful write of the claim that was sent at `sent`.
    pub(super) fn wrote(&mut self, record: Record, version: Arc<str>, sent: Instant, now: Instant) {
        self.seen = Some(Seen { lease: Some((record, version)), since: now });
        self.must_read = false;
        self.leads_until = Some(sent + self.times.deadline);
        self.next = now.max(sent + self.times.retry);
    }

    /// Handles a refused claim: the Lease has changed. A leader may still be one (if a label was set), which
    /// the next read shows.
    pub(super) fn refused(&mut self, now: Instant, jitter: f64) {
        self.must_read = true;
        self.next = now + self.times.retry.mul_f64(0.1 * jitter.clamp(0.0, 1.0));
    }

    /// Handles a request, sent at `sent`, without a response or without the Lease in it. A claim may have
    /// been stored.
    pub(super) fn failed(&mut self, sent: Instant, now: Instant, jitter: f64) {
        self.must_read = true;
        let pause = self.jittered(jitter);
        // The wait for the response counts as a pause, since a leader's deadline comes nearer.
        self.next = (sent + pause).max(now + pause / 10);
    }

    /// Ends the leadership voluntarily.
    pub(super) fn resign(&mut self) {
        self.leads_until = None;
    }

    /// Time to the next attempt: up to a fifth longer, so that candidates do not stay in step.
    fn jittered(&self, jitter: f64) -> Duration {
        self.times.retry.mul_f64(1.0 + 0.2 * jitter.clamp(0.0, 1.0))
    }
}
