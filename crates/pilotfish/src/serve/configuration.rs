//! Configuration for other control planes.

use super::subsystem::{StopOrder, Subsystem};
use pilotfish_control_plane::control::Shared;
use pilotfish_control_plane::followers::publish_configuration;
use pilotfish_control_plane::resources::{Configuration, Resources};
use pilotfish_xds::Fanout;
use std::sync::Arc;

/// Returns the subsystem that publishes configuration; `None` if it is not served.
pub(super) fn subsystem(
    configuration: &Arc<Configuration>,
    fanout: &Arc<Fanout<Resources>>,
    shared: &Arc<Shared>,
) -> Option<Subsystem> {
    configuration.is_served().then(|| {
        let (configuration, fanout, shared) = (configuration.clone(), fanout.clone(), shared.clone());
        Subsystem::new("configuration for other control planes", StopOrder::Abort)
            .task(|_| publish_configuration(configuration, fanout, shared))
    })
}
