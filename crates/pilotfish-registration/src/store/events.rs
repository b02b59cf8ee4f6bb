//! What a store tells.

use crate::{InstanceKey, LeaseEvent, Record};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Something that happened in a store.
#[derive(Clone, Debug, PartialEq)]
pub enum StoreEvent {
    /// All that there is: the first event, and again where a store cannot tell what it missed. What is not in it is gone.
    Reset {
        /// The store's revision.
        revision: u64,
        /// All records, in any order.
        records: Vec<Arc<Record>>,
        /// Those among them whose lease has lapsed.
        lapsed: Vec<InstanceKey>,
    },
    /// A record was created, changed or removed.
    Changed {
        /// The revision of the change.
        revision: u64,
        /// Which.
        key: InstanceKey,
        /// What there is now; `None` for gone. Its lease, if it has one, has not lapsed.
        record: Option<Arc<Record>>,
    },
    /// A lease was not renewed in time.
    Lapsed(InstanceKey),
    /// A lease that had lapsed was renewed.
    Renewed(InstanceKey),
    /// The store cannot be reached, and why. Leases neither lapse nor are removed until it can be.
    Disconnected(String),
    /// The store is reached again; a `Reset` came before, or nothing was missed.
    Connected,
}

/// How many batches of events wait for their reader before a store waits.
const WAITING: usize = 64;

/// The end of a store.
#[derive(Clone, Debug)]
pub struct StoreEventSender(mpsc::Sender<Vec<StoreEvent>>);

/// The end of what follows a store.
#[derive(Debug)]
pub struct StoreEvents(mpsc::Receiver<Vec<StoreEvent>>);

/// A bounded channel of events: a store waits for a reader that is behind, and acknowledges nothing meanwhile.
#[must_use]
pub fn store_events() -> (StoreEventSender, StoreEvents) {
    let (sender, receiver) = mpsc::channel(WAITING);
    (StoreEventSender(sender), StoreEvents(receiver))
}

impl StoreEventSender {
    /// Hands events on, in their order. False when nobody reads them any more.
    pub async fn send(&self, events: Vec<StoreEvent>) -> bool {
        events.is_empty() || self.0.send(events).await.is_ok()
    }

    /// The same from a thread outside of the runtime, which waits for a reader that is behind unless nobody needs the events any more.
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
    /// The next events, those of a commit together. `None` when the store was closed.
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
