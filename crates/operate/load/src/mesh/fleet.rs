//! Proxies of the mesh: streams that connect, disconnect and reconnect with their resources, and the traffic
//! to each of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use crate::connection::Way;
use crate::content::{Content, Holders};
use crate::messages::{DELTA_PATH, Node};
use crate::session::{Seen, Session};

/// N proxies, each with a stream on its own connection.
pub struct Fleet {
    shared: Arc<Shared>,
    epochs: watch::Sender<Epoch>,
    // Dropping it ends the streams.
    streams: JoinSet<()>,
}

/// Period of the streams: each further one is a reconnect of all proxies.
#[derive(Clone, Copy)]
struct Epoch {
    number: u64,
    /// True if proxies keep their resources.
    keep: bool,
    began: Instant,
}

struct Shared {
    began: Instant,
    /// Number of the epoch: events of streams from earlier ones are ignored.
    epoch: AtomicU64,
    sessions: Vec<Mutex<Session>>,
    slots: Vec<Slot>,
    opened: AtomicUsize,
    synced: AtomicUsize,
    /// Number of streams that were sent a change since the round began.
    concerned: AtomicUsize,
    wanted: AtomicUsize,
    news: Notify,
    bytes: [AtomicU64; 4],
    resources: AtomicU64,
    changed: AtomicU64,
    /// Time of the last message, in nanoseconds since the beginning.
    last: AtomicU64,
    failed: AtomicBool,
    ended: Mutex<BTreeMap<String, usize>>,
}

/// Times of a stream's first and last change in the round, in nanoseconds since the beginning; zero for none.
#[derive(Default)]
struct Slot {
    first: AtomicU64,
    last: AtomicU64,
}

/// Traffic to all streams so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Bytes of each type, in the order of [`crate::session::TYPES`].
    pub bytes: [u64; 4],
    pub resources: u64,
    /// Number of changed resources and removed names.
    pub changed: u64,
}

impl Sent {
    #[must_use]
    pub fn all_bytes(&self) -> u64 {
        self.bytes.iter().sum()
    }

    /// Traffic since an earlier state.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut bytes = self.bytes;
        for (now, before) in bytes.iter_mut().zip(before.bytes) {
            *now -= before;
        }
        Self { bytes, resources: self.resources - before.resources, changed: self.changed - before.changed }
    }
}

/// Propagation of a change to the proxies.
#[derive(Clone, Debug, Default)]
pub struct Reached {
    /// Number of proxies that were sent a change.
    pub concerned: usize,
    /// Time until the last of them had all of it.
    pub last: Duration,
    /// Times until each of them had the first of it.
    pub each: Vec<Duration>,
    /// Traffic of the change.
    pub sent: Sent,
}

impl Fleet {
    /// Opens one stream for each node, all at once, on the runtime of the caller.
    ///
    /// # Panics
    /// Outside of a runtime.
    #[must_use]
    pub fn start(way: &Way, nodes: Vec<Node>) -> Self {
        Self::start_on(&Handle::current(), way, nodes)
    }

    /// Opens the streams on another runtime, so that these proxies do not wait for others.
    #[must_use]
    pub fn start_on(runtime: &Handle, way: &Way, nodes: Vec<Node>) -> Self {
        let began = Instant::now();
        let shared = Arc::new(Shared {
            began,
            epoch: AtomicU64::new(0),
            slots: nodes.iter().map(|_| Slot::default()).collect(),
            sessions: nodes.into_iter().map(|node| Mutex::new(Session::new(node))).collect(),
            opened: AtomicUsize::new(0),
            synced: AtomicUsize::new(0),
            concerned: AtomicUsize::new(0),
            wanted: AtomicUsize::new(0),
            news: Notify::new(),
            bytes: Default::default(),
            resources: AtomicU64::new(0),
            changed: AtomicU64::new(0),
            last: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            ended: Mutex::default(),
        });
        let epochs = watch::Sender::new(Epoch { number: 0, keep: false, began });
        let mut streams = JoinSet::new();
        for index in 0..shared.sessions.len() {
            let (shared, epochs, way) = (Arc::clone(&shared), epochs.subscribe(), way.clone());
            let run = async move {
                if let Err(error) = proxy(&shared, index, &way, epochs).await {
                    *shared.ended.lock().entry(format!("{error:#}")).or_default() += 1;
                    shared.failed.store(true, Ordering::Release);
                    shared.news.notify_one();
                }
            };
            streams.spawn_on(run, runtime);
        }
        Self { shared, epochs, streams }
    }

