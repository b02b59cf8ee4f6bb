//! The control loop's thread.

use super::subsystem::{StopOrder, Subsystem};
use crate::control::{Control, ControlMessage};
use anyhow::{Result, bail};
use tokio::sync::{mpsc, oneshot};

/// Runs the control loop on a thread of its own, so that it never takes one from the streams.
pub(super) fn subsystem(control: Control, messages: mpsc::Receiver<ControlMessage>) -> Subsystem {
    Subsystem::new("the control loop", StopOrder::Abort).task(|_| run(control, messages))
}

/// Ends when the thread does.
async fn run(control: Control, messages: mpsc::Receiver<ControlMessage>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let (alive, dead) = oneshot::channel::<()>();
    std::thread::Builder::new().name("control".into()).spawn(move || {
        runtime.block_on(control.run(messages));
        drop(alive);
    })?;
    // The sender is dropped when the loop returns or panics; either way it is over.
    let _ = dead.await;
    bail!("ended by itself")
}
