//! Lease keepalives over several streams: an etcd follower forwards the requests of one stream to its leader
//! one by one.

use pilotfish_etcd_client::{Client, KeepAliveStream, reason};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Number of streams per session.
const STREAMS: usize = 16;
/// Maximum number of requests in flight per stream; more wait.
const UNANSWERED: usize = 256;
/// Timeout of a keepalive. It needs no quorum, and the client's lease is running.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Keepalive streams of a session.
#[derive(Debug)]
pub(crate) struct KeepAlives {
    streams: Vec<mpsc::Sender<Ask>>,
    lost: Lost,
    /// Tasks of the streams; aborted on drop.
    _tasks: JoinSet<()>,
}

#[derive(Debug)]
struct Ask {
    id: i64,
    answer: oneshot::Sender<Result<bool, String>>,
}

impl KeepAlives {
    /// Each stream is opened at its first request. When one ends, the session is lost.
    pub(crate) fn new(client: &Client, lost: Lost) -> Self {
        let mut tasks = JoinSet::new();
        let streams = (0..STREAMS).map(|_| {
            let (asks, asked) = mpsc::channel(UNANSWERED);
            tasks.spawn(run(client.clone(), asked, lost.clone()));
            asks
        });
        Self { streams: streams.collect(), lost, _tasks: tasks }
    }

    /// Renews a lease. Returns false if the lease does not exist any more.
    pub(crate) async fn extend(&self, id: i64) -> Result<bool, String> {
        let closed = || "the stream that keeps leases alive has ended".to_owned();
        let at = usize::try_from(id.unsigned_abs() % STREAMS as u64).unwrap_or_default();
        let stream = self.streams.get(at).ok_or_else(closed)?;
        let (answer, answered) = oneshot::channel();
        let asked = timeout(TIMEOUT, async {
            stream.send(Ask { id, answer }).await.map_err(|_| closed())?;
            answered.await.unwrap_or_else(|_| Err(closed()))
        });
        asked.await.unwrap_or_else(|_| {
            let reason = format!("etcd keeps no lease alive: no answer within {} s", TIMEOUT.as_secs());
            self.lost.lose(reason.clone());
            Err(reason)
        })
    }
}

async fn run(client: Client, mut asked: mpsc::Receiver<Ask>, lost: Lost) {
    let Some(first) = asked.recv().await else { return };
    let why = match client.keep_alive(first.id).await {
        Ok(stream) => follow(stream, first, &mut asked).await,
        Err(error) => {
            // Fails if the caller is gone.
            first.answer.send(Err(error.to_string())).ok();
            error.to_string()
        }
    };
    lost.lose(format!("etcd keeps no lease alive: {why}"));
}

/// Forwards requests and responses until the stream ends. Returns the reason.
async fn follow(mut stream: KeepAliveStream, first: Ask, asked: &mut mpsc::Receiver<Ask>) -> String {
    let mut waiting = VecDeque::from([first]);
    loop {
        tokio::select! {
            ask = asked.recv(), if waiting.len() < UNANSWERED => {
                let Some(ask) = ask else { return "it is not needed any more".to_owned() };
                let question = pilotfish_etcd_client::proto::LeaseKeepAliveRequest { id: ask.id };
                waiting.push_back(ask);
                // Never blocks: the channel's capacity is the limit of requests in flight.
                if stream.asks.send(question).await.is_err() {
                    return "the stream has ended".to_owned();
                }
            }
            answer = stream.answers.message() => match answer {
                Ok(Some(answer)) => match waiting.pop_front() {
                    // Fails if the caller is gone.
                    Some(ask) if ask.id == answer.id => drop(ask.answer.send(Ok(answer.ttl > 0))),
                    _ => return "an answer to something that was not asked".to_owned(),
                },
                Ok(None) => return "the stream has ended".to_owned(),
                Err(status) => return reason(&status).to_string(),
            },
        }
    }
}

/// Reason for the loss of a session, once it is lost.
#[derive(Clone, Debug)]
pub(crate) struct Lost(pub(crate) watch::Sender<Option<Arc<str>>>);

impl Lost {
    /// Marks the session as lost; the first reason is kept.
    pub(crate) fn lose(&self, reason: impl Into<Arc<str>>) {
        self.0.send_if_modified(|lost| {
            let is_first = lost.is_none();
            if is_first {
                *lost = Some(reason.into());
            }
            is_first
        });
    }
}
