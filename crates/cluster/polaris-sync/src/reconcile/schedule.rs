//! Schedule of comparisons: a state machine without IO and clocks.
//!
//! A single change is synced after a short quiet time, a burst of changes when it pauses or reaches the
//! maximum delay. Everything is compared at the start, at every resync and after a failure of unknown extent.
//! Failures are retried for ever, with backoff.

use crate::reconcile::ServiceKey;
use pilotfish_runtime::{Backoff, BackoffPolicy, Jitter};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Delays and intervals of comparisons.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScheduleSettings {
    /// Quiet time: a change waits until there was no other change for this time.
    pub quiet: Duration,
    /// Maximum delay of a change.
    pub longest: Duration,
    /// Interval of full comparisons; up to a tenth is added, so that replicas and clusters do not
    /// synchronize.
    pub resync: Duration,
    /// Delay before a failed pass is repeated.
    pub backoff: BackoffPolicy,
}

impl Default for ScheduleSettings {
    /// 10 ms quiet time, 200 ms maximum delay, full comparison each minute, retries after 0.5 s up to 30 s.
    fn default() -> Self {
        Self {
            quiet: Duration::from_millis(10),
            longest: Duration::from_millis(200),
            resync: Duration::from_secs(60),
            backoff: BackoffPolicy::new(Duration::from_millis(500), Duration::from_secs(30)),
        }
    }
}

/// Extent of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Everything, after the registry was read.
    All,
    /// These services, compared with the registry's last known state.
    Services(BTreeSet<ServiceKey>),
}

/// Action that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Wait until this time, unless something changes.
    Wait(Instant),
    /// Run this pass; its result must be reported to the schedule.
    Pass(Pass),
}

/// Due passes and pending services.
#[derive(Clone, Debug)]
pub struct Schedule {
    settings: ScheduleSettings,
    dirty: BTreeSet<ServiceKey>,
    /// Times of the first and the last pending change.
    changed: Option<(Instant, Instant)>,
    full_at: Instant,
    backoff: Backoff,
    /// Earliest time of the next pass.
    not_before: Instant,
    jitter: Jitter,
}

impl Schedule {
    /// A schedule with an immediate full comparison.
    #[must_use]
    pub fn new(settings: ScheduleSettings, jitter: Jitter, now: Instant) -> Self {
        let backoff = Backoff::new(settings.backoff, jitter.fork("backoff"));
        Self {
            settings,
            dirty: BTreeSet::new(),
            changed: None,
            full_at: now,
            backoff,
            not_before: now,
            jitter,
        }
    }

    /// Records changes of these services.
    pub fn changed(&mut self, services: impl IntoIterator<Item = ServiceKey>, now: Instant) {
        let before = self.dirty.len();
        let mut any = false;
        for service in services {
            any = true;
            self.dirty.insert(service);
        }
        if any {
            let first = self.changed.filter(|_| before > 0).map_or(now, |(first, _)| first);
            self.changed = Some((first, now));
        }
    }

    /// Records a change without a service: a new namespace.
    pub fn nudge(&mut self, now: Instant) {
        let first = self.changed.map_or(now, |(first, _)| first);
        self.changed = Some((first, now));
    }

    /// Requests a full comparison, at this time at the latest.
    pub fn compare_all_by(&mut self, at: Instant) {
        self.full_at = self.full_at.min(at);
    }

