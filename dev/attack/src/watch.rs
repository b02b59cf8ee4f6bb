//! Measurements of honest clients during an attack.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::bounds::Bounds;
use crate::honest::Fleet;
use crate::mesh::Mesh;
use crate::operator::Operator;

/// Interval of checks of health, a change, and memory.
const EVERY: Duration = Duration::from_millis(250);
/// Interval of new proxies.
const FRESH_EVERY: Duration = Duration::from_secs(1);
/// Maximum number of failures in a message.
const MOST_TOLD: usize = 3;

/// Times of a repeated operation, and its failures.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    pub(crate) times: Vec<Duration>,
    pub(crate) failures: Vec<String>,
}

impl Series {
    fn note(&mut self, time: Result<Duration>) {
        match time {
            Ok(time) => self.times.push(time),
            Err(error) => self.failures.push(format!("{error:#}")),
        }
    }

    pub(crate) fn worst(&self) -> Duration {
        self.times.iter().max().copied().unwrap_or_default()
    }

    /// Quantile of the times, for a share from 0 to 1.
    pub(crate) fn quantile(&self, share: f64) -> Duration {
        let mut sorted = self.times.clone();
        sorted.sort();
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            clippy::cast_sign_loss,
            reason = "an index"
        )]
        let at = (sorted.len() as f64 * share) as usize;
        sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
    }

    /// Number of times above a limit.
    pub(crate) fn beyond(&self, limit: Duration) -> usize {
        self.times.iter().filter(|time| **time > limit).count()
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) ready: Series,
    /// Endpoint changes at each proxy.
    pub(crate) pushes: Series,
    /// Number of changes, and of proxies that did not receive them in time.
    pub(crate) changes: usize,
    pub(crate) missing: usize,
    /// Connections of new proxies.
    pub(crate) fresh: Series,
    /// Certificates of an honest workload.
    pub(crate) certificates: Series,
    /// Dashboard pages of the simulated operator.
    pub(crate) pages: Series,
    /// Edits of the simulated operator, until the list of problems reflects them.
    pub(crate) edits: Series,
    pub(crate) memory: u64,
}

/// Measures until it is stopped. Operations in progress are completed, and each runs at least once.
pub(crate) async fn watch(
    mesh: &Mesh,
    fleet: &Fleet,
    operator: &Operator,
    bounds: &Bounds,
    numbers: &AtomicUsize,
    seen: &Mutex<Seen>,
    stop: &Stop,
) {
    let ready = every(EVERY, stop, async || {
        let began = Instant::now();
        let answer = tokio::time::timeout(bounds.ready, mesh.ready()).await;
        let mut seen = seen.lock();
        match answer {
            Ok(Ok(())) => seen.ready.times.push(began.elapsed()),
            Ok(Err(error)) => seen.ready.failures.push(format!("{error:#}")),
            Err(_) => seen.ready.failures.push(format!("/ready: no answer in {:?}", bounds.ready)),
        }
    });
    let pushes = every(EVERY, stop, async || push(mesh, fleet, bounds, numbers, seen).await);
    let fresh = every(FRESH_EVERY, stop, async || {
        let number = numbers.fetch_add(1, Ordering::Relaxed);
        let fresh = mesh.ways.fresh(fleet.size() + number, mesh.namespace(), bounds.fresh).await;
        seen.lock().fresh.note(fresh.context("a new proxy"));
    });
    let certificates = every(FRESH_EVERY, stop, async || {
        let certificate = mesh.agent.renew(bounds.fresh).await;
        seen.lock().certificates.note(certificate);
    });
    let memory = every(EVERY / 5, stop, async || {
        if let Ok(usage) = mesh.usage() {
            let mut seen = seen.lock();
            seen.memory = seen.memory.max(usage.memory);
        }
    });
    let pages = every(EVERY, stop, async || {
        let page = operator.read(mesh, bounds.operator).await;
        seen.lock().pages.note(page);
    });
    let edits = every(FRESH_EVERY, stop, async || {
        let edit = operator.edit(mesh, bounds.operator).await;
        seen.lock().edits.note(edit);
    });
    tokio::join!(ready, pushes, fresh, certificates, memory, pages, edits);
}

/// Signal to stop measuring.
#[derive(Default)]
pub(crate) struct Stop(tokio::sync::watch::Sender<bool>);

impl Stop {
    pub(crate) fn now(&self) {
        self.0.send_replace(true);
    }

    async fn requested(&self) {
        // The sender is part of `self`, so it is not dropped while this waits.
        let _ = self.0.subscribe().wait_for(|stopped| *stopped).await;
    }
}

/// Runs an operation once, and then periodically until it is stopped.
async fn every(period: Duration, stop: &Stop, mut work: impl AsyncFnMut()) {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            _ = ticks.tick() => work().await,
            () = stop.requested() => return,
        }
    }
}

