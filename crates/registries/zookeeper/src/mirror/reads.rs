//! Queue of requests: those to send, those in flight, and those to repeat because their response may be
//! outdated.

use crate::wire::Request;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Requests, at most one at a time for each path.
#[derive(Debug, Default)]
pub(super) struct Reads {
    queue: VecDeque<Request>,
    queued: BTreeSet<String>,
    /// Requests in flight: true if the node changed since the request was sent.
    on_their_way: BTreeMap<String, bool>,
}

impl Reads {
    /// Queues a read, unless one is queued. A read in flight is repeated.
    pub(super) fn want(&mut self, request: Request) {
        if let Some(again) = self.on_their_way.get_mut(request.path()) {
            *again = true;
        } else if self.queued.insert(request.path().to_owned()) {
            self.queue.push_back(request);
        }
    }

    /// Returns the next request to send.
    pub(super) fn next(&mut self) -> Option<Request> {
        let request = self.queue.pop_front()?;
        self.queued.remove(request.path());
        self.on_their_way.insert(request.path().to_owned(), false);
        Some(request)
    }

    /// Records a change of a node: a response in flight may be older. Returns true if there is one.
    pub(super) fn happened(&mut self, path: &str) -> bool {
        let on_its_way = self.on_their_way.get_mut(path);
        on_its_way.map(|again| *again = true).is_some()
    }

    /// Completes a request. Returns true if it must be repeated.
    pub(super) fn answered(&mut self, path: &str) -> bool {
        self.on_their_way.remove(path).unwrap_or(false)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.on_their_way.is_empty()
    }
}
