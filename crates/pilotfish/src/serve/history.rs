//! Log of changes and their outcomes.

use super::subsystem::{StopOrder, Subsystem};
use pilotfish_admin_state::PrometheusRecorder;
use pilotfish_control_plane::control::Shared;
use pilotfish_control_plane::followers::ChangeWatcher;
use pilotfish_control_plane::resources::Resources;
use pilotfish_otlp::Traces;
use pilotfish_xds::Fanout;
use std::sync::Arc;

/// Returns the subsystem that tracks changes until all concerned clients have acknowledged them, and sends
/// traces if these are enabled.
pub(super) fn subsystem(
    shared: &Arc<Shared>,
    fanout: &Arc<Fanout<Resources>>,
    recorder: &Arc<PrometheusRecorder>,
    traces: Option<Traces>,
) -> Subsystem {
    let watcher = ChangeWatcher::new(shared.clone(), fanout.clone(), recorder.clone(), traces);
    Subsystem::new("the log of changes", StopOrder::Abort).task(|_| async {
        watcher.run().await;
        Ok(())
    })
}
