//! Thread of the control loop.

use super::subsystem::{StopOrder, Subsystem};
use anyhow::{Result, bail};
use pilotfish_control_plane::control::{Control, ControlMessage};
use tokio::sync::{mpsc, oneshot};

/// Returns the subsystem that runs the control loop on its own thread, so that it never blocks a thread of
/// the streams.
pub(super) fn subsystem(control: Control, messages: mpsc::Receiver<ControlMessage>) -> Subsystem {
    Subsystem::new("the control loop", StopOrder::Abort).task(|_| run(control, messages))
}

/// Runs until the thread ends.
async fn run(control: Control, messages: mpsc::Receiver<ControlMessage>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let (alive, dead) = oneshot::channel::<()>();
    std::thread::Builder::new().name("control".into()).spawn(move || {
        runtime.block_on(control.run(messages));
        drop(alive);
    })?;
    // The sender is dropped when the loop returns or panics.
    let _ = dead.await;
    bail!("ended unexpectedly")
}
