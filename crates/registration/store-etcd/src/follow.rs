//! Watch of one session.

use crate::anew::begin_anew;
use crate::runner::{End, Entered, Runner};
use crate::session::Session;
use crate::view::unsigned;
use pilotfish_etcd_client::proto::{Header, WatchCreate, WatchResponse};
use pilotfish_etcd_client::{Client, Step, Watch, WatchStream, end_of, first_of};
use pilotfish_registration::{InstanceKey, StoreEvent};
use pilotfish_runtime::SessionError;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

/// Silence after which the server is probed, and the time for its response.
const QUIET: Duration = Duration::from_secs(3);
/// Keepalive interval of the key of this open store.
const PRESENT: Duration = Duration::from_millis(1_500);
/// Interval of checks for a suspended process.
const TICK: Duration = Duration::from_millis(500);
/// Suspension of the process after which renewals may have been missed.
const STOPPED: Duration = Duration::from_secs(3);
/// Capacity of the queue of watch responses.
const WAITING: usize = 16;

type Answer = Result<Option<WatchResponse>, SessionError>;

/// State of one watch. Its tasks end with it.
struct Following {
    session: Arc<Session>,
    tasks: JoinSet<()>,
    /// Instances whose leases were renewed, or could not be.
    anew: mpsc::Sender<Vec<InstanceKey>>,
    /// True once all missed changes were read.
    is_current: bool,
}

impl Runner {
    /// Watches changes after a read, until a revision is compacted. Returns true if the view was current.
    pub(crate) async fn follow(
        &mut self,
        client: &Client,
        read: Header,
        entered: Entered,
        is_whole: bool,
    ) -> Result<bool, End> {
        let prefix = self.shared.keys.prefix().as_bytes();
        let start_revision = read.revision.saturating_add(1);
        let (key, range_end) = (first_of(prefix), end_of(prefix));
        let stream = client.watch(WatchCreate { key, range_end, start_revision, fragment: true }).await?;
        let session = Arc::new(Session::new(client.clone()));
        let ((answering, mut answers), mut tasks) = (mpsc::channel(WAITING), JoinSet::new());
        tasks.spawn(listen(stream, answering));
        tasks.spawn(stay(Arc::clone(&session), entered.lease));
        let (anew, mut begun_anew) = mpsc::channel(WAITING);
        let mut following = Following { session, tasks, anew, is_current: false };
        let mut watch = Watch::new(read);
        let (mut ticks, mut last) = (interval(TICK), Instant::now());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let news = tokio::select! {
                why = following.session.lost() => return Err(SessionError::new(why).into()),
                answer = answers.recv() => Some(answer.unwrap_or(Ok(None))),
                Some(keys) = begun_anew.recv() => {
                    let events = self.shared.view.lock().end_grace(keys);
                    self.tell(events).await?;
                    None
                }
                _ = ticks.tick() => None,
            };
            // Checked before publishing events: renewals may have been missed.
            let stopped = last.elapsed();
            if stopped > STOPPED {
                let why = format!("this process was stopped for {} s", stopped.as_secs());
                return Err(SessionError::new(why).into());
            }
            if let Some(answer) = news {
                let answer = answer?.ok_or_else(|| SessionError::new("etcd ended the watch"))?;
                match watch.take(answer)? {
                    Step::Answered => {}
                    Step::Compacted => {
                        self.shared.view.lock().hold();
                        return Ok(following.is_current);
                    }
                    Step::Events(events) => {
                        let events = self.shared.view.lock().apply(&events);
                        self.tell(events).await?;
                    }
                }
                if watch.is_created() {
                    self.check(&mut following, entered, is_whole).await?;
                }
            }
            last = Instant::now();
        }
    }

    /// Publishes events; then writes up to their revision can be acknowledged.
    async fn tell(&self, events: Vec<StoreEvent>) -> Result<(), End> {
        if !self.events.send(events).await {
            return Err(End::Closed);
        }
        let revision = self.shared.view.lock().revision();
        self.shared.seen.send_replace(revision);
        Ok(())
    }

    /// Checks that all missed changes were read, and that etcd still has the key of this store.
    async fn check(
        &mut self,
        following: &mut Following,
        entered: Entered,
        is_whole: bool,
    ) -> Result<(), End> {
        {
            let view = self.shared.view.lock();
            if !following.is_current && view.revision() < unsigned(entered.header.revision) {
                return Ok(());
            }
            if !view.has_store(&self.name) {
                return Err(SessionError::new("etcd ended the session of this store").into());
            }
        }
        if !following.is_current {
            following.is_current = true;
            self.open(following, is_whole).await?;
        }
        Ok(())
    }

    /// Publishes the current state, and makes the session available.
    ///
    /// Lapses of instances whose clients tried to renew them meanwhile are not published: their leases are
    /// renewed. If no other store was open to serve renewals, this applies to all lapses since.
    async fn open(&mut self, following: &mut Following, is_whole: bool) -> Result<(), End> {
        let missed = self.shared.take_missed();
        let (mut events, grace) = {
            let mut view = self.shared.view.lock();
            let untold: HashSet<InstanceKey> = view.untold().cloned().collect();
            let grace: HashSet<InstanceKey> = match view.is_alone(&self.name) {
                true => untold,
                false => missed.iter().filter(|key| untold.contains(*key)).cloned().collect(),
            };
            let events = if is_whole { vec![view.reset(grace.clone())] } else { view.release(grace.clone()) };
            (events, grace)
        };
        if std::mem::take(&mut self.is_disconnected) {
            events.push(StoreEvent::Connected);
        }
        self.is_open = true;
        self.tell(events).await?;
        self.shared.set_session(Ok(Arc::clone(&following.session)));
        self.backoff.reset();
        let mut keys = grace;
        keys.extend(missed);
        if !keys.is_empty() {
            tracing::info!(
                leases = keys.len(),
                "renewing leases that could not be renewed while etcd was unreachable"
            );
            let (shared, session) = (Arc::clone(&self.shared), Arc::clone(&following.session));
            following.tasks.spawn(begin_anew(shared, session, keys, following.anew.clone()));
        }
        Ok(())
    }
}

/// Forwards the responses of a watch; the last one is its end.
async fn listen(mut stream: WatchStream, answers: mpsc::Sender<Answer>) {
    loop {
        let answer = stream.next(QUIET, || ()).await;
        let is_last = !matches!(answer, Ok(Some(_)));
        if answers.send(answer).await.is_err() || is_last {
            return;
        }
    }
}

/// Keeps the key of this open store alive.
async fn stay(session: Arc<Session>, lease: i64) {
    loop {
        sleep(PRESENT).await;
        match session.keep_alives.extend(lease).await {
            Ok(true) => {}
            Ok(false) => return session.lose("etcd ended the session of this store"),
            Err(why) => return session.lose(why),
        }
    }
}
