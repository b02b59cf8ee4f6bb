//! Reviews of the rights of service accounts to read Secrets: from clients that subscribe to secrets to API
//! servers, and from there to the control loop.

use super::sources::Sources;
use super::subsystem::{StopOrder, Subsystem};
use crate::settings::Settings;
use anyhow::Result;
use pilotfish_control_plane::control::ControlMessage;
use pilotfish_control_plane::resources::SecretRights;
use pilotfish_kube::access_review::AccessReviews;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Capacity of the channel of verdicts.
const WAITING: usize = 64;

/// Returns the rules and the task for reviews; `None` if no cluster is read.
pub(super) fn open(settings: &Settings, sources: &Sources) -> Option<(SecretRights, AccessReviews)> {
    let (client, remote) = sources.clients()?;
    let readers = Arc::default();
    let rights = SecretRights::new(settings.registries.settings.cluster.as_str(), Arc::clone(&readers));
    let reviews = AccessReviews::new(client, remote, readers);
    Some((rights, reviews))
}

/// Returns the subsystem that reviews permissions and sends verdicts to the control loop.
pub(super) fn subsystem(reviews: AccessReviews, messages: mpsc::Sender<ControlMessage>) -> Subsystem {
    let (sender, mut verdicts) = mpsc::channel(WAITING);
    Subsystem::new("reviews of access to Secrets", StopOrder::Abort)
        .task(|_| async move {
            reviews.run(sender).await;
            Ok(())
        })
        .task(|_| async move {
            while let Some(verdict) = verdicts.recv().await {
                if messages.send(ControlMessage::SecretAccess(verdict)).await.is_err() {
                    break;
                }
            }
            Result::<()>::Ok(())
        })
}
