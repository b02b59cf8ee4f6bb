//! The registration store on etcd.

use crate::EtcdStoreSettings;
use crate::anew::revoke;
use crate::plan::is_lapsed_only;
use crate::queues::WriteQueues;
use crate::runner::Runner;
use crate::session::Session;
use crate::shared::Shared;
use crate::value::encode;
use crate::view::Renewal;
use crate::work::Attempt;
use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use pilotfish_registration::{
    InstanceKey, RenewError, Store, StoreDescription, StoreEvents, Write, WriteError, Written, store_events,
};
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// A store on etcd; it runs until it is dropped.
#[derive(Debug)]
pub struct EtcdStore {
    shared: Arc<Shared>,
    queues: WriteQueues,
    place: String,
    /// Session and other background tasks; aborted on drop.
    _tasks: JoinSet<()>,
}

impl EtcdStore {
    /// Opens a store, within a runtime. It connects in the background and retries for ever: the first event
    /// is published once everything was read.
    #[must_use]
    pub fn open(settings: EtcdStoreSettings) -> (Self, StoreEvents) {
        let EtcdStoreSettings { servers, keys } = settings;
        let place = format!("{} {}", servers.describe(), keys.prefix());
        let (sender, events) = store_events();
        let (shared, revoked) = Shared::new(keys);
        let shared = Arc::new(shared);
        let mut tasks = JoinSet::new();
        tasks.spawn(Runner::new(Arc::clone(&shared), servers, sender).run());
        tasks.spawn(revoke(Arc::clone(&shared), revoked));
        (Self { queues: WriteQueues::new(&shared), shared, place, _tasks: tasks }, events)
    }

    async fn write_all(&self, writes: Vec<Write>) -> Vec<Result<Written, WriteError>> {
        if let Err(why) = self.shared.session() {
            return writes.iter().map(|_| Err(WriteError::Unavailable(why.to_string()))).collect();
        }
        let mut answers = Vec::with_capacity(writes.len());
        for write in writes {
            let (answer, answered) = oneshot::channel();
            answers.push(answered);
            let lapsed_only = is_lapsed_only(&write, &self.shared.view.lock().belief(&write.key));
            match write.value.as_ref().map_or(Ok(Vec::new()), encode) {
                Ok(json) => self.queues.put(Attempt::write(write, lapsed_only, json.into(), answer)).await,
                Err(error) => {
                    // The receiver is still alive here.
                    answer.send(Err(WriteError::Unavailable(format!("it is no JSON: {error}")))).ok();
                }
            }
        }
        let closed = |_| Err(WriteError::Unavailable("the store was closed".to_owned()));
        join_all(answers).await.into_iter().map(|answer| answer.unwrap_or_else(closed)).collect()
    }

    async fn renew_all(&self, keys: Vec<InstanceKey>) -> Vec<Result<(), RenewError>> {
        let session = match self.shared.session() {
            Ok(session) => session,
            Err(why) => {
                keys.iter().for_each(|key| self.shared.miss(key));
                return keys.iter().map(|_| Err(RenewError::Unavailable(why.to_string()))).collect();
            }
        };
        let now = Instant::now();
        let renewals: Vec<(InstanceKey, Renewal)> = {
            let view = self.shared.view.lock();
            keys.into_iter()
                .map(|key| (view.renewal(&key, now), key))
                .map(|(what, key)| (key, what))
                .collect()
        };
        if renewals.iter().all(|(_, renewal)| *renewal == Renewal::Done) {
            return renewals.iter().map(|_| Ok(())).collect();
        }
        join_all(renewals.into_iter().map(|(key, renewal)| self.renew_one(&session, key, renewal))).await
    }

    async fn renew_one(
        &self,
        session: &Session,
        key: InstanceKey,
        renewal: Renewal,
    ) -> Result<(), RenewError> {
        let asked = Instant::now();
        let is_there = match renewal {
            Renewal::Done => return Ok(()),
            Renewal::Extend(id) => {
                session.keep_alives.extend(id).await.map(|is_there| is_there.then_some(id))
            }
            Renewal::Look => Ok(None),
        };
        let answer = match is_there {
            Ok(Some(id)) => {
                self.shared.view.lock().extended(&key, id, asked);
                return Ok(());
            }
            Ok(None) => {
                let (answer, answered) = oneshot::channel();
                self.queues.put(Attempt::renew(key.clone(), answer)).await;
                answered
                    .await
                    .unwrap_or_else(|_| Err(RenewError::Unavailable("the store was closed".to_owned())))
            }
            Err(why) => Err(RenewError::Unavailable(why)),
        };
        if matches!(answer, Err(RenewError::Unavailable(_))) {
            self.shared.miss(&key);
        }
        answer
    }
}

impl Store for EtcdStore {
    fn write(&self, writes: Vec<Write>) -> BoxFuture<'_, Vec<Result<Written, WriteError>>> {
        self.write_all(writes).boxed()
    }

    fn renew(&self, renewals: Vec<InstanceKey>) -> BoxFuture<'_, Vec<Result<(), RenewError>>> {
        self.renew_all(renewals).boxed()
    }

    fn describe(&self) -> StoreDescription {
        let broken = {
            let view = self.shared.view.lock();
            let broken = view.broken();
            broken
                .first()
                .map(|first| format!("{} records in etcd cannot be read, such as {first}", broken.len()))
        };
        let trouble = match self.shared.session() {
            Err(why) => Some(why.to_string()),
            Ok(_) => self.shared.refused().map(|why| format!("etcd refuses writes: {why}")).or(broken),
        };
        StoreDescription { kind: "etcd", place: self.place.clone(), bytes: None, trouble }
    }
}
