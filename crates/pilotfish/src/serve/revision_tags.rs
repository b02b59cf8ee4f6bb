//! Tags of the revision, from the cluster to the users of the revision.

use super::sources::Sources;
use super::subsystem::{StopOrder, Subsystem};
use pilotfish_control_plane::control::ControlMessage;
use pilotfish_kube::RevisionTags;
use pilotfish_model::Revision;
use tokio::sync::{mpsc, watch};

/// Returns the subsystem that watches the tags and sends them to the control loop; `None` if no cluster is
/// read.
pub(super) fn subsystem(
    sources: &Sources,
    revision: watch::Sender<Revision>,
    messages: mpsc::Sender<ControlMessage>,
) -> Option<Subsystem> {
    let (client, _) = sources.clients()?;
    let tags = RevisionTags::new(client, &revision.borrow());
    let mut followed = revision.subscribe();
    let subsystem = Subsystem::new("tags of the revision", StopOrder::Abort)
        .task(|_| async move {
            tags.run(revision).await;
            Ok(())
        })
        .task(|_| async move {
            while followed.changed().await.is_ok() {
                let revision = followed.borrow_and_update().clone();
                if messages.send(ControlMessage::Revision(revision)).await.is_err() {
                    break;
                }
            }
            Ok(())
        });
    Some(subsystem)
}
