//! A store with the state according to its events.

use super::{Opened, Subject};
use crate::testing::put;
use crate::{
    Instance, InstanceKey, Record, Registration, RegistrationPort, Store, StoreEvent, StoreEvents, Write,
    WriteError, Written,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Maximum time for events.
const DEADLINE: Duration = Duration::from_secs(30);

/// A store with the state according to its events; checks that they are consistent.
pub(super) struct Probe {
    pub(super) store: Arc<dyn Store>,
    events: StoreEvents,
    /// Records according to the events.
    pub(super) records: BTreeMap<InstanceKey, Arc<Record>>,
    /// Instances with a lapsed lease according to the events.
    pub(super) lapsed: BTreeSet<InstanceKey>,
    pub(super) revision: u64,
    /// Number of changes received.
    pub(super) changes: usize,
}

impl Probe {
    pub(super) async fn open(subject: &mut dyn Subject) -> Self {
        let Opened { store, events } = subject.open().await;
        let (records, lapsed) = (BTreeMap::new(), BTreeSet::new());
        let mut probe = Self { store, events, records, lapsed, revision: 0, changes: 0 };
        let first = tokio::time::timeout(DEADLINE, probe.events.next()).await.expect("events after opening");
        let first = first.expect("the store is open");
        assert!(
            matches!(first.first(), Some(StoreEvent::Reset { .. })),
            "the first event is Reset: {first:?}"
        );
        first.into_iter().for_each(|event| probe.apply(event));
        probe
    }

    /// Reads events until the condition holds. A store sends events before it answers, so after writes this
    /// does not wait.
    pub(super) async fn until(&mut self, what: &str, mut is_told: impl FnMut(&Self) -> bool) {
        let end = tokio::time::Instant::now() + DEADLINE;
        while !is_told(self) {
            let events = tokio::time::timeout_at(end, self.events.next()).await;
            let events = events.unwrap_or_else(|_| panic!("{what}: not told within {DEADLINE:?}"));
            events.expect("the store is open").into_iter().for_each(|event| self.apply(event));
        }
    }

    /// Writes one record, and reads the events.
    pub(super) async fn write(&mut self, write: Write) -> Result<Written, WriteError> {
        let answers = self.write_all(vec![write]).await;
        answers.into_iter().next().expect("one answer for one write")
    }

    /// Writes records, and reads the events.
    pub(super) async fn write_all(&mut self, writes: Vec<Write>) -> Vec<Result<Written, WriteError>> {
        let count = writes.len();
        let answers = self.store.write(writes).await;
        assert_eq!(answers.len(), count, "one answer for each write");
        let last =
            answers.iter().flatten().filter(|answer| answer.changed).map(|answer| answer.revision).max();
        self.until("the events of a write", |probe| last.is_none_or(|last| probe.revision >= last)).await;
        answers
    }

    /// Writes an instance unconditionally.
    pub(super) async fn put(&mut self, instance: Instance) -> Arc<Record> {
        let key = instance.key.clone();
        self.write(put(instance)).await.expect("written");
        Arc::clone(self.record(&key))
    }

    pub(super) fn record(&self, key: &InstanceKey) -> &Arc<Record> {
        self.records.get(key).unwrap_or_else(|| panic!("{key} is there"))
    }

    /// Checks that no changes arrive for a while.
    pub(super) async fn is_quiet(&mut self) {
        while let Ok(events) = tokio::time::timeout(Duration::from_millis(500), self.events.next()).await {
            let events = events.expect("the store is open");
            let is_change = |event: &StoreEvent| matches!(event, StoreEvent::Changed { .. });
            assert!(!events.iter().any(is_change), "changes out of nothing: {events:?}");
            events.into_iter().for_each(|event| self.apply(event));
        }
    }

    fn apply(&mut self, event: StoreEvent) {
        match event {
            StoreEvent::Reset { revision, records, lapsed } => {
                assert!(revision >= self.revision, "revisions only rise");
                self.revision = revision;
                let named = records.into_iter().map(|record| (record.instance.key.clone(), record));
                self.records = named.collect();
                self.lapsed = lapsed.into_iter().collect();
                assert!(
                    self.records.values().all(|record| record.revision <= revision),
                    "records of the future"
                );
            }
            StoreEvent::Changed { revision, key, record } => self.change(revision, &key, record),
            StoreEvent::Lapsed(key) => {
                assert!(self.record(&key).lease().is_some(), "{key} has no lease that could lapse");
                assert!(self.lapsed.insert(key.clone()), "{key} lapsed twice");
            }
            StoreEvent::Renewed(key) => assert!(self.lapsed.remove(&key), "{key} had not lapsed"),
            StoreEvent::Disconnected(_) | StoreEvent::Connected => {}
        }
    }

    fn change(&mut self, revision: u64, key: &InstanceKey, record: Option<Arc<Record>>) {
        self.changes += 1;
        assert!(revision >= self.revision, "revisions only rise: {revision} after {}", self.revision);
        self.revision = revision;
        self.lapsed.remove(key);
        let before = match record {
            Some(record) => {
                assert_eq!((record.revision, &record.instance.key), (revision, key));
                let created = self.records.get(key).map_or(revision, |before| before.created);
                assert_eq!(record.created, created, "{key}: created stays until it is removed");
                self.records.insert(key.clone(), record)
            }
            None => {
                Some(self.records.remove(key).unwrap_or_else(|| panic!("{key} was removed and not there")))
            }
        };
        assert!(before.is_none_or(|before| before.revision < revision), "{key}: revisions only rise");
    }
}

/// An instance without a lease; each test uses its own service.
pub(super) fn instance(service: &str, id: &str) -> Instance {
    let registration = Registration {
        addresses: vec!["10.0.0.1".to_owned()],
        ports: vec![RegistrationPort { number: 8080, ..RegistrationPort::default() }],
        ..Registration::new("conformance", service, id)
    };
    registration.validate(crate::testing::DOMAIN).expect("a good registration")
}
