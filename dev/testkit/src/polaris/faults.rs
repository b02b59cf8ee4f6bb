//! Recorded requests, and injected faults.

use super::codes::info;
use super::http::Answer;
use parking_lot::Mutex;
use serde_json::json;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub method: String,
    /// Path without the query.
    pub path: String,
    pub query: String,
    /// Number of elements in the body: 1 for an object, 0 for none.
    pub elements: usize,
    /// Header `request-id`.
    pub id: String,
    /// Header `x-polaris-token`.
    pub token: String,
    /// Time of its arrival.
    pub at: Instant,
}

/// Fault of a request to the console API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolarisFault {
    /// Responds with this code, without executing the request.
    Code(u32),
    /// Responds with this status and a text that is not JSON, without executing the request.
    Status(u16),
    /// Closes the connection, without executing the request.
    Closed,
    /// Executes the request, and closes the connection without a response.
    ClosedAfter,
    /// Executes the request, and delays the response.
    Slow(Duration),
    /// Closes the connections of all requests until faults are cleared: the server is down.
    Down,
}

#[derive(Default)]
pub(super) struct Faults {
    /// Planned faults by method and path suffix; each applies once, except for `Down`.
    planned: Mutex<VecDeque<(&'static str, &'static str, PolarisFault)>>,
    seen: Mutex<Vec<Seen>>,
}

impl Faults {
    pub(super) fn plan(&self, method: &'static str, path: &'static str, fault: PolarisFault) {
        self.planned.lock().push_back((method, path, fault));
    }

    pub(super) fn planned(&self) -> usize {
        self.planned.lock().len()
    }

    pub(super) fn clear(&self) {
        self.planned.lock().clear();
    }

    pub(super) fn take(&self, method: &str, path: &str) -> Option<PolarisFault> {
        let mut planned = self.planned.lock();
        let is = |(of, end, fault): &(&str, &str, PolarisFault)| {
            *fault == PolarisFault::Down || *of == method && path.ends_with(end)
        };
        let at = planned.iter().position(is)?;
        if planned.get(at)?.2 == PolarisFault::Down {
            return Some(PolarisFault::Down);
        }
        planned.remove(at).map(|(_, _, fault)| fault)
    }

    pub(super) fn saw(&self, seen: Seen) {
        self.seen.lock().push(seen);
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.seen.lock())
    }
}

pub(super) fn coded(code: u32) -> Answer {
    Answer::coded(code, &json!({"code": code, "info": info(code), "size": 0, "responses": []}))
}
