//! Logs when a source falls silent, and when it gives a sign of life again.

use super::{Shared, Silence};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Interval of the checks.
const CHECK: Duration = Duration::from_secs(5);

/// Logs when a source falls silent, and when it is active again. Does not return.
pub async fn watch_silences(shared: &Shared) {
    let mut known = BTreeSet::new();
    loop {
        tokio::time::sleep(CHECK).await;
        known = report(&known, &shared.silences(Instant::now()));
    }
}

/// Logs what differs from before. Returns the sources that are silent now.
fn report(before: &BTreeSet<String>, silences: &[Silence]) -> BTreeSet<String> {
    for Silence { source, silent_for } in silences.iter().filter(|silence| !before.contains(&silence.source))
    {
        let seconds = silent_for.as_secs();
        tracing::error!(
            source,
            seconds,
            "a source has been silent for too long; its last good state stays in force"
        );
    }
    let now: BTreeSet<_> = silences.iter().map(|silence| silence.source.clone()).collect();
    for source in before.difference(&now) {
        tracing::info!(source, "a source is active again");
    }
    now
}
