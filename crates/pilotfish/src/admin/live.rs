//! Tells the dashboard what happens: samples each second, and, while somebody looks, the numbers and the way of the last changes.

use super::AdminState;
use super::changes::ChangeLog;
use pilotfish_admin::{Feed, Metrics, Operations, Sampler};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::{Instant, MissedTickBehavior, interval};

const SAMPLE: Duration = Duration::from_secs(1);
/// How often proxies are asked about while a change is on its way and somebody looks.
const LOOK: Duration = Duration::from_millis(100);

/// Runs until `stop` resolves.
pub(crate) async fn run(
    state: Arc<AdminState>,
    metrics: Arc<Metrics>,
    feed: Arc<Feed>,
    stop: impl Future<Output = ()>,
) {
    let mut stop = pin!(stop);
    let mut worlds = state.shared.follow();
    let mut sampler = Sampler::new(&metrics);
    let (mut log, mut told) = (ChangeLog::default(), Instant::now());
    let (mut samples, mut looks) = (interval(SAMPLE), interval(LOOK));
    samples.set_missed_tick_behavior(MissedTickBehavior::Delay);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = &mut stop => return,
            (world, changes) = worlds.next() => {
                log.note(world.revision(), &changes, SystemTime::now());
                feed.changes(log.told());
            }
            _ = samples.tick() => {
                feed.sample(sampler.next(&metrics));
                if feed.is_watched() {
                    tell_overview(&state, &feed).await;
                }
            }
            // Who comes does not wait for the next second. Who comes again and again does.
            () = feed.arrival() => if told.elapsed() > SAMPLE / 2 {
                tell_overview(&state, &feed).await;
                told = Instant::now();
            },
            _ = looks.tick(), if log.is_open() && feed.is_watched() => {
                let state = Arc::clone(&state);
                let known = tokio::task::spawn_blocking(move || state.fanout.acknowledgements()).await;
                if let Ok((current, connections)) = known {
                    log.look(current, &connections);
                    feed.changes(log.told());
                }
            }
        }
    }
}

async fn tell_overview(state: &Arc<AdminState>, feed: &Feed) {
    let state = Arc::clone(state);
    if let Ok(overview) = tokio::task::spawn_blocking(move || state.overview()).await {
        feed.overview(&overview);
    }
}
