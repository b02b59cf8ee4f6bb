//! A store whose events are followed.

use parking_lot::Mutex;
use pilotfish_registration::{
    Instance, InstanceKey, Record, RenewError, Store, StoreEvent, StoreEvents, Write, WriteError, Written,
    testing,
};
use pilotfish_registration_etcd::{EtcdStore, EtcdStoreSettings};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// How long something may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// What events have told so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    pub(crate) records: BTreeMap<InstanceKey, Arc<Record>>,
    pub(crate) lapsed: BTreeSet<InstanceKey>,
    pub(crate) revision: u64,
    pub(crate) resets: usize,
    /// Whether it is disconnected, and why.
    pub(crate) disconnected: Option<String>,
    pub(crate) disconnections: usize,
    /// All lapses ever.
    pub(crate) lapses: usize,
    /// What was told that cannot be.
    pub(crate) wrong: Vec<String>,
}

impl Told {
    fn take(&mut self, event: StoreEvent) {
        match event {
            StoreEvent::Reset { revision, records, lapsed } => {
                self.resets += 1;
                self.revision = revision;
                self.records =
                    records.into_iter().map(|record| (record.instance.key.clone(), record)).collect();
                self.lapsed = lapsed.into_iter().collect();
            }
            StoreEvent::Changed { revision, key, record } => {
                if revision < self.revision {
                    self.wrong.push(format!("{key} changed at {revision} after {}", self.revision));
                }
                self.revision = revision;
                self.lapsed.remove(&key);
                match record {
                    Some(record) => self.records.insert(key, record),
                    None => self.records.remove(&key),
                };
            }
            StoreEvent::Lapsed(key) => {
                self.lapses += 1;
                if !self.records.contains_key(&key) || !self.lapsed.insert(key.clone()) {
                    self.wrong.push(format!("{key} lapsed and is not there, or lapsed twice"));
                }
            }
            StoreEvent::Renewed(key) => {
                if !self.lapsed.remove(&key) {
                    self.wrong.push(format!("{key} was renewed and had not lapsed"));
                }
            }
            StoreEvent::Disconnected(why) => {
                if self.disconnected.replace(why).is_some() {
                    self.wrong.push("disconnected twice".to_owned());
                }
                self.disconnections += 1;
            }
            StoreEvent::Connected => {
                if self.disconnected.take().is_none() {
                    self.wrong.push("connected twice".to_owned());
                }
            }
        }
    }
}

/// A store whose events are followed.
pub(crate) struct Followed {
    pub(crate) store: Arc<EtcdStore>,
    told: Arc<Mutex<Told>>,
    task: JoinHandle<()>,
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) fn settings(address: &str) -> EtcdStoreSettings {
    EtcdStoreSettings::parse(address).unwrap()
}

async fn follow(mut events: StoreEvents, told: Arc<Mutex<Told>>) {
    while let Some(events) = events.next().await {
        let mut told = told.lock();
        events.into_iter().for_each(|event| told.take(event));
    }
}

impl Followed {
    /// Opens a store, which need not come up.
    pub(crate) fn start(address: &str) -> Self {
        let (store, events) = EtcdStore::open(settings(address));
        let told: Arc<Mutex<Told>> = Arc::default();
        let task = tokio::spawn(follow(events, told.clone()));
        Self { store: Arc::new(store), told, task }
    }

    /// Opens a store, and waits until it was read.
    pub(crate) async fn open(address: &str) -> Self {
        let this = Self::start(address);
        this.until("it is open", |told| told.resets > 0).await;
        this
    }

    pub(crate) fn told(&self) -> Told {
        let told = self.told.lock().clone();
        assert_eq!(told.wrong, [""; 0]);
        told
    }

    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Told) -> bool) {
        let end = Instant::now() + LIMIT;
        loop {
            let told = self.told();
            if holds(&told) {
                return;
            }
            let short = (told.records.len(), &told.lapsed, told.revision, &told.disconnected);
            assert!(Instant::now() < end, "{what}: {short:?} {:?}", self.store.describe());
            sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) async fn write(&self, write: Write) -> Result<Written, WriteError> {
        self.store.write(vec![write]).await.pop().unwrap()
    }

    /// Writes until that succeeds, as a client does that is told to try again.
    pub(crate) async fn write_at_last(&self, write: Write) -> Written {
        let end = Instant::now() + LIMIT;
        loop {
            match self.write(write.clone()).await {
                Ok(written) => return written,
                Err(WriteError::Unavailable(why)) => assert!(Instant::now() < end, "{why}"),
                Err(error) => panic!("{error}"),
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) async fn put(&self, instance: Instance) -> u64 {
        self.write(testing::put(instance)).await.unwrap().revision
    }

    /// What another store removed is not found as soon as this one has seen that.
    pub(crate) async fn is_not_found(&self, id: &str) {
        let end = Instant::now() + LIMIT;
        while self.renew(id).await != Err(RenewError::NotFound) {
            assert!(Instant::now() < end, "{id} is found still");
            sleep(Duration::from_millis(1)).await;
        }
    }

    pub(crate) async fn renew(&self, id: &str) -> Result<(), RenewError> {
        self.store.renew(vec![testing::key(id)]).await.pop().unwrap()
    }
}

/// An instance with a lease of so many seconds.
pub(crate) fn leased(id: &str, seconds: u64) -> Instance {
    Instance { ttl: Some(Duration::from_secs(seconds)), ..testing::instance(id) }
}

/// Renews an instance four times in each TTL, on one store after the other, until dropped.
pub(crate) struct Heartbeat(JoinHandle<()>);

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(crate) fn heartbeat(stores: &[&Followed], instance: &Instance) -> Heartbeat {
    let stores: Vec<Arc<EtcdStore>> = stores.iter().map(|followed| followed.store.clone()).collect();
    let (key, pause) = (instance.key.clone(), instance.ttl.unwrap() / 4);
    Heartbeat(tokio::spawn(async move {
        for turn in 0.. {
            // What it answers is looked at where it counts.
            let _ = stores[turn % stores.len()].renew(vec![key.clone()]).await;
            sleep(pause).await;
        }
    }))
}
