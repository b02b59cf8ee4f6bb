//! A waker that remembers instead of waking while its task is running.
//!
//! h2 wakes the connection for every chunk that is sent. As the task that sends is the one that drives the connection, such
//! a wake-up would only make the scheduler run it twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Wake, Waker};

/// The task sleeps: a wake-up goes to the runtime.
const IDLE: u8 = 0;
/// The task runs: a wake-up is noted as [`WOKEN`].
const RUNNING: u8 = 1;
/// The task runs and was woken meanwhile.
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

    /// The task runs, from now on or for another round: what follows handles all wake-ups so far.
    pub(super) fn begin(&self) {
        self.state.swap(RUNNING, Ordering::AcqRel);
    }

    /// The task is about to sleep. Returns false if it was woken meanwhile and has to run another round.
    pub(super) fn end(&self) -> bool {
        self.state.compare_exchange(RUNNING, IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The task yields to others and is woken at once.
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
