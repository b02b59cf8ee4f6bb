//! DNS lookups of gateways between networks.

use super::subsystem::{StopOrder, Subsystem};
use pilotfish_control_plane::control::{ControlMessage, resolve_gateways};
use std::sync::Arc;
use tokio::sync::mpsc;

/// Returns the subsystem that looks up names for the control loop and sends it the results.
pub(super) fn subsystem(
    names: mpsc::UnboundedReceiver<Arc<str>>,
    answers: mpsc::Sender<ControlMessage>,
) -> Subsystem {
    Subsystem::new("the resolver of gateways", StopOrder::Abort).task(|_| async {
        resolve_gateways(names, answers).await;
        Ok(())
    })
}
