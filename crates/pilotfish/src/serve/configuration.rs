//! Resources of configuration for other control planes, made after the first request.

use super::subsystem::{StopOrder, Subsystem};
use anyhow::{Context, Result};
use pilotfish_control_plane::control::Shared;
use pilotfish_control_plane::resources::{Configuration, Resources};
use pilotfish_mcp::Catalogue;
use pilotfish_xds::Fanout;
use std::sync::Arc;

/// Returns the subsystem; `None` if configuration is not served.
pub(super) fn subsystem(
    configuration: &Arc<Configuration>,
    fanout: &Arc<Fanout<Resources>>,
    shared: &Arc<Shared>,
) -> Option<Subsystem> {
    configuration.is_served().then(|| {
        let (configuration, fanout, shared) = (configuration.clone(), fanout.clone(), shared.clone());
        Subsystem::new("configuration for other control planes", StopOrder::Abort)
            .task(|_| run(configuration, fanout, shared))
    })
}

async fn run(
    configuration: Arc<Configuration>,
    fanout: Arc<Fanout<Resources>>,
    shared: Arc<Shared>,
) -> Result<()> {
    configuration.wanted().await;
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
        configuration.apply(differences);
        fanout.publish_collections();
    }
}
