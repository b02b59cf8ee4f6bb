//! A waker that records wake-ups of a running task instead of passing them on.
//!
//! h2 wakes the connection for every chunk that is sent. The sending task is the one that drives the
//! connection, so such a wake-up would only schedule it twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Wake, Waker};

/// The task sleeps: a wake-up is passed to the runtime.
const IDLE: u8 = 0;
/// The task runs: a wake-up is recorded as [`WOKEN`].
const RUNNING: u8 = 1;
/// The task runs and was woken in the meantime.
const WOKEN: u8 = 2;

/// The waker of a connection's task, in one of three states.
#[derive(Debug)]
pub(super) struct ConnectionWaker {
    task: Waker,
    state: AtomicU8,
}

impl ConnectionWaker {
    pub(super) fn new(task: Waker) -> Arc<Self> {
        Arc::new(Self { task, state: AtomicU8::new(IDLE) })
    }

    /// Starts a run or another round of the task, which handles all wake-ups so far.
    pub(super) fn begin(&self) {
        self.state.swap(RUNNING, Ordering::AcqRel);
    }

    /// Ends a run before the task sleeps. Returns false if it was woken in the meantime and has to run
    /// another round.
    pub(super) fn end(&self) -> bool {
        self.state.compare_exchange(RUNNING, IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Ends a run of a task that yields to others and is woken at once.
    pub(super) fn pause(&self) {
        self.state.swap(IDLE, Ordering::AcqRel);
        self.task.wake_by_ref();
    }
}

impl Wake for ConnectionWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let seen = self.state.compare_exchange(RUNNING, WOKEN, Ordering::AcqRel, Ordering::Acquire);
        if seen == Err(IDLE) {
            self.task.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_running_task_is_not_woken_but_runs_another_round() {
        let count = Arc::new(Count::default());
        let connection = ConnectionWaker::new(Waker::from(Arc::clone(&count)));
        let waker = Waker::from(Arc::clone(&connection));
        connection.begin();
        waker.wake_by_ref();
        assert!(!connection.end());
        connection.begin();
        assert!(connection.end());
        assert_eq!(count.0.load(Ordering::SeqCst), 0);
        waker.wake_by_ref();
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
    }
}
