//! First pushes, a few at a time.
//!
//! A client that connects costs a hundred times what a change costs that goes to a client that is there. When many connect at once, the
//! runtime would have a queue of them, and a change would wait at its end. So they wait here instead, and only a few are in the runtime's
//! queue, as `PILOT_PUSH_THROTTLE` does it for istiod.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::{AcquireError, Notify, OwnedSemaphorePermit, Semaphore};

/// How long a first push gives way to changes, if these do not end.
const PATIENCE: Duration = Duration::from_millis(50);
/// How many turns of a connection hold further connections back while it waits for them: as many as one with a few types needs. Those who ask on and on
/// wait in the same line and keep nobody out.
const HOLDING_BACK: u8 = 8;

type Waiting = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>;

/// How many connections of a listener handle first requests and make first pushes at a time: twice as many as there are processors, so
/// that none of these waits.
#[derive(Debug)]
pub(super) struct PushThrottle(Arc<Turns>);

#[derive(Debug)]
struct Turns {
    free: Arc<Semaphore>,
    waiting: AtomicUsize,
    /// When so many wait, no further connection is accepted.
    most: usize,
    fewer: Notify,
}

impl PushThrottle {
    /// Without further connections when `most` wait.
    pub(super) fn new(most: usize) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self::of(2 * processors, most)
    }

    fn of(turns: usize, most: usize) -> Self {
        let (free, waiting) = (Arc::new(Semaphore::new(turns)), AtomicUsize::new(0));
        Self(Arc::new(Turns { free, waiting, most, fewer: Notify::new() }))
    }

    /// For a connection, which has no turn yet.
    pub(super) fn enter(&self) -> Turn {
        Turn {
            all: Arc::clone(&self.0),
            waiting: None,
            taken: None,
            gives_way: None,
            holding_back: HOLDING_BACK,
        }
    }

    /// Completes when a further connection is to be accepted: others wait in the kernel, where they cost nothing. One caller at a time.
    pub(super) async fn room(&self) {
        while self.0.waiting.load(Ordering::Acquire) >= self.0.most {
            self.0.fewer.notified().await;
        }
    }
}

/// Counts one that waits.
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

/// One connection's turn. Those that wait have it in the order in which they asked.
pub(super) struct Turn {
    all: Arc<Turns>,
    waiting: Option<(Waiting, Option<Waits>)>,
    taken: Option<OwnedSemaphorePermit>,
    /// Since when it has a turn, and lets changes go first.
    gives_way: Option<Instant>,
    /// For so many more turns it holds others back while it waits.
    holding_back: u8,
}

impl Turn {
    /// Whether the connection has it.
    pub(super) fn is_taken(&self) -> bool {
        self.taken.is_some()
    }

    /// Takes it, or wakes the task when it may be asked again.
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

    /// Whether changes go first, which are `due`: then the task is to be polled again after others, and keeps its turn.
    pub(super) fn gives_way(&mut self, due: bool, now: Instant) -> bool {
        let gives_way = due && now < *self.gives_way.get_or_insert(now) + PATIENCE;
        if !gives_way {
            self.gives_way = None;
        }
        gives_way
    }

    /// Gives it back, to who waits longest; after a poll in which it was made use of.
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
