//! Work that one replica of all does: elections by Lease, and what the leader does in each.

use anyhow::{Context, Result, bail};
use pilotfish_kube::client::Client;
use pilotfish_kube::lease::{Elector, Leadership, LeaseSettings};
use std::future::Future;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

/// The elections that this replica takes part in.
pub(crate) struct Elections {
    tasks: JoinSet<(&'static str, Result<()>)>,
    stop: watch::Sender<bool>,
}

impl Elections {
    /// Takes part in none yet.
    pub(crate) fn new() -> Self {
        Self { tasks: JoinSet::new(), stop: watch::Sender::new(false) }
    }

    /// Takes part in the election for a Lease. `work` waits for every term and works in it; `what` it does is said where it fails.
    /// When this replica stops, it is dropped, and only then the Lease is given back.
    pub(crate) fn stand<W>(
        &mut self,
        what: &'static str,
        client: Client,
        lease: LeaseSettings,
        work: impl FnOnce(Leadership) -> W,
    ) where
        W: Future<Output = Result<()>> + Send + 'static,
    {
        let (elector, leadership) = Elector::new(client, lease);
        let work = work(leadership);
        let stopped = self.stop.subscribe();
        self.tasks.spawn(async move { (what, take_part(elector, work, stopped).await) });
    }

    /// Waits until one of them ends, which none should; for ever where there is none.
    pub(crate) async fn ended(&mut self) -> anyhow::Error {
        match self.tasks.join_next().await {
            None => std::future::pending().await,
            Some(Ok((what, Ok(())))) => anyhow::anyhow!("{what} ended by itself"),
            Some(Ok((what, Err(error)))) => error.context(what),
            Some(Err(error)) => anyhow::anyhow!("the work of a leader ended by itself: {error}"),
        }
    }

    /// Stops the work, and then lets other replicas lead.
    pub(crate) async fn stop(mut self) {
        self.stop.send_replace(true);
        while let Some(end) = self.tasks.join_next().await {
            if let Ok((what, Err(error))) = end {
                tracing::warn!(error = %format!("{error:#}"), "{what}");
            }
        }
    }
}

async fn take_part(
    elector: Elector,
    work: impl Future<Output = Result<()>>,
    mut stopped: watch::Receiver<bool>,
) -> Result<()> {
    let (go, gone) = oneshot::channel::<()>();
    // A sender that is dropped says the same as one that speaks.
    let mut elector = tokio::spawn(elector.run(async { drop(gone.await) }));
    tokio::select! {
        ended = work => return ended,
        ended = &mut elector => bail!("the election ended by itself: {ended:?}"),
        _ = stopped.wait_for(|stop| *stop) => {}
    }
    // Nothing is written any more: the next replica may lead.
    drop(go);
    elector.await.context("giving the Lease back")
}
