//! Limit on concurrent first pushes.
//!
//! A new client costs about a hundred times as much as a change for a connected one. When many connect at
//! once, they would fill the runtime's queue, and a change would wait at its end. So they wait here, and only
//! a few are in the runtime's queue, like `PILOT_PUSH_THROTTLE` of istiod.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::{AcquireError, Notify, OwnedSemaphorePermit, Semaphore};

/// Maximum time that a first push yields to changes.
const PATIENCE: Duration = Duration::from_millis(50);
/// Number of waits per connection that keep further connections from being accepted: enough for a client with
/// a few types. After that, the waits of a connection that keeps asking no longer count.
const HOLDING_BACK: u8 = 8;

type Waiting = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>;

/// Limit on the connections of a listener that handle first requests or make first pushes at the same time:
/// twice the number of processors, so that none of these is idle.
#[derive(Debug)]
pub(super) struct PushThrottle(Arc<Turns>);

#[derive(Debug)]
struct Turns {
    free: Arc<Semaphore>,
    waiting: AtomicUsize,
    /// Number of waiting connections at which no further one is accepted.
    most: usize,
    fewer: Notify,
}

impl PushThrottle {
    /// Stops accepting connections while `most` wait.
    pub(super) fn new(most: usize) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self::of(2 * processors, most)
    }

    fn of(turns: usize, most: usize) -> Self {
        let (free, waiting) = (Arc::new(Semaphore::new(turns)), AtomicUsize::new(0));
        Self(Arc::new(Turns { free, waiting, most, fewer: Notify::new() }))
    }

    /// Returns the permit of a connection, not yet taken.
    pub(super) fn enter(&self) -> Turn {
        Turn {
            all: Arc::clone(&self.0),
            waiting: None,
            taken: None,
            gives_way: None,
            holding_back: HOLDING_BACK,
        }
    }

    /// Completes when a further connection may be accepted: until then they wait in the kernel at no cost.
    /// For one caller at a time.
    pub(super) async fn room(&self) {
        while self.0.waiting.load(Ordering::Acquire) >= self.0.most {
            self.0.fewer.notified().await;
        }
    }
}

/// Counts a waiting connection.
struct Waits(Arc<Turns>);

impl Waits {
    fn in_line(turns: &Arc<Turns>) -> Self {
        turns.waiting.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(turns))
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        if self.0.waiting.fetch_sub(1, Ordering::AcqRel) == self.0.most {
            self.0.fewer.notify_one();
        }
    }
}

/// Permit of one connection. Waiting connections receive theirs in the order in which they asked.
pub(super) struct Turn {
    all: Arc<Turns>,
    waiting: Option<(Waiting, Option<Waits>)>,
    taken: Option<OwnedSemaphorePermit>,
    /// Time since which it has a permit and lets changes go first.
    gives_way: Option<Instant>,
    /// Remaining number of waits that keep further connections from being accepted.
    holding_back: u8,
}

impl Turn {
    pub(super) fn is_taken(&self) -> bool {
        self.taken.is_some()
    }

    /// Takes the permit, or wakes the task when it should try again.
    pub(super) fn poll_take(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_taken() {
            return Poll::Ready(());
        }
        if self.waiting.is_none()
            && let Ok(taken) = Arc::clone(&self.all.free).try_acquire_owned()
        {
            self.taken = Some(taken);
            return Poll::Ready(());
        }
        let (waiting, _) = self.waiting.get_or_insert_with(|| {
            let waiting: Waiting = Box::pin(Arc::clone(&self.all.free).acquire_owned());
            let left = self.holding_back.checked_sub(1);
            self.holding_back = left.unwrap_or_default();
            (waiting, left.map(|_| Waits::in_line(&self.all)))
        });
        let Poll::Ready(taken) = waiting.as_mut().poll(cx) else { return Poll::Pending };
        self.waiting = None;
        // The semaphore is never closed.
        self.taken = taken.ok();
        Poll::Ready(())
    }

    /// True if changes, which are `due`, go first: then the task has to be polled again after others, and
    /// keeps its permit.
    pub(super) fn gives_way(&mut self, due: bool, now: Instant) -> bool {
        let gives_way = due && now < *self.gives_way.get_or_insert(now) + PATIENCE;
        if !gives_way {
            self.gives_way = None;
        }
        gives_way
    }

    /// Returns the permit to the longest waiting connection; called after a poll that used it.
    pub(super) fn give(&mut self) {
        if self.gives_way.is_none() {
            self.taken = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    #[test]
    fn changes_go_first_for_a_while() {
        let throttle = PushThrottle::of(1, 2);
        let cx = &mut Context::from_waker(Waker::noop());
        let (mut one, mut two, now) = (throttle.enter(), throttle.enter(), Instant::now());
        assert_eq!(one.poll_take(cx), Poll::Ready(()));
        assert!(one.gives_way(true, now));
        one.give();
        assert!(one.is_taken() && two.poll_take(cx).is_pending(), "it has had nothing of its turn yet");
        assert!(one.gives_way(true, now + PATIENCE / 2) && !one.gives_way(false, now + PATIENCE / 2));
        assert!(one.gives_way(true, now + PATIENCE), "others have become due");
        assert!(!one.gives_way(true, now + 2 * PATIENCE), "they do not end");
        one.give();
        assert_eq!(two.poll_take(cx), Poll::Ready(()));
    }

    #[test]
    fn those_that_ask_on_and_on_keep_no_other_connection_out() {
        let throttle = PushThrottle::of(1, 2);
        let cx = &mut Context::from_waker(Waker::noop());
        let mut all = [throttle.enter(), throttle.enter(), throttle.enter()];
        let mut closed = 0;
        for _ in 0..10 * usize::from(HOLDING_BACK) {
            for turn in &mut all {
                let _ = turn.poll_take(cx);
            }
            closed += usize::from(std::pin::pin!(throttle.room()).poll(cx).is_pending());
            all.iter_mut().for_each(Turn::give);
        }
        assert!(0 < closed && closed <= 3 * usize::from(HOLDING_BACK), "{closed} times");
        let mut honest = throttle.enter();
        while honest.poll_take(cx).is_pending() {
            for turn in &mut all {
                let _ = turn.poll_take(cx);
                turn.give();
            }
        }
    }

    #[test]
    fn those_that_wait_have_their_turn_one_after_the_other() {
        let throttle = PushThrottle::of(1, 2);
        let cx = &mut Context::from_waker(Waker::noop());
        let [mut one, mut two, mut three] = [throttle.enter(), throttle.enter(), throttle.enter()];
        assert_eq!(one.poll_take(cx), Poll::Ready(()));
        assert_eq!(one.poll_take(cx), Poll::Ready(()), "it has it");
        assert_eq!((two.poll_take(cx), three.poll_take(cx)), (Poll::Pending, Poll::Pending));
        let mut room = std::pin::pin!(throttle.room());
        assert_eq!(room.as_mut().poll(cx), Poll::Pending, "two wait");
        one.give();
        assert_eq!(room.as_mut().poll(cx), Poll::Pending, "until it is polled, two still does");
        assert_eq!(one.poll_take(cx), Poll::Pending, "two has asked before");
        assert_eq!(three.poll_take(cx), Poll::Pending);
        assert_eq!(two.poll_take(cx), Poll::Ready(()));
        assert!(two.is_taken());
        // Who is gone leaves nothing to wait for.
        drop((two, three));
        assert_eq!(room.as_mut().poll(cx), Poll::Ready(()));
        assert_eq!(one.poll_take(cx), Poll::Ready(()));
        assert_eq!(throttle.0.waiting.load(Ordering::Relaxed), 0);
    }
}
