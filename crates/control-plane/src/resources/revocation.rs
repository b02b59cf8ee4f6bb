//! Ends the streams of clients whose cluster is no longer read: its API server cannot be asked about them
//! again.

use super::Resources;
use pilotfish_kube::remote::RemoteClients;
use pilotfish_model::ClusterId;
use pilotfish_xds::Fanout;
use std::time::Duration;
use tokio::time::sleep;

/// Pause before a second revocation, for clients whose token was accepted just before the removal and whose
/// stream opened after it. No authentication takes longer.
const LATE: Duration = Duration::from_secs(15);

/// Ends such streams after each removal of a cluster, until none can be removed any more.
pub async fn revoke_orphans(own: &ClusterId, remote: &RemoteClients, fanout: &Fanout<Resources>) {
    let mut removals = remote.removals();
    // The channel closes when no remote cluster can be removed any more.
    while removals.changed().await.is_ok() {
        end_orphans(own, remote, fanout);
        sleep(LATE).await;
        end_orphans(own, remote, fanout);
    }
}

/// Ends the streams of clients whose cluster is no longer read.
fn end_orphans(own: &ClusterId, remote: &RemoteClients, fanout: &Fanout<Resources>) {
    let ended = fanout.revoke(|peer| {
        peer.cluster.as_deref().is_some_and(|cluster| cluster != own.as_str() && !remote.reads(cluster))
    });
    if ended > 0 {
        tracing::info!(streams = ended, "ended streams of clients whose cluster is no longer read");
    }
}
