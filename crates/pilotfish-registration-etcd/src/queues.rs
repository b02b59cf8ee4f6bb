//! Puts what is to be done into few transactions: a few queues side by side, each with one transaction at a time. An instance is
//! always on the same queue, so what is done with it happens in order.

use crate::shared::Shared;
use crate::work::{Attempt, work};
use pilotfish_registration::InstanceKey;
use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// How many queues there are.
const QUEUES: usize = 8;
/// How many things wait on a queue. Who has more to do waits.
const WAITING: usize = 1_024;
/// How many instances a transaction has. Each is a transaction within it with two comparisons; etcd takes 128 of all.
const BATCH: usize = 64;
/// How many bytes it has, about. etcd takes 1.5 MiB.
const BATCH_BYTES: usize = 512 << 10;

/// The queues.
#[derive(Debug)]
pub(crate) struct WriteQueues {
    queues: Vec<mpsc::Sender<Attempt>>,
    /// Ends with its owner.
    _tasks: JoinSet<()>,
}

impl WriteQueues {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        let mut tasks = JoinSet::new();
        let queues = (0..QUEUES).map(|_| {
            let (attempts, waiting) = mpsc::channel(WAITING);
            tasks.spawn(run(Arc::clone(shared), waiting));
            attempts
        });
        Self { queues: queues.collect(), _tasks: tasks }
    }

    /// Puts something on the queue of its instance.
    pub(crate) async fn put(&self, attempt: Attempt) {
        let Some(queue) = self.queues.get(queue_of(&attempt.key)) else {
            return attempt.unavailable("there is no queue");
        };
        if let Err(mpsc::error::SendError(attempt)) = queue.send(attempt).await {
            attempt.unavailable("the store was closed");
        }
    }
}

fn queue_of(key: &InstanceKey) -> usize {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    usize::try_from(hasher.finish() % QUEUES as u64).unwrap_or_default()
}

async fn run(shared: Arc<Shared>, mut waiting: mpsc::Receiver<Attempt>) {
    let mut taken = VecDeque::new();
    loop {
        if taken.is_empty() {
            let mut more = Vec::new();
            if waiting.recv_many(&mut more, BATCH).await == 0 {
                return;
            }
            taken.extend(more);
        }
        while taken.len() < BATCH
            && let Ok(attempt) = waiting.try_recv()
        {
            taken.push_back(attempt);
        }
        let mut batch = batch(&mut taken);
        match shared.session() {
            Ok(session) => {
                {
                    let view = shared.view.lock();
                    batch.iter_mut().for_each(|attempt| attempt.belief = view.belief(&attempt.key));
                }
                Box::pin(work(&shared, &session, batch)).await;
            }
            Err(why) => batch.into_iter().for_each(|attempt| attempt.unavailable(&why)),
        }
    }
}

/// Takes out what goes into one transaction: not too many bytes, and no instance twice.
fn batch(taken: &mut VecDeque<Attempt>) -> Vec<Attempt> {
    let (mut batch, mut keys, mut bytes) = (Vec::new(), HashSet::new(), 0);
    while let Some(attempt) = taken.pop_front() {
        bytes += attempt.bytes();
        let is_too_much = !batch.is_empty() && (batch.len() >= BATCH || bytes > BATCH_BYTES);
        if is_too_much || !keys.insert(attempt.key.clone()) {
            taken.push_front(attempt);
            break;
        }
        batch.push(attempt);
    }
    batch
}
