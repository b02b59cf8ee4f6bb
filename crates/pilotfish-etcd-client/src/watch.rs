//! What the answers of a watch mean: a state machine without IO.

use crate::proto::{Event, Header, WatchResponse};

/// How many events of one revision, which come in several messages, are gathered.
const MAX_PENDING: usize = 200_000;

/// A watch from the revision after a full read.
#[derive(Debug)]
pub struct Watch {
    /// The cluster and the revision of the read.
    read: Header,
    created: bool,
    pending: Vec<Event>,
}

/// What an answer means.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// The server is there, and that is all.
    Answered,
    /// These happened, in this order.
    Events(Vec<Event>),
    /// What happened since the read is gone: everything has to be read again.
    Compacted,
}

/// Why a watch cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    /// The server ended it.
    #[error("etcd ended the watch: {0}")]
    Canceled(String),
    /// The address leads to another cluster now.
    #[error("another etcd cluster answers now: {now:x} instead of {before:x}")]
    OtherCluster {
        /// The cluster that was read.
        before: u64,
        /// The cluster that answers.
        now: u64,
    },
    /// The history is another one: the cluster was restored from a backup, or has lost its data.
    #[error("the revision went back from {before} to {now}: the cluster was restored or has lost its data")]
    Backwards {
        /// The revision that was read.
        before: i64,
        /// The revision of the answer.
        now: i64,
    },
    /// One change is larger than what is kept.
    #[error("a change of more than {MAX_PENDING} keys came in pieces")]
    TooLarge,
}

impl Watch {
    /// After a read that was answered with this header.
    #[must_use]
    pub fn new(read: Header) -> Self {
        Self { read, created: false, pending: Vec::new() }
    }

    /// Whether the server has begun it.
    #[must_use]
    pub fn is_created(&self) -> bool {
        self.created
    }

    /// Takes an answer.
    ///
    /// # Errors
    /// When the watch cannot go on.
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
            // Only what came after the read was asked for.
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
        // A canceled watch may come without a revision.
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
