//! Writing of status, by the leading replica.

use super::elections::elected;
use super::sources::Sources;
use super::subsystem::Subsystem;
use crate::settings::{Settings, WriteStatus};
use pilotfish_admin_state::PrometheusRecorder;
use pilotfish_control_plane::control::Shared;
use pilotfish_control_plane::followers::StatusPublisher;
pub(super) use pilotfish_control_plane::followers::touches_namespaces;
use pilotfish_kube_writer::lease::{LeaseSettings, STATUS_LEASE};
use pilotfish_model::Revision;
use std::sync::Arc;
use tokio::sync::watch;

/// Returns the subsystem that writes status while this replica leads; `None` if no cluster is read, or
/// writing status is disabled.
pub(super) fn subsystem(
    settings: &Settings,
    sources: &Sources,
    shared: &Arc<Shared>,
    recorder: &Arc<PrometheusRecorder>,
    revision: &watch::Sender<Revision>,
) -> Option<Subsystem> {
    let (client, _) = sources.clients().filter(|_| settings.status.write != WriteStatus::Off)?;
    let publisher = StatusPublisher {
        client: client.clone(),
        cluster: settings.registries.settings.cluster.clone(),
        translation: super::translation(settings),
        controllers: settings.status.controllers,
        istio: settings.status.write == WriteStatus::All,
        addresses: settings.status.address_ranges,
        deploys: settings.gateways.is_some(),
        shared: shared.clone(),
        revision: revision.subscribe(),
        observer: recorder.clone(),
    };
    // Each revision has its own writers.
    let lease = settings.sources.revision.name_of(STATUS_LEASE);
    let lease = LeaseSettings::new(settings.sources.root_namespace.as_str(), lease);
    Some(elected("writing status", client, lease, |leadership| publisher.run(leadership)))
}
