//! Resources of configuration for other control planes, made after the first request.

use crate::control::Shared;
use crate::resources::{Configuration, Resources};
use anyhow::{Context, Result};
use pilotfish_mcp::Catalogue;
use pilotfish_xds::Fanout;
use std::sync::Arc;

/// Makes the resources of configuration of each world, once they are requested. Does not return otherwise.
///
/// # Errors
/// When making them panics.
pub async fn publish_configuration(
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