    /// Number of services that wait for a pass.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.dirty.len()
    }

    /// Returns the next action. A returned pass is removed from the schedule.
    pub fn next(&mut self, now: Instant) -> Next {
        let partial = self.changed.map(|(first, last)| {
            (last + self.settings.quiet).min(first + self.settings.longest).max(self.not_before)
        });
        let full = self.full_at.max(self.not_before);
        if full <= now {
            self.dirty.clear();
            self.changed = None;
            return Next::Pass(Pass::All);
        }
        match partial {
            Some(at) if at <= now => {
                self.changed = None;
                Next::Pass(Pass::Services(std::mem::take(&mut self.dirty)))
            }
            Some(at) => Next::Wait(at.min(full)),
            None => Next::Wait(full),
        }
    }

    /// Records the end of a pass; the services in `left` are retried.
    pub fn passed(&mut self, pass: &Pass, left: BTreeSet<ServiceKey>, now: Instant) {
        if *pass == Pass::All {
            let spread = 1.0 + 0.1 * self.jitter.fraction();
            self.full_at = now + self.settings.resync.mul_f64(spread);
        }
        if left.is_empty() {
            self.backoff.reset();
        } else {
            self.not_before = now + self.backoff.wait();
            self.changed(left, now);
        }
    }

    /// Records a pass that failed as a whole. After at least `floor`, everything is compared, because the
    /// progress of the pass is unknown. Returns the delay.
    pub fn failed(&mut self, floor: Duration, now: Instant) -> Duration {
        let wait = self.backoff.wait_at_least(floor);
        self.not_before = now + wait;
        self.full_at = now;
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn key(name: &str) -> ServiceKey {
        ServiceKey::new("shop", name)
    }

    /// A schedule after its first pass.
    fn schedule() -> (Schedule, Instant) {
        let now = Instant::now();
        let mut schedule = Schedule::new(ScheduleSettings::default(), Jitter::seeded(1), now);
        assert_eq!(schedule.next(now), Next::Pass(Pass::All));
        schedule.passed(&Pass::All, BTreeSet::new(), now);
        (schedule, now)
    }

    #[test]
    fn a_lone_change_goes_after_the_quiet_time() {
        let (mut schedule, now) = schedule();
        schedule.changed([key("web")], now);
        assert_eq!(schedule.next(now), Next::Wait(now + 10 * MS));
        assert_eq!(schedule.next(now + 10 * MS), Next::Pass(Pass::Services([key("web")].into())));
        assert!(matches!(schedule.next(now + 10 * MS), Next::Wait(at) if at > now + Duration::from_secs(59)));
    }

    #[test]
    fn a_burst_is_gathered_but_not_for_ever() {
        let (mut schedule, now) = schedule();
        for at in (0..40).map(|n| now + 5 * n * MS) {
            schedule.changed([key(&format!("{at:?}"))], at);
            assert!(matches!(schedule.next(at), Next::Wait(_)));
        }
        let Next::Pass(Pass::Services(gathered)) = schedule.next(now + 200 * MS) else {
            unreachable!("200 ms have passed")
        };
        assert_eq!(gathered.len(), 40);
    }

    #[test]
    fn everything_is_compared_each_period_and_a_bit() {
        let (mut schedule, now) = schedule();
        let Next::Wait(at) = schedule.next(now) else { unreachable!("nothing is to be done") };
        assert!(at >= now + Duration::from_secs(60) && at <= now + Duration::from_secs(66), "{:?}", at - now);
        schedule.changed([key("web")], at);
        assert_eq!(schedule.next(at), Next::Pass(Pass::All));
        schedule.passed(&Pass::All, BTreeSet::new(), at);
        assert!(matches!(schedule.next(at), Next::Wait(_)), "the change is part of everything");
    }

    #[test]
    fn what_is_left_is_tried_again_for_ever_with_growing_waits() {
        let (mut schedule, mut now) = schedule();
        let left: BTreeSet<_> = [key("web")].into();
        let mut waits = Vec::new();
        schedule.full_at = now + Duration::from_secs(1 << 20);
        for _ in 0..50 {
            schedule.passed(&Pass::Services(left.clone()), left.clone(), now);
            let Next::Wait(at) = schedule.next(now) else { unreachable!("it has to wait") };
            waits.push(at - now);
            now = at;
            assert_eq!(schedule.next(now), Next::Pass(Pass::Services(left.clone())));
        }
        assert!(waits[0] <= 500 * MS && waits[0] >= 250 * MS, "{waits:?}");
        assert!(waits[20..].iter().all(|wait| *wait >= 15_000 * MS && *wait <= 30_000 * MS), "{waits:?}");
        schedule.passed(&Pass::Services(left), BTreeSet::new(), now);
        schedule.changed([key("api")], now);
        assert_eq!(schedule.next(now), Next::Wait(now + 10 * MS), "the wait is over");
    }

    #[test]
    fn after_a_failure_everything_is_compared_and_nothing_before() {
        let (mut schedule, now) = schedule();
        schedule.changed([key("web")], now);
        let wait = schedule.failed(Duration::from_secs(7), now);
        assert_eq!(wait, Duration::from_secs(7));
        assert_eq!(schedule.next(now + 6_999 * MS), Next::Wait(now + wait));
        assert_eq!(schedule.next(now + wait), Next::Pass(Pass::All));
    }
}
