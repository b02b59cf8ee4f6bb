//! Liveness of threads and tasks: they send heartbeats, and those without one for too long are reported.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::time::{MissedTickBehavior, interval};

/// Silence after which a source, or the control loop, counts as hung.
pub const SILENT_AFTER: Duration = Duration::from_secs(30);
/// Interval of the heartbeats of a task.
const INTERVAL: Duration = Duration::from_secs(5);
/// The value of `seen` while no heartbeat is expected.
const PAUSED: u64 = u64::MAX;

/// Time of the last heartbeat of a thread or task. Clones share it.
#[derive(Clone, Debug)]
pub struct Heartbeat(Arc<Beats>);

#[derive(Debug)]
struct Beats {
    began: Instant,
    /// Milliseconds since `began`, or [`PAUSED`].
    seen: AtomicU64,
}

impl Default for Heartbeat {
    fn default() -> Self {
        Self(Arc::new(Beats { began: Instant::now(), seen: AtomicU64::new(0) }))
    }
}

impl Heartbeat {
    /// A paused heartbeat, for a task that has not started.
    #[must_use]
    pub fn paused() -> Self {
        let heartbeat = Self::default();
        heartbeat.pause();
        heartbeat
    }

    /// Records a heartbeat at `now`, with a resolution of 1 ms.
    pub fn beat(&self, now: Instant) {
        let after = now.saturating_duration_since(self.0.began).as_millis();
        let after = u64::try_from(after).unwrap_or(PAUSED).min(PAUSED - 1);
        self.0.seen.store(after, Ordering::Relaxed);
    }

    /// Expects no heartbeat until the next [`Self::beat`].
    pub fn pause(&self) {
        self.0.seen.store(PAUSED, Ordering::Relaxed);
    }

    /// Returns the time since the last heartbeat; zero while paused.
    #[must_use]
    pub fn silent_for(&self, now: Instant) -> Duration {
        let seen = self.0.seen.load(Ordering::Relaxed);
        if seen == PAUSED {
            return Duration::ZERO;
        }
        now.saturating_duration_since(self.0.began).saturating_sub(Duration::from_millis(seen))
    }

    /// Runs a task with heartbeats as long as the runtime polls it: they stop if the task blocks its thread.
    pub async fn accompany<F: Future>(&self, task: F) -> F::Output {
        tokio::pin!(task);
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                output = &mut task => return output,
                _ = ticks.tick() => self.beat(Instant::now()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_counted_from_the_last_beat_and_not_while_none_is_expected() {
        let heartbeat = Heartbeat::default();
        let at = |seconds| heartbeat.0.began + Duration::from_secs(seconds);
        assert_eq!(heartbeat.silent_for(at(5)), Duration::from_secs(5), "it has not begun yet");
        heartbeat.beat(at(7));
        assert_eq!(heartbeat.silent_for(at(7)), Duration::ZERO);
        assert_eq!(heartbeat.clone().silent_for(at(40)), Duration::from_secs(33));
        heartbeat.pause();
        assert_eq!(heartbeat.silent_for(at(99)), Duration::ZERO);
        heartbeat.beat(at(100));
        assert_eq!(heartbeat.silent_for(at(101)), Duration::from_secs(1));
        assert_eq!(Heartbeat::paused().silent_for(at(1_000)), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_beats_while_it_waits_and_no_longer_when_it_has_ended() {
        let heartbeat = Heartbeat::paused();
        let output = heartbeat.accompany(async {
            tokio::time::sleep(INTERVAL * 3).await;
            assert!(heartbeat.0.seen.load(Ordering::Relaxed) < PAUSED);
            heartbeat.pause();
            tokio::time::sleep(INTERVAL * 2).await;
            assert!(heartbeat.0.seen.load(Ordering::Relaxed) < PAUSED, "it beats again");
            heartbeat.pause();
            7
        });
        assert_eq!(output.await, 7);
        assert_eq!(heartbeat.0.seen.load(Ordering::Relaxed), PAUSED);
    }
}
