//! A waker that remembers instead of waking while its task is running.
//!
//! h2 wakes the connection for every chunk that is sent. As the task that sends is the one that drives the connection, such
//! a wake-up would only make the scheduler run it twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Wake, Waker};

const IDLE: u8 = 0;
const RUNNING: u8 = 1;
const AGAIN: u8 = 2;

/// See the module.
#[derive(Debug)]
pub(super) struct Gate {
    task: Waker,
    state: AtomicU8,
}

impl Gate {
    pub(super) fn new(task: Waker) -> Arc<Self> {
        Arc::new(Self { task, state: AtomicU8::new(IDLE) })
    }

    /// The task runs now, or goes round again: wake-ups so far are taken care of by what follows.
    pub(super) fn begin(&self) {
        self.state.swap(RUNNING, Ordering::AcqRel);
    }

    /// The task is about to sleep. Returns false if it was woken meanwhile and has to go round again.
    pub(super) fn end(&self) -> bool {
        self.state.compare_exchange(RUNNING, IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Leaves the rest to another turn, so that other tasks come in.
    pub(super) fn pause(&self) {
        self.state.swap(IDLE, Ordering::AcqRel);
        self.task.wake_by_ref();
    }
}

impl Wake for Gate {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let seen = self.state.compare_exchange(RUNNING, AGAIN, Ordering::AcqRel, Ordering::Acquire);
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
    fn a_running_task_is_not_woken_but_told_to_go_round() {
        let count = Arc::new(Count::default());
        let gate = Gate::new(Waker::from(Arc::clone(&count)));
        let waker = Waker::from(Arc::clone(&gate));
        gate.begin();
        waker.wake_by_ref();
        assert!(!gate.end());
        gate.begin();
        assert!(gate.end());
        assert_eq!(count.0.load(Ordering::SeqCst), 0);
        waker.wake_by_ref();
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
    }
}
