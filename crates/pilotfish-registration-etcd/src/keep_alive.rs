//! Keeps leases alive, over a few streams: a follower passes each question on to its leader, one after the other for each stream.

use crate::session::Lost;
use pilotfish_etcd_client::{Client, KeepAliveStream, reason};
use std::collections::VecDeque;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How many streams there are.
const STREAMS: usize = 16;
/// How many questions of a stream may be without an answer. More wait.
const UNANSWERED: usize = 256;
/// How long an answer may take. It needs no majority, and its client has no time to lose.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Keeps leases alive.
#[derive(Debug)]
pub(crate) struct KeepAlives {
    streams: Vec<mpsc::Sender<Ask>>,
    lost: Lost,
    /// Ends with its owner.
    _tasks: JoinSet<()>,
}

#[derive(Debug)]
struct Ask {
    id: i64,
    answer: oneshot::Sender<Result<bool, String>>,
}

impl KeepAlives {
    /// Streams of a client, each begun when it is asked for something. When one ends, the session is lost.
    pub(crate) fn new(client: &Client, lost: Lost) -> Self {
        let mut tasks = JoinSet::new();
        let streams = (0..STREAMS).map(|_| {
            let (asks, asked) = mpsc::channel(UNANSWERED);
            tasks.spawn(run(client.clone(), asked, lost.clone()));
            asks
        });
        Self { streams: streams.collect(), lost, _tasks: tasks }
    }

    /// Begins a lease anew. False when there is no such lease any more.
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
            // Nobody waits any more where this fails.
            first.answer.send(Err(error.to_string())).ok();
            error.to_string()
        }
    };
    lost.lose(format!("etcd keeps no lease alive: {why}"));
}

/// Asks and answers until the stream ends. Returns why it did.
async fn follow(mut stream: KeepAliveStream, first: Ask, asked: &mut mpsc::Receiver<Ask>) -> String {
    let mut waiting = VecDeque::from([first]);
    loop {
        tokio::select! {
            ask = asked.recv(), if waiting.len() < UNANSWERED => {
                let Some(ask) = ask else { return "it is not needed any more".to_owned() };
                let question = pilotfish_etcd_client::proto::LeaseKeepAliveRequest { id: ask.id };
                waiting.push_back(ask);
                // There is a place: the channel has as many as may be unanswered.
                if stream.asks.send(question).await.is_err() {
                    return "the stream has ended".to_owned();
                }
            }
            answer = stream.answers.message() => match answer {
                Ok(Some(answer)) => match waiting.pop_front() {
                    // Nobody waits any more where this fails.
                    Some(ask) if ask.id == answer.id => drop(ask.answer.send(Ok(answer.ttl > 0))),
                    _ => return "an answer to something that was not asked".to_owned(),
                },
                Ok(None) => return "the stream has ended".to_owned(),
                Err(status) => return reason(&status).to_string(),
            },
        }
    }
}