    #[must_use]
    pub fn size(&self) -> usize {
        self.streams.len()
    }

    /// Ends all streams at once and opens new ones; with `keep` the proxies list their resources.
    pub fn reconnect(&self, keep: bool) {
        let number = self.shared.epoch.fetch_add(1, Ordering::AcqRel) + 1;
        self.shared.synced.store(0, Ordering::Release);
        self.shared.opened.store(0, Ordering::Release);
        self.epochs.send_replace(Epoch { number, keep, began: Instant::now() });
    }

    /// Waits until every proxy has all subscribed resources. Returns the time since the beginning of the
    /// streams.
    ///
    /// # Errors
    /// If a stream ended, or on a timeout.
    pub async fn synced(&self, limit: Duration) -> Result<Duration> {
        let began = self.epochs.borrow().began;
        let all = || self.shared.synced.load(Ordering::Acquire) >= self.size();
        if !self.until(began, limit, all).await? {
            let missing: usize = self.shared.sessions.iter().map(|session| session.lock().pending()).sum();
            let synced = self.shared.synced.load(Ordering::Relaxed);
            bail!(
                "only {synced} of {} proxies are in sync after {limit:?}; {missing} answers are missing",
                self.size()
            );
        }
        Ok(began.elapsed())
    }

    /// Waits until every proxy has a stream. Returns the time since the beginning of the streams.
    ///
    /// # Errors
    /// If a stream ended, or on a timeout.
    pub async fn opened(&self, limit: Duration) -> Result<Duration> {
        let began = self.epochs.borrow().began;
        let all = || self.shared.opened.load(Ordering::Acquire) >= self.size();
        if !self.until(began, limit, all).await? {
            bail!(
                "only {} of {} streams are open after {limit:?}",
                self.shared.opened.load(Ordering::Relaxed),
                self.size()
            );
        }
        Ok(began.elapsed())
    }

    /// Waits for a condition; false on a timeout.
    async fn until(&self, began: Instant, limit: Duration, holds: impl Fn() -> bool) -> Result<bool> {
        let wait = async {
            while !holds() {
                self.shared.check()?;
                self.shared.news.notified().await;
            }
            Ok::<_, anyhow::Error>(())
        };
        match tokio::time::timeout_at((began + limit).into(), wait).await {
            Ok(result) => result.map(|()| true),
            Err(_) => Ok(false),
        }
    }

    /// Begins a round, which counts the traffic from now on.
    #[must_use]
    pub fn round(&self, wanted: usize) -> Round<'_> {
        for slot in &self.shared.slots {
            slot.first.store(0, Ordering::Relaxed);
            slot.last.store(0, Ordering::Relaxed);
        }
        self.shared.concerned.store(0, Ordering::Release);
        self.shared.wanted.store(wanted, Ordering::Release);
        Round { fleet: self, wanted, began: Instant::now(), before: self.sent() }
    }

    /// Traffic to all streams so far.
    #[must_use]
    pub fn sent(&self) -> Sent {
        Sent {
            bytes: self.shared.bytes.each_ref().map(|bytes| bytes.load(Ordering::Relaxed)),
            resources: self.shared.resources.load(Ordering::Relaxed),
            changed: self.shared.changed.load(Ordering::Relaxed),
        }
    }

    /// Time of the last message.
    #[must_use]
    pub fn last_message(&self) -> Instant {
        self.shared.began + Duration::from_nanos(self.shared.last.load(Ordering::Relaxed))
    }

    /// Resources of the proxies.
    #[must_use]
    pub fn content(&self) -> [Content; 4] {
        let mut holders = Holders::default();
        for session in &self.shared.sessions {
            holders.add(&session.lock());
        }
        holders.content()
    }

    /// Fails once a stream has ended.
    ///
    /// # Errors
    /// The reasons.
    pub fn check(&self) -> Result<()> {
        self.shared.check()
    }
}

pub struct Round<'a> {
    fleet: &'a Fleet,
    wanted: usize,
    began: Instant,
    before: Sent,
}

