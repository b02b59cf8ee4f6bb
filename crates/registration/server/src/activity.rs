//! Activity of a connection, so that idle or stuck ones can be closed.

use crate::limits::ServerLimits;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Open requests and streams of one connection.
#[derive(Debug)]
pub(crate) struct Activity(Mutex<State>);

#[derive(Debug)]
struct State {
    next: u64,
    /// Deadlines of open requests.
    open: BTreeMap<u64, Instant>,
    streams: usize,
    is_used: bool,
    idle_since: Instant,
}

/// An open request; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Busy {
    activity: Arc<Activity>,
    number: u64,
}

/// An open stream of a connection; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct OpenStream(Arc<Activity>);

/// Reason for closing a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// No request arrived in time.
    NoRequest,
    /// Idle for too long.
    Idle,
    /// The certificate of the client has expired; it connects again, with a newer one if it has one.
    Expired,
    /// The client does not read a response.
    Stuck,
}

impl Activity {
    pub(crate) fn new(now: Instant) -> Arc<Self> {
        let open = BTreeMap::new();
        Arc::new(Self(Mutex::new(State { next: 0, open, streams: 0, is_used: false, idle_since: now })))
    }

    /// Records the start of a request with this maximum duration.
    pub(crate) fn begin(self: &Arc<Self>, now: Instant, most: Duration) -> Busy {
        let mut state = self.0.lock();
        state.is_used = true;
        state.next += 1;
        let number = state.next;
        state.open.insert(number, now + most);
        Busy { activity: Arc::clone(self), number }
    }

    /// True if a request was made.
    pub(crate) fn is_used(&self) -> bool {
        self.0.lock().is_used
    }

    /// Opens a stream; `None` above the limit.
    pub(crate) fn open_stream(self: &Arc<Self>, allowed: usize) -> Option<OpenStream> {
        let mut state = self.0.lock();
        if state.streams >= allowed {
            return None;
        }
        state.streams += 1;
        Some(OpenStream(Arc::clone(self)))
    }

    /// Returns the reason to close the connection, if there is one.
    pub(crate) fn end(&self, now: Instant, limits: &ServerLimits) -> Option<End> {
        let state = self.0.lock();
        let idle = now.saturating_duration_since(state.idle_since);
        match state.open.is_empty() {
            false => state.open.values().any(|until| *until < now).then_some(End::Stuck),
            true if !state.is_used => (idle >= limits.first_request_timeout).then_some(End::NoRequest),
            true => (idle >= limits.idle_timeout).then_some(End::Idle),
        }
    }
}

impl Busy {
    /// Sets a new maximum duration from now on.
    pub(crate) fn may_take(&self, now: Instant, most: Duration) {
        if let Some(until) = self.activity.0.lock().open.get_mut(&self.number) {
            *until = now + most;
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.activity.0.lock();
        state.open.remove(&self.number);
        state.idle_since = Instant::now();
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.0.lock().streams -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_when_it_is_unused_idle_or_stuck() {
        let limits = ServerLimits::default();
        let activity = Activity::new(Instant::now());
        let end = || activity.end(Instant::now(), &limits);
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(end(), None);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(end(), Some(End::NoRequest));
        let busy = activity.begin(Instant::now(), Duration::from_secs(60));
        tokio::time::advance(Duration::from_secs(59)).await;
        assert_eq!(end(), None);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(end(), Some(End::Stuck));
        busy.may_take(Instant::now(), Duration::from_secs(3_600));
        assert_eq!(end(), None);
        drop(busy);
        tokio::time::advance(Duration::from_secs(119)).await;
        assert_eq!(end(), None);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(end(), Some(End::Idle));
    }

    #[tokio::test]
    async fn streams_are_counted() {
        let activity = Activity::new(Instant::now());
        let (a, b) = (activity.open_stream(2), activity.open_stream(2));
        assert!(a.is_some() && b.is_some() && activity.open_stream(2).is_none());
        drop(a);
        assert!(activity.open_stream(2).is_some());
    }
}
