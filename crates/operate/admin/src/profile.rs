//! `/api/v1/profile`: CPU time by thread.
//!
//! A profile mostly waits, so it does not use the permits of computed pages ([`crate::access`]): a few run at
//! a time, and more are refused at once.

use crate::process::Threads;
use crate::v1::answer;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use pilotfish_api::v1::{Failure, FailureKind, Profile};
use serde::Deserialize;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Duration of a profile in seconds: default and maximum.
const SECONDS: f64 = 5.0;
const LONGEST: f64 = 30.0;
const SHORTEST: f64 = 0.1;
/// Maximum number of concurrent profiles: each reads a file for each thread, twice.
const AT_A_TIME: usize = 4;

pub(crate) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let turns = Arc::new(Semaphore::new(AT_A_TIME));
    Router::new().route("/api/v1/profile", get(profile)).with_state(turns)
}

#[derive(Deserialize)]
struct ProfileQuery {
    seconds: Option<f64>,
}

async fn profile(State(turns): State<Arc<Semaphore>>, Query(query): Query<ProfileQuery>) -> Response {
    match taken(&turns, query.seconds.unwrap_or(SECONDS)).await {
        Ok(profile) => Json(profile).into_response(),
        Err(failure) => answer::<()>(Err(failure)),
    }
}

/// CPU time of threads during that many seconds; for 0, the CPU time since the process began, without
/// waiting.
async fn taken(turns: &Semaphore, seconds: f64) -> Result<Profile, Failure> {
    if seconds == 0.0 {
        return Ok(Threads::read().since_start());
    }
    if !(SHORTEST..=LONGEST).contains(&seconds) {
        let message = format!("seconds={seconds} is neither 0 nor between {SHORTEST} and {LONGEST}");
        return Err(Failure::new(FailureKind::Invalid, message));
    }
    let Ok(_turn) = turns.try_acquire() else {
        let message = format!("{AT_A_TIME} profiles are being taken (limit profiles)");
        return Err(Failure::new(FailureKind::Unavailable, message).hint("try again when they have ended"));
    };
    let (before, began) = (Threads::read(), Instant::now());
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    Ok(Threads::read().since(&before, began.elapsed()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn few_profiles_are_taken_at_a_time_and_one_more_is_refused_at_once() {
        let turns = Semaphore::new(AT_A_TIME);
        let others = async {
            tokio::task::yield_now().await;
            let refused = taken(&turns, LONGEST).await.unwrap_err();
            assert_eq!(refused.kind, FailureKind::Unavailable);
            assert!(taken(&turns, 0.0).await.is_ok(), "what takes no time takes no turn");
        };
        let one = || taken(&turns, LONGEST);
        let ((), a, b, c, d) = tokio::join!(others, one(), one(), one(), one());
        assert!([a, b, c, d].iter().all(Result::is_ok), "those that were first are answered");
        assert!(taken(&turns, LONGEST).await.is_ok(), "the turns are given back");
    }

    #[test]
    fn the_page_of_limits_names_them() {
        let page = include_str!("../../../../docs/limits.md");
        assert!(page.contains(&format!("| Profiles at a time | {AT_A_TIME} |")));
        assert!(page.contains(&format!("| A profile | {LONGEST} s |")));
    }
}