impl Round<'_> {
    /// Waits until the wanted number of proxies was sent a change, and no message came for `quiet`.
    ///
    /// # Errors
    /// If a stream ended, or on a timeout.
    pub async fn reached(self, limit: Duration, quiet: Duration) -> Result<Reached> {
        let shared = &self.fleet.shared;
        let enough = || shared.concerned.load(Ordering::Acquire) >= self.wanted;
        if !self.fleet.until(self.began, limit, enough).await? {
            let concerned = shared.concerned.load(Ordering::Relaxed);
            bail!("only {concerned} of {} proxies have it after {limit:?}", self.wanted);
        }
        loop {
            let idle = self.fleet.last_message().elapsed();
            if idle >= quiet {
                break;
            }
            tokio::time::sleep(quiet - idle).await;
        }
        shared.check()?;
        let began = self.began.duration_since(shared.began);
        let since = |at: &AtomicU64| {
            let at = Duration::from_nanos(at.load(Ordering::Relaxed));
            (!at.is_zero()).then(|| at.saturating_sub(began))
        };
        let each: Vec<Duration> = shared.slots.iter().filter_map(|slot| since(&slot.first)).collect();
        let last = shared.slots.iter().filter_map(|slot| since(&slot.last)).max().unwrap_or_default();
        Ok(Reached { concerned: each.len(), last, each, sent: self.fleet.sent().since(&self.before) })
    }

    /// Time of its beginning.
    #[must_use]
    pub fn began(&self) -> Instant {
        self.began
    }
}

impl Shared {
    fn check(&self) -> Result<()> {
        if !self.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        let ended = self.ended.lock();
        let reasons: Vec<String> =
            ended.iter().take(5).map(|(why, count)| format!("{count} x {why}")).collect();
        bail!("streams ended: {}", reasons.join("; "))
    }

    /// Records the content of a message that came at `at`.
    fn note(&self, index: usize, seen: &Seen, at: Instant) {
        let at = u64::try_from(at.duration_since(self.began).as_nanos()).unwrap_or(u64::MAX);
        if let Some(bytes) = self.bytes.get(seen.ty) {
            bytes.fetch_add(seen.bytes as u64, Ordering::Relaxed);
        }
        self.resources.fetch_add(seen.resources as u64, Ordering::Relaxed);
        self.last.fetch_max(at, Ordering::Relaxed);
        if seen.changed == 0 {
            return;
        }
        self.changed.fetch_add(seen.changed as u64, Ordering::Relaxed);
        let Some(slot) = self.slots.get(index) else { return };
        slot.last.store(at, Ordering::Relaxed);
        if slot.first.compare_exchange(0, at, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            let concerned = self.concerned.fetch_add(1, Ordering::AcqRel) + 1;
            if concerned == self.wanted.load(Ordering::Acquire) {
                self.news.notify_one();
            }
        }
    }

    /// Increments a counter, and notifies when it reaches the number of proxies.
    fn count(&self, counter: &AtomicUsize, epoch: u64) {
        if self.epoch.load(Ordering::Acquire) != epoch {
            return;
        }
        if counter.fetch_add(1, Ordering::AcqRel) + 1 == self.sessions.len() {
            self.news.notify_one();
        }
    }
}

/// Runs one proxy: a stream, and another one for each epoch.
async fn proxy(shared: &Shared, index: usize, way: &Way, mut epochs: watch::Receiver<Epoch>) -> Result<()> {
    let Some(session) = shared.sessions.get(index) else { return Ok(()) };
    loop {
        let Epoch { number, keep, .. } = *epochs.borrow_and_update();
        session.lock().leave(keep);
        tokio::select! {
            ended = stream(shared, index, session, way, number) => return ended,
            changed = epochs.changed() => if changed.is_err() { return Ok(()) },
        }
    }
}

async fn stream(
    shared: &Shared,
    index: usize,
    session: &Mutex<Session>,
    way: &Way,
    epoch: u64,
) -> Result<()> {
    let first = session.lock().start();
    let mut connection = way.open(DELTA_PATH, first).await?;
    shared.count(&shared.opened, epoch);
    let (mut out, mut synced) = (Vec::new(), false);
    while let Some(message) = connection.next().await? {
        let at = Instant::now();
        let now_synced = {
            let mut session = session.lock();
            let seen = session.response(&message, &mut out).map_err(anyhow::Error::msg)?;
            shared.note(index, &seen, at);
            session.synced()
        };
        for request in out.drain(..) {
            connection.send(&request)?;
        }
        if now_synced && !synced {
            synced = true;
            shared.count(&shared.synced, epoch);
        }
    }
    bail!("the server ended the stream")
}
