//! Background work of a session: renewal of leases after a lost session, and revocation of unused leases.

use crate::session::Session;
use crate::shared::Shared;
use crate::work::{Attempt, work};
use futures::StreamExt as _;
use futures::future::join_all;
use pilotfish_etcd_client::CallError;
use pilotfish_registration::{InstanceKey, RenewError};
use std::collections::HashSet;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// Number of leases in one group.
const TOGETHER: usize = 64;
/// Maximum number of concurrent groups.
const GROUPS: usize = 4;

/// Renews leases, and sends the instances that were tried. Leases that have expired are left as they are.
pub(crate) async fn begin_anew(
    shared: Arc<Shared>,
    session: Arc<Session>,
    keys: HashSet<InstanceKey>,
    tried: mpsc::Sender<Vec<InstanceKey>>,
) {
    let keys: Vec<InstanceKey> = keys.into_iter().collect();
    let groups = futures::stream::iter(keys.chunks(TOGETHER).map(<[InstanceKey]>::to_vec));
    let (shared, session, tried) = (&shared, &session, &tried);
    groups
        .for_each_concurrent(GROUPS, |group| async move {
            begin_group(shared, session, &group).await;
            // Fails if the session is lost; the next one renews all that is left.
            tried.send(group).await.ok();
        })
        .await;
}

async fn begin_group(shared: &Arc<Shared>, session: &Session, group: &[InstanceKey]) {
    let (mut attempts, mut answers) = (Vec::with_capacity(group.len()), Vec::with_capacity(group.len()));
    for key in group {
        let (answer, answered) = oneshot::channel();
        let mut attempt = Attempt::renew(key.clone(), answer);
        attempt.belief = shared.view.lock().belief(key);
        attempts.push(attempt);
        answers.push(answered);
    }
    Box::pin(work(shared, session, attempts)).await;
    for (key, answer) in group.iter().zip(join_all(answers).await) {
        if let Ok(Err(RenewError::Unavailable(why))) = answer {
            tracing::debug!(instance = %key, %why, "cannot renew a lease after the session was lost");
            shared.miss(key);
        }
    }
}

/// Revokes unused leases before they expire. A lease that cannot be revoked expires.
pub(crate) async fn revoke(shared: Arc<Shared>, mut leases: mpsc::Receiver<i64>) {
    let mut ids = Vec::new();
    while leases.recv_many(&mut ids, TOGETHER).await > 0 {
        let Ok(session) = shared.session() else {
            ids.clear();
            continue;
        };
        let revoked = ids.drain(..).map(|id| {
            let session = &session;
            async move {
                match session.client.revoke(id).await {
                    Ok(()) | Err(CallError::LeaseNotFound) => {}
                    Err(error) => {
                        let why = session.failed(&error);
                        tracing::debug!(id, %why, "cannot revoke an unused lease; it expires later");
                    }
                }
            }
        });
        join_all(revoked).await;
    }
}
