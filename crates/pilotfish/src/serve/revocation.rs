//! Ends the streams of clients whose cluster is no longer read.

use super::sources::Sources;
use super::subsystem::{StopOrder, Subsystem};
use crate::settings::Settings;
use pilotfish_control_plane::resources::{Resources, revoke_orphans};
use pilotfish_xds::Fanout;
use std::sync::Arc;

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
        revoke_orphans(&own, &remote, &fanout).await;
        Ok(())
    }))
}
