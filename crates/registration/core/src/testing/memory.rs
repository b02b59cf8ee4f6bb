//! A store in memory: the contract without a disk.

use crate::{
    InstanceKey, LeaseTable, Record, RenewError, Store, StoreDescription, StoreEvent, StoreEventSender,
    StoreEvents, Write, WriteError, Written, store_events,
};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// A store in memory. It must be opened within a runtime, whose clock its leases follow.
pub struct MemoryStore {
    inner: Arc<Inner>,
    ticker: tokio::task::JoinHandle<()>,
}

struct Inner {
    state: Mutex<State>,
    /// Held during a write and the sending of its events, which keeps them in order.
    writer: tokio::sync::Mutex<StoreEventSender>,
}

struct State {
    revision: u64,
    records: BTreeMap<InstanceKey, Arc<Record>>,
    leases: LeaseTable,
    /// Error of every write, if set.
    trouble: Option<WriteError>,
}

impl MemoryStore {
    /// Opens an empty store at revision 0.
    #[must_use]
    pub fn open() -> (Self, StoreEvents) {
        Self::open_with(0, Vec::new())
    }

    /// A store with earlier content.
    #[must_use]
    pub fn open_with(revision: u64, records: Vec<Arc<Record>>) -> (Self, StoreEvents) {
        let (sender, events) = store_events();
        let mut leases = LeaseTable::new(now());
        for record in &records {
            record.lease().map(|ttl| leases.start(&record.instance.key, ttl));
        }
        let reset = StoreEvent::Reset { revision, records: records.clone(), lapsed: Vec::new() };
        let records = records.into_iter().map(|record| (record.instance.key.clone(), record)).collect();
        let state = State { revision, records, leases, trouble: None };
        let inner = Arc::new(Inner { state: Mutex::new(state), writer: tokio::sync::Mutex::new(sender) });
        let ticking = Arc::clone(&inner);
        let ticker = tokio::spawn(async move {
            ticking.writer.lock().await.send(vec![reset]).await;
            loop {
                tokio::time::sleep(LeaseTable::TICK / 2).await;
                ticking.tick().await;
            }
        });
        (Self { inner, ticker }, events)
    }

    /// Makes every write fail, or succeed again.
    pub fn set_trouble(&self, trouble: Option<WriteError>) {
        self.inner.state.lock().trouble = trouble;
    }

    /// Sends events that no write caused.
    pub async fn tell(&self, events: Vec<StoreEvent>) {
        self.inner.writer.lock().await.send(events).await;
    }

    /// Returns the content, to open it again.
    #[must_use]
    pub fn contents(&self) -> (u64, Vec<Arc<Record>>) {
        let state = self.inner.state.lock();
        (state.revision, state.records.values().cloned().collect())
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        self.ticker.abort();
    }
}

impl Store for MemoryStore {
    fn write(&self, writes: Vec<Write>) -> BoxFuture<'_, Vec<Result<Written, WriteError>>> {
        async move {
            let writer = self.inner.writer.lock().await;
            let (answers, events) = self.inner.state.lock().write(writes);
            writer.send(events).await;
            answers
        }
        .boxed()
    }

    fn renew(&self, renewals: Vec<InstanceKey>) -> BoxFuture<'_, Vec<Result<(), RenewError>>> {
        let mut state = self.inner.state.lock();
        let renew = |key| if state.leases.renew(key) { Ok(()) } else { Err(RenewError::NotFound) };
        let answers = renewals.iter().map(renew).collect();
        std::future::ready(answers).boxed()
    }

    fn describe(&self) -> StoreDescription {
        let trouble = self.inner.state.lock().trouble.as_ref().map(ToString::to_string);
        StoreDescription { kind: "memory", place: String::new(), bytes: None, trouble }
    }
}

impl Inner {
    async fn tick(&self) {
        let writer = self.writer.lock().await;
        let events = {
            let mut state = self.state.lock();
            while state.leases.advance(now(), 1_000) {}
            state.leases.take_events().into_iter().map(StoreEvent::from).collect()
        };
        writer.send(events).await;
    }
}

impl State {
    fn write(&mut self, writes: Vec<Write>) -> (Vec<Result<Written, WriteError>>, Vec<StoreEvent>) {
        // Lease events precede the writes, which renew leases.
        let mut events: Vec<StoreEvent> =
            self.leases.take_events().into_iter().map(StoreEvent::from).collect();
        let answers = writes.into_iter().map(|write| self.write_one(write, &mut events)).collect();
        (answers, events)
    }

    fn write_one(&mut self, write: Write, events: &mut Vec<StoreEvent>) -> Result<Written, WriteError> {
        if let Some(trouble) = &self.trouble {
            return Err(trouble.clone());
        }
        let Write { key, expected, value } = write;
        let current = self.records.get(&key).cloned();
        if let (Some(value), Some(record)) = (&value, &current)
            && value.equals(record)
        {
            if record.lease().is_some_and(|ttl| self.leases.start(&key, ttl)) {
                events.push(StoreEvent::Renewed(key));
            }
            return Ok(Written { revision: record.revision, changed: false });
        }
        if value.is_none() && current.is_none() && expected.check(None).is_ok() {
            return Ok(Written { revision: self.revision, changed: false });
        }
        expected.check(current.as_ref())?;
        self.revision += 1;
        let revision = self.revision;
        let record = value.map(|value| {
            let created = current.map_or(revision, |record| record.created);
            let (instance, owner, state) = (value.instance, value.owner, value.state);
            Arc::new(Record { instance, owner, revision, created, state })
        });
        match record.as_ref().and_then(|record| record.lease()) {
            Some(ttl) => {
                self.leases.start(&key, ttl);
            }
            None => self.leases.end(&key),
        }
        match &record {
            Some(record) => self.records.insert(key.clone(), Arc::clone(record)),
            None => self.records.remove(&key),
        };
        events.push(StoreEvent::Changed { revision, key, record });
        Ok(Written { revision, changed: true })
    }
}

fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
