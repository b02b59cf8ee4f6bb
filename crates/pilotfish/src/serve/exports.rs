//! Creation of ServiceExports, by the leading replica.

use super::elections::elected;
use super::sources::Sources;
use super::subsystem::Subsystem;
use crate::settings::Settings;
use pilotfish_control_plane::control::Shared;
use pilotfish_control_plane::followers::ServiceExporter;
use pilotfish_kube_writer::lease::LeaseSettings;
use std::sync::Arc;

/// Lease of the replica that exports Services.
const LEASE: &str = "pilotfish-export-leader";

/// Returns the subsystem that exports Services while this replica leads; `None` if that is disabled.
pub(super) fn subsystem(settings: &Settings, sources: &Sources, shared: &Arc<Shared>) -> Option<Subsystem> {
    let (client, remote) = sources.clients().filter(|_| settings.export_services)?;
    let exporter = ServiceExporter {
        client: client.clone(),
        cluster: settings.registries.settings.cluster.clone(),
        remote,
        domain: super::domain(settings),
        shared: shared.clone(),
    };
    let lease = settings.sources.revision.name_of(LEASE);
    let lease = LeaseSettings::new(settings.sources.root_namespace.as_str(), lease);
    Some(elected("exporting Services", client, lease, |leadership| async {
        exporter.run(leadership).await;
        Ok(())
    }))
}
