//! Tells the dashboard what happens: samples each second, and, while somebody looks, the numbers and the way of the last changes.

use super::AdminState;
use super::changes;
use pilotfish_admin::{Feed, Metrics, Operations, Sampler};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval};

const SAMPLE: Duration = Duration::from_secs(1);
/// How often somebody who looks is told of changes on their way.
const LOOK: Duration = Duration::from_millis(100);

/// Runs until `stop` resolves.
pub(crate) async fn run(
    state: Arc<AdminState>,
    metrics: Arc<Metrics>,
    feed: Arc<Feed>,
    stop: impl Future<Output = ()>,
) {
    let mut stop = pin!(stop);
    let mut sampler = Sampler::new(&metrics);
    let mut told = Instant::now();
    let (mut samples, mut looks) = (interval(SAMPLE), interval(LOOK));
    samples.set_missed_tick_behavior(MissedTickBehavior::Delay);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = &mut stop => return,
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
            _ = looks.tick(), if feed.is_watched() => {
                feed.changes(&changes::newest(state.shared.history()));
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
