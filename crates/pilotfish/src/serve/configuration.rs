//! Resources of configuration for other control planes, made after the first request.

use super::subsystem::{StopOrder, Subsystem};
use crate::control::shared::Shared;
use crate::resources::Resources;
use anyhow::{Context, Result};
use pilotfish_mcp::Catalogue;
use pilotfish_xds::Fanout;
use std::sync::Arc;

/// Returns the subsystem; `None` if configuration is not served.
pub(super) fn subsystem(
    resources: &Arc<Resources>,
    fanout: &Arc<Fanout<Resources>>,
    shared: &Arc<Shared>,
) -> Option<Subsystem> {
    resources.configuration().is_served().then(|| {
        let (resources, fanout, shared) = (resources.clone(), fanout.clone(), shared.clone());
        Subsystem::new("configuration for other control planes", StopOrder::Abort)
            .task(|_| run(resources, fanout, shared))
    })
}

async fn run(resources: Arc<Resources>, fanout: Arc<Fanout<Resources>>, shared: Arc<Shared>) -> Result<()> {
    resources.configuration().wanted().await;
    tracing::info!("configuration is served to another control plane");
    let mut follower = shared.follow();
    let mut catalogue = Catalogue::default();
    loop {
        let (world, changes) = follower.next().await;
        // The first update of thousands of services takes some hundred milliseconds.
        let made = tokio::task::spawn_blocking(move || {
            let differences = catalogue.update(&world, &changes);
            (catalogue, differences)
        });
        let (again, differences) = made.await.context("making resources of configuration")?;
        catalogue = again;
        resources.configuration().apply(differences);
        fanout.publish_collections();
    }
}
