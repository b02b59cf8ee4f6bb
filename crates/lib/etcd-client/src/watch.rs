//! Evaluation of the responses of a watch: a state machine without IO.

use crate::proto::{Event, Header, WatchResponse};

/// Maximum number of events of one revision that are collected from several messages.
const MAX_PENDING: usize = 200_000;

/// A watch from the revision after a full read.
#[derive(Debug)]
pub struct Watch {
    /// Cluster id and revision of the read.
    read: Header,
    created: bool,
    pending: Vec<Event>,
}

/// Result of a watch response.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// A response without events: the server is alive.
    Answered,
    /// Events in the order of their revisions.
    Events(Vec<Event>),
    /// Changes since the read were compacted: a new full read is needed.
    Compacted,
}

/// Fatal error of a watch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    /// The server canceled the watch.
    #[error("etcd ended the watch: {0}")]
    Canceled(String),
    /// The address leads to another cluster.
    #[error("another etcd cluster answers now: {now:x} instead of {before:x}")]
    OtherCluster {
        /// The cluster that was read.
        before: u64,
        /// The cluster that answers.
        now: u64,
    },
    /// The revision went back: the cluster was restored from a backup or has lost data.
    #[error("the revision went back from {before} to {now}: the cluster was restored or has lost its data")]
    Backwards {
        /// The revision that was read.
        before: i64,
        /// The revision of the answer.
        now: i64,
    },
    /// One revision has more events than are collected.
    #[error("a change of more than {MAX_PENDING} keys came in pieces")]
    TooLarge,
}

impl Watch {
    /// A watch that continues after a read with this header.
    #[must_use]
    pub fn new(read: Header) -> Self {
        Self { read, created: false, pending: Vec::new() }
    }

    /// True once the server has created the watch.
    #[must_use]
    pub fn is_created(&self) -> bool {
        self.created
    }

    /// Handles a response.
    ///
    /// # Errors
    /// When the watch cannot continue.
    pub fn take(&mut self, answer: WatchResponse) -> Result<Step, WatchError> {
        self.check(answer.header.unwrap_or_default())?;
        if answer.canceled {
            if answer.compact_revision > 0 {
                return Ok(Step::Compacted);
            }
            let reason =
                if answer.cancel_reason.is_empty() { "without a reason" } else { &answer.cancel_reason };
            return Err(WatchError::Canceled(reason.to_owned()));
        }
        self.created |= answer.created;
        if self.pending.len() + answer.events.len() > MAX_PENDING {
            return Err(WatchError::TooLarge);
        }
        for event in &answer.events {
            // A response may contain events from before the read.
            let revision = event.kv.as_ref().map_or(0, |kv| kv.mod_revision);
            if revision <= self.read.revision {
                return Err(WatchError::Backwards { before: self.read.revision, now: revision });
            }
        }
        self.pending.extend(answer.events);
        if answer.fragment || self.pending.is_empty() {
            return Ok(Step::Answered);
        }
        Ok(Step::Events(std::mem::take(&mut self.pending)))
    }

    fn check(&self, now: Header) -> Result<(), WatchError> {
        let read = &self.read;
        if now.cluster_id != read.cluster_id {
            return Err(WatchError::OtherCluster { before: read.cluster_id, now: now.cluster_id });
        }
        // The response to a cancellation may have no revision.
        if now.revision != 0 && now.revision < read.revision {
            return Err(WatchError::Backwards { before: read.revision, now: now.revision });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::KeyValue;

    const READ: Header = Header { cluster_id: 7, revision: 10 };

    fn event(key: &str, mod_revision: i64) -> Event {
        let kv = KeyValue { key: key.to_owned().into(), mod_revision, ..Default::default() };
        Event { r#type: 0, kv: Some(kv) }
    }

    fn answer(revision: i64, events: Vec<Event>) -> WatchResponse {
        WatchResponse { header: Some(Header { cluster_id: 7, revision }), events, ..WatchResponse::default() }
    }

    #[test]
    fn events_come_in_order_and_in_pieces() {
        let mut watch = Watch::new(READ);
        let created = WatchResponse { created: true, ..answer(10, vec![]) };
        assert!(!watch.is_created());
        assert_eq!(watch.take(created), Ok(Step::Answered));
        assert!(watch.is_created());
        assert_eq!(watch.take(answer(11, vec![event("a", 11)])), Ok(Step::Events(vec![event("a", 11)])));
        let piece = WatchResponse { fragment: true, ..answer(12, vec![event("a", 12)]) };
        assert_eq!(watch.take(piece), Ok(Step::Answered));
        let whole = vec![event("a", 12), event("b", 12)];
        assert_eq!(watch.take(answer(12, vec![event("b", 12)])), Ok(Step::Events(whole)));
        assert_eq!(watch.take(answer(12, vec![])), Ok(Step::Answered), "a progress notice");
    }

    #[test]
    fn compaction_is_no_failure() {
        let gone = WatchResponse { canceled: true, compact_revision: 20, ..answer(0, vec![]) };
        assert_eq!(Watch::new(READ).take(gone), Ok(Step::Compacted));
    }

    #[test]
    fn what_cannot_go_on_is_told() {
        let canceled = |cancel_reason: &str| WatchResponse {
            canceled: true,
            cancel_reason: cancel_reason.to_owned(),
            ..answer(10, vec![])
        };
        let other =
            WatchResponse { header: Some(Header { cluster_id: 8, revision: 99 }), ..answer(0, vec![]) };
        let cases = [
            (canceled("etcdserver: no leader"), "etcd ended the watch: etcdserver: no leader"),
            (canceled(""), "etcd ended the watch: without a reason"),
            (other, "another etcd cluster answers now: 8 instead of 7"),
            (
                answer(3, vec![]),
                "the revision went back from 10 to 3: the cluster was restored or has lost its data",
            ),
            (
                answer(10, vec![event("a", 10)]),
                "the revision went back from 10 to 10: the cluster was restored or has lost its data",
            ),
        ];
        for (answer, wanted) in cases {
            assert_eq!(Watch::new(READ).take(answer).unwrap_err().to_string(), wanted);
        }
        let mut watch = Watch::new(READ);
        let many = |count| WatchResponse { fragment: true, ..answer(12, vec![event("a", 12); count]) };
        assert_eq!(watch.take(many(MAX_PENDING)), Ok(Step::Answered));
        assert_eq!(watch.take(many(1)), Err(WatchError::TooLarge));
    }
}
