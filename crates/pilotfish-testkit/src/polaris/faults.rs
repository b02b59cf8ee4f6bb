//! What tests see of requests, and what they make of answers.

use super::codes::info;
use super::http::Answer;
use parking_lot::Mutex;
use serde_json::json;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// A request as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The method.
    pub method: String,
    /// The path, without the query.
    pub path: String,
    /// The query.
    pub query: String,
    /// How many elements the body has: 1 for an object, 0 for none.
    pub elements: usize,
    /// The headers `request-id` and `x-polaris-token`.
    pub id: String,
    /// See `id`.
    pub token: String,
    /// When it had arrived.
    pub at: Instant,
}

/// What becomes of a request to the console API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolarisFault {
    /// It is answered with this code, and not done.
    Code(u32),
    /// It is answered with this status and text that is no JSON, and not done.
    Status(u16),
    /// The connection is closed, before it is done.
    Closed,
    /// It is done, and the connection closed without an answer.
    ClosedAfter,
    /// It is done, and answered so much later.
    Slow(Duration),
    /// All requests until faults are cleared are closed at once: the server is down.
    Down,
}

#[derive(Default)]
pub(super) struct Faults {
    /// For requests whose path ends so, of a method; each but the last kind once.
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
