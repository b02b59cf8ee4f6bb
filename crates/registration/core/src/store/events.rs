//! Events of a store.

use crate::{InstanceKey, LeaseEvent, Record};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// An event of a store.
#[derive(Clone, Debug, PartialEq)]
pub enum StoreEvent {
    /// The complete content: the first event, and again if a store may have missed changes. Other records
    /// were removed.
    Reset {
        revision: u64,
        /// All records, in any order.
        records: Vec<Arc<Record>>,
        /// Instances whose lease has lapsed.
        lapsed: Vec<InstanceKey>,
    },
    /// A record was created, changed or removed.
    Changed {
        /// The revision of the change.
        revision: u64,
        key: InstanceKey,
        /// The current record; `None` if removed. Its lease, if it has one, has not lapsed.
        record: Option<Arc<Record>>,
    },
    /// A lease was not renewed in time.
    Lapsed(InstanceKey),
    /// A lease that had lapsed was renewed.
    Renewed(InstanceKey),
    /// The store is unreachable, with the reason. Leases neither lapse nor are removed until it is back.
    Disconnected(String),
    /// The store is reachable again; a `Reset` came before, or no change was missed.
    Connected,
}

/// Capacity of the channel in batches; the store waits above it.
const WAITING: usize = 64;

/// Sending end, for the store.
#[derive(Clone, Debug)]
pub struct StoreEventSender(mpsc::Sender<Vec<StoreEvent>>);

/// Receiving end, for the follower of the store.
#[derive(Debug)]
pub struct StoreEvents(mpsc::Receiver<Vec<StoreEvent>>);

/// Returns a bounded channel of events: a store waits for a slow receiver, and acknowledges nothing
/// meanwhile.
#[must_use]
pub fn store_events() -> (StoreEventSender, StoreEvents) {
    let (sender, receiver) = mpsc::channel(WAITING);
    (StoreEventSender(sender), StoreEvents(receiver))
}

impl StoreEventSender {
    /// Sends events in order. Returns false if the receiver was dropped.
    pub async fn send(&self, events: Vec<StoreEvent>) -> bool {
        events.is_empty() || self.0.send(events).await.is_ok()
    }

    /// Like [`Self::send`], for threads outside the runtime: waits for a slow receiver, unless `is_closing`
    /// returns true.
    pub fn send_blocking(&self, events: Vec<StoreEvent>, is_closing: impl Fn() -> bool) -> bool {
        const PAUSE: Duration = Duration::from_millis(1);
        let mut events = events;
        while !events.is_empty() {
            match self.0.try_send(events) {
                Ok(()) => return true,
                Err(mpsc::error::TrySendError::Full(back)) if !is_closing() => events = back,
                Err(_) => return false,
            }
            std::thread::sleep(PAUSE);
        }
        true
    }
}

impl StoreEvents {
    /// Returns the next events, those of one commit together. `None` when the store was closed.
    pub async fn next(&mut self) -> Option<Vec<StoreEvent>> {
        self.0.recv().await
    }
}

impl From<LeaseEvent> for StoreEvent {
    fn from(event: LeaseEvent) -> Self {
        match event {
            LeaseEvent::Lapsed(key) => Self::Lapsed(key),
            LeaseEvent::Renewed(key) => Self::Renewed(key),
        }
    }
}
