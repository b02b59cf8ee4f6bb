//! Ends the streams of clients whose cluster is no longer read: its API server cannot be asked about them
//! again.

use super::sources::Sources;
use super::subsystem::{StopOrder, Subsystem};
use crate::settings::Settings;
use pilotfish_control_plane::resources::Resources;
use pilotfish_kube::remote::RemoteClients;
use pilotfish_model::ClusterId;
use pilotfish_xds::Fanout;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// Pause before a second revocation, for clients whose token was accepted just before the removal and whose
/// stream opened after it. No authentication takes longer.
const LATE: Duration = Duration::from_secs(15);

/// Returns the subsystem; `None` if no remote cluster can be read.
pub(super) fn subsystem(
    settings: &Settings,
    sources: &Sources,
    fanout: &Arc<Fanout<Resources>>,
) -> Option<Subsystem> {
    let (_, remote) = sources.clients()?;
    let (own, fanout) = (settings.registries.settings.cluster.clone(), fanout.clone());
    let subsystem = Subsystem::new("identities of remote clusters", StopOrder::Abort);
    Some(subsystem.task(|_| async move {
        run(&own, &remote, &fanout).await;
        Ok(())
    }))
}

async fn run(own: &ClusterId, remote: &RemoteClients, fanout: &Fanout<Resources>) {
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
