//! Batching of writes and renewals into transactions: several queues, each with one transaction at a time.
//! Each instance has a fixed queue, so its operations happen in order.

use crate::shared::Shared;
use crate::work::{Attempt, work};
use pilotfish_registration::InstanceKey;
use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Number of queues per store.
const QUEUES: usize = 8;
/// Capacity of a queue; callers wait above it.
const WAITING: usize = 1_024;
/// Maximum number of instances in a transaction. Each is a nested transaction with two comparisons; etcd
/// allows 128 operations.
const BATCH: usize = 64;
/// Approximate maximum size of a transaction in bytes. etcd allows 1.5 MiB.
const BATCH_BYTES: usize = 512 << 10;

#[derive(Debug)]
pub(crate) struct WriteQueues {
    queues: Vec<mpsc::Sender<Attempt>>,
    /// Tasks of the queues; aborted on drop.
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

    /// Queues an operation on the queue of its instance.
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

/// Takes the operations of one transaction: limited in bytes, and no instance twice.
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