/// Makes one change, and records the time of its arrival at each proxy.
pub(crate) async fn push(
    mesh: &Mesh,
    fleet: &Fleet,
    bounds: &Bounds,
    numbers: &AtomicUsize,
    seen: &Mutex<Seen>,
) {
    let (address, change) = mesh.change(numbers.fetch_add(1, Ordering::Relaxed));
    // Waits for late proxies, so that the table has their delay.
    let told = fleet.round(&address, change, bounds.fresh.max(bounds.push)).await;
    let mut seen = seen.lock();
    seen.changes += 1;
    match told {
        Ok(told) => {
            seen.missing += fleet.size().saturating_sub(told.len());
            seen.pushes.times.extend(told);
        }
        Err(error) => seen.pushes.failures.push(format!("{error:#}")),
    }
}

impl Seen {
    /// Descriptions of exceeded bounds.
    pub(crate) fn misses(&self, bounds: &Bounds, proxies: usize, memory_before: u64) -> Vec<String> {
        let mut misses = Vec::new();
        let told =
            |failures: &[String]| failures.iter().take(MOST_TOLD).cloned().collect::<Vec<_>>().join("; ");
        let all = [
            ("ready", &self.ready),
            ("push", &self.pushes),
            ("fresh", &self.fresh),
            ("certificate", &self.certificates),
            ("dashboard", &self.pages),
            ("edit", &self.edits),
        ];
        for (what, series) in all {
            if !series.failures.is_empty() {
                misses.push(format!("{what}: {} failed: {}", series.failures.len(), told(&series.failures)));
            }
        }
        let each = [&self.ready, &self.fresh, &self.certificates, &self.pages, &self.edits];
        if self.changes == 0 || each.iter().any(|series| series.times.is_empty()) {
            misses.push("nothing was seen: too short, or stuck".to_owned());
        }
        if self.missing > 0 {
            let all = self.changes * proxies;
            misses.push(format!("push: {} of {all} did not come within {:?}", self.missing, bounds.fresh));
        }
        let late = self.pushes.beyond(bounds.push);
        #[allow(clippy::cast_precision_loss, reason = "counts are small")]
        let share = late as f64 / self.pushes.times.len().max(1) as f64;
        if share > bounds.late {
            let all = self.pushes.times.len();
            misses.push(format!(
                "push: {late} of {all} took more than {:?}, p99 {:?}",
                bounds.push,
                self.pushes.quantile(0.99)
            ));
        }
        let grown = self.memory.saturating_sub(memory_before);
        if grown > bounds.memory {
            misses.push(format!("memory: {} MiB more than before", grown >> 20));
        }
        misses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(times: &[u64]) -> Series {
        let times = times.iter().map(|time| Duration::from_millis(*time)).collect();
        Series { times, failures: Vec::new() }
    }

    fn good() -> Seen {
        Seen {
            ready: series(&[1]),
            pushes: series(&[5; 200]),
            changes: 10,
            fresh: series(&[9]),
            certificates: series(&[7]),
            pages: series(&[20]),
            edits: series(&[30]),
            memory: 1 << 20,
            missing: 0,
        }
    }

    #[test]
    fn each_bound_that_is_missed_is_told() {
        let bounds = Bounds::FULL;
        let misses = |seen: Seen| seen.misses(&bounds, 20, 1 << 20);
        assert!(misses(good()).is_empty());
        let late = |count: usize| series(&[&vec![5; 200 - count][..], &vec![400; count]].concat());
        assert!(misses(Seen { pushes: late(2), ..good() }).is_empty());
        let failed = Series { failures: vec!["refused".to_owned()], ..series(&[1]) };
        for (seen, expected) in [
            (Seen { pushes: late(3), ..good() }, "took more than 250ms"),
            (Seen { missing: 1, ..good() }, "1 of 200 did not come"),
            (Seen { memory: 258 << 20, ..good() }, "257 MiB more"),
            (Seen { ready: failed.clone(), ..good() }, "ready: 1 failed: refused"),
            (Seen { fresh: failed.clone(), ..good() }, "fresh: 1 failed"),
            (Seen { certificates: failed.clone(), ..good() }, "certificate: 1 failed"),
            (Seen { pages: failed.clone(), ..good() }, "dashboard: 1 failed"),
            (Seen { edits: failed, ..good() }, "edit: 1 failed"),
            (Seen { changes: 0, ..good() }, "nothing was seen"),
        ] {
            let found = misses(seen);
            assert!(found.len() == 1 && found[0].contains(expected), "{expected}: {found:?}");
        }
    }

    #[test]
    fn quantiles_are_of_the_sorted_times() {
        let series = series(&[30, 10, 20]);
        assert_eq!((series.quantile(0.5), series.quantile(0.99), series.worst()), {
            let time = Duration::from_millis;
            (time(20), time(30), time(30))
        });
        assert_eq!(Series::default().quantile(0.5), Duration::ZERO);
    }
}
