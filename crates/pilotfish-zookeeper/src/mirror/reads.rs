//! Which requests are to be sent, which are on their way, and which must be sent again because their answer may be old.

use crate::wire::Request;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Requests, each path at most once at a time.
#[derive(Debug, Default)]
pub(super) struct Reads {
    queue: VecDeque<Request>,
    queued: BTreeSet<String>,
    /// Whether something happened to the node since it was asked for.
    on_their_way: BTreeMap<String, bool>,
}

impl Reads {
    /// Wants a node to be read, unless it will be anyway.
    pub(super) fn want(&mut self, request: Request) {
        if let Some(again) = self.on_their_way.get_mut(request.path()) {
            *again = true;
        } else if self.queued.insert(request.path().to_owned()) {
            self.queue.push_back(request);
        }
    }

    /// What is to be sent next.
    pub(super) fn next(&mut self) -> Option<Request> {
        let request = self.queue.pop_front()?;
        self.queued.remove(request.path());
        self.on_their_way.insert(request.path().to_owned(), false);
        Some(request)
    }

    /// Something happened to a node: an answer that is on its way may be older. Returns whether one is.
    pub(super) fn happened(&mut self, path: &str) -> bool {
        let on_its_way = self.on_their_way.get_mut(path);
        on_its_way.map(|again| *again = true).is_some()
    }

    /// The answer is here. Returns whether it must be asked for again.
    pub(super) fn answered(&mut self, path: &str) -> bool {
        self.on_their_way.remove(path).unwrap_or(false)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.on_their_way.is_empty()
    }
}
