//! Waiting for something to become true, with a limit: the only way in which these tests wait.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

/// How long anything may take on a loaded machine.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Asks until the answer is `Ok`, and gives it.
///
/// # Panics
/// After [`LIMIT`], with the last answer.
pub async fn eventually<T, E: Debug, F: Future<Output = Result<T, E>>>(
    what: &str,
    mut ask: impl FnMut() -> F,
) -> T {
    let deadline = tokio::time::Instant::now() + LIMIT;
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(last) => {
                assert!(tokio::time::Instant::now() < deadline, "{what}: not after {LIMIT:?}: {last:?}")
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
