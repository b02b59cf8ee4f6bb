//! Large requests: their work must not block a worker of the runtime, on which other connections and pages
//! wait.

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

/// Minimum size in bytes of a large request: some thousand names, which take some milliseconds.
pub(super) const LARGE: usize = 128 << 10;

/// Runs `work`; if it is large, the runtime moves its other tasks to another worker thread, and the operating
/// system shares the processors among them.
pub(super) fn beside_workers<T>(is_large: bool, work: impl FnOnce() -> T) -> T {
    // A current-thread runtime has no other worker.
    let has_workers =
        || Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
    if is_large && has_workers() { block_in_place(work) } else { work() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn a_worker_goes_on_while_large_work_is_done() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let (sender, receiver) = mpsc::channel();
        // The only worker does large work that ends when something else has run.
        let large = runtime
            .spawn(async move { beside_workers(true, || receiver.recv_timeout(Duration::from_secs(60))) });
        let other = runtime.spawn(async move { sender.send(()) });
        runtime.block_on(async {
            assert!(other.await.unwrap().is_ok());
            assert!(large.await.unwrap().is_ok());
        });
    }

    #[tokio::test]
    async fn a_runtime_of_one_thread_does_it_itself() {
        assert_eq!(beside_workers(true, || 1), 1);
    }
}
