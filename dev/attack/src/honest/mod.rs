//! Honest proxies: connected ones that receive changes, and new ones that sync.

mod session;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use pilotfish_bench::fleet;
use pilotfish_proto::envoy::config::core::v3::Node;
use prost::Message;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::dialer::{DELTA, Dialer, SOTW};
use crate::wire::contains;
use session::{Form, Session};

/// Connection of a proxy: its dialer and xDS variant.
#[derive(Clone)]
struct Way {
    dialer: Dialer,
    form: Form,
}

/// Connections of honest proxies, in turn.
#[derive(Clone)]
pub(crate) struct Ways(Vec<Way>);

impl Ways {
    /// Plaintext and TLS, delta and state of the world.
    pub(crate) fn new(plain: &Dialer, secret: &Dialer) -> Self {
        let way = |dialer: &Dialer, form| Way { dialer: dialer.clone(), form };
        Self(vec![
            way(plain, Form::Delta),
            way(secret, Form::StateOfTheWorld),
            way(secret, Form::Delta),
            way(plain, Form::StateOfTheWorld),
        ])
    }

    /// Connects proxy `index` and waits until it is in sync.
    pub(crate) async fn fresh(&self, index: usize, namespace: &str, limit: Duration) -> Result<Duration> {
        let way = self.of(index)?;
        let began = Instant::now();
        let mut session = Session::new(way.form, node(index, namespace)?);
        let done = timeout(limit, async {
            let mut connection = open(&way, &mut session).await?;
            while !session.synced() {
                let Some(message) = connection.next().await? else { bail!("the stream was ended") };
                for request in session.response(message)? {
                    connection.send(&request)?;
                }
            }
            Ok(())
        });
        let done = done.await;
        match done {
            Ok(done) => done.map(|()| began.elapsed()),
            Err(_) => bail!("not within {limit:?}: it lacks {}", session.missing()),
        }
    }

    fn of(&self, index: usize) -> Result<Way> {
        self.0.get(index % self.0.len().max(1)).cloned().context("there is a way")
    }
}

/// Node of an honest proxy, as sent by Istio's agent.
fn node(index: usize, namespace: &str) -> Result<Node> {
    Ok(Node::decode(&*fleet::node(index, namespace).encode_to_vec())?)
}

async fn open(way: &Way, session: &mut Session) -> Result<pilotfish_bench::connection::Connection> {
    let path = match way.form {
        Form::Delta => DELTA,
        Form::StateOfTheWorld => SOTW,
    };
    way.dialer.stream(path, &[], session.start()).await
}

/// A change that every proxy has to receive.
struct Round {
    needle: Vec<u8>,
    began: Instant,
    latencies: Mutex<Vec<(usize, Duration)>>,
    news: Notify,
}

#[derive(Default)]
struct Shared {
    round: RwLock<Option<Arc<Round>>>,
    synced: Mutex<usize>,
    ended: Mutex<Vec<String>>,
    news: Notify,
}

/// Proxies that stay connected. A proxy whose stream ends reconnects, and the end is recorded.
pub(crate) struct Fleet {
    shared: Arc<Shared>,
    size: usize,
    _proxies: JoinSet<()>,
}

/// Delay of a proxy before it reconnects.
const AGAIN: Duration = Duration::from_millis(500);

impl Fleet {
    /// Connects that many proxies, and waits until each of them is in sync.
    pub(crate) async fn start(ways: &Ways, size: usize, namespace: &str, limit: Duration) -> Result<Self> {
        let shared = Arc::<Shared>::default();
        let mut proxies = JoinSet::new();
        for index in 0..size {
            let (way, node, shared) = (ways.of(index)?, node(index, namespace)?, shared.clone());
            proxies.spawn(async move {
                loop {
                    let end = match live(&way, index, node.clone(), &shared).await {
                        Ok(()) => "the server ended the stream".to_owned(),
                        Err(error) => format!("{error:#}"),
                    };
                    shared.ended.lock().push(end);
                    shared.news.notify_one();
                    tokio::time::sleep(AGAIN).await;
                }
            });
        }
        let fleet = Self { shared, size, _proxies: proxies };
        let all = async {
            while *fleet.shared.synced.lock() < size {
                fleet.shared.news.notified().await;
                if let Some(end) = fleet.shared.ended.lock().first() {
                    bail!("a stream ended: {end}");
                }
            }
            Ok(())
        };
        timeout(limit, all)
            .await
            .map_err(|_| anyhow::anyhow!("not all proxies are in sync after {limit:?}"))??;
        Ok(fleet)
    }

    /// Makes one change, and returns the times at which proxies received it within the limit.
    pub(crate) async fn round(
        &self,
        needle: &str,
        trigger: impl FnOnce() -> Result<()>,
        limit: Duration,
    ) -> Result<Vec<Duration>> {
        let round = Arc::new(Round {
            needle: needle.as_bytes().to_vec(),
            began: Instant::now(),
            latencies: Mutex::default(),
            news: Notify::new(),
        });
        *self.shared.round.write() = Some(round.clone());
        trigger().context("the change cannot be made")?;
        let all = async {
            while round.latencies.lock().len() < self.size {
                round.news.notified().await;
            }
        };
        // Late proxies are missing in the result.
        let _ = timeout(limit, all).await;
        *self.shared.round.write() = None;
        let told = round.latencies.lock().iter().map(|(_, latency)| *latency).collect();
        Ok(told)
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Ends of streams since the last call.
    pub(crate) fn take_ended(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.ended.lock())
    }
}

async fn live(way: &Way, index: usize, node: Node, shared: &Shared) -> Result<()> {
    let mut session = Session::new(way.form, node);
    let mut connection = open(way, &mut session).await?;
    let mut synced = false;
    while let Some(message) = connection.next().await? {
        shared.note(index, &message);
        for request in session.response(message)? {
            connection.send(&request)?;
        }
        if !synced && session.synced() {
            synced = true;
            *shared.synced.lock() += 1;
            shared.news.notify_one();
        }
    }
    Ok(())
}

impl Shared {
    /// Checks a message for the change.
    fn note(&self, index: usize, message: &Bytes) {
        let Some(round) = self.round.read().clone() else { return };
        if !contains(message, &round.needle) {
            return;
        }
        let mut latencies = round.latencies.lock();
        if latencies.iter().all(|(known, _)| *known != index) {
            latencies.push((index, round.began.elapsed()));
            round.news.notify_one();
        }
    }
}
