//! All attacks.

mod config;
mod xds;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::task::JoinSet;

use crate::{Attack, Counts, Deadline};

/// All attacks, in the order in which they run.
#[must_use]
pub fn all() -> Vec<Attack> {
    [xds::all(), config::ATTACKS.to_vec()].concat()
}

/// How long an attacker rests after an attempt: the point is what an attempt costs the server, not how many fit into a second of a machine
/// on which both run.
pub(crate) const REST: Duration = Duration::from_millis(10);

/// So many attackers at a time, until the deadline. Each attempts again when its attempt is over; one that failed was refused.
pub(crate) async fn crowd<W, F>(size: usize, deadline: Deadline, counts: &Arc<Counts>, attempt: W)
where
    W: Fn(usize) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<()>> + Send + 'static,
{
    let mut attackers = JoinSet::new();
    for index in 0..size {
        let (attempt, counts) = (attempt.clone(), counts.clone());
        let again = async move {
            loop {
                if let Err(error) = attempt(index).await {
                    counts.refused(format!("{error:#}"));
                }
                tokio::time::sleep(REST).await;
            }
        };
        attackers.spawn(async move { deadline.cut(again).await.unwrap_or(()) });
    }
    while attackers.join_next().await.is_some() {}
}
