//! Waits for conditions with a timeout: the only kind of wait in these tests.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

/// Timeout of any operation on a loaded machine.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Polls until the result is `Ok`, and returns it.
///
/// # Panics
/// After [`LIMIT`], with the last result.
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
