//! Work of a single replica, which is elected by a Lease.

use super::subsystem::{StopOrder, StopSignal, Subsystem};
use anyhow::{Context, Result, bail};
use pilotfish_kube::client::Client;
use pilotfish_kube_writer::lease::{Elector, Leadership, LeaseSettings};
use std::future::Future;
use tokio::sync::oneshot;

/// Returns the subsystem that takes part in the election for a Lease. `work` waits for each term and works in
/// it; `name` describes the work, such as "writing status". When this replica stops, the work is dropped
/// before the Lease is released.
pub(super) fn elected<W>(
    name: &'static str,
    client: Client,
    lease: LeaseSettings,
    work: impl FnOnce(Leadership) -> W + Send + 'static,
) -> Subsystem
where
    W: Future<Output = Result<()>> + Send + 'static,
{
    Subsystem::new(name, StopOrder::First).task(|stop| {
        let (elector, leadership) = Elector::new(client, lease);
        take_part(elector, work(leadership), stop)
    })
}

async fn take_part(elector: Elector, work: impl Future<Output = Result<()>>, stop: StopSignal) -> Result<()> {
    let (release, released) = oneshot::channel::<()>();
    // A dropped sender counts as a release, too.
    let mut elector = tokio::spawn(elector.run(async { drop(released.await) }));
    tokio::select! {
        ended = work => return ended,
        ended = &mut elector => bail!("the election ended unexpectedly: {ended:?}"),
        () = stop.requested() => {}
    }
    // The work has stopped, so the next replica may lead.
    drop(release);
    elector.await.context("releasing the Lease")
}
