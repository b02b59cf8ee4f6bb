//! Events for the dashboard: samples each second, and, while a dashboard is open, the overview and the
//! progress of the last changes. Pages of answers that nobody requests any more are dropped.

use super::AdminState;
use super::changes;
use pilotfish_admin::{Feed, Metrics, Operations, Sampler};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval};

const SAMPLE: Duration = Duration::from_secs(1);
/// Interval at which open dashboards get the progress of changes.
const LOOK: Duration = Duration::from_millis(100);

/// Runs until `stop` resolves.
pub async fn send_events(
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
                state.last_node.drop_old(Instant::now());
                if feed.is_watched() {
                    tell_overview(&state, &feed).await;
                }
            }
            // A new dashboard gets the overview at once, but frequent arrivals share one.
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
