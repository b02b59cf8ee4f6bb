//! `pilotfish sync polaris`: keeps a Polaris server equal to a cluster.
//!
//! ```text
//!  API server ─ Feed ─▶ Cluster ─ Desired ─▶ Runner ─ passes ─▶ Session ─▶ Polaris
//!                                              ▲ leadership, schedule        │
//!                                              └── problems ─▶ Events ◀──────┘
//! ```

mod events;
mod feed;
mod pages;
mod report;
mod runner;
mod settings;

pub use settings::SyncPolaris;

use crate::process::events::Events;
use crate::process::feed::Feed;
use crate::process::pages::State;
use crate::process::runner::Runner;
use crate::process::settings::Checked;
use crate::{Client, Session, SyncMetrics};
use anyhow::{Context, Result, bail};
use pilotfish_kube::client::{ClientSettings as KubeSettings, connect};
use pilotfish_kube_writer::lease::{Elector, Leadership, LeaseSettings};
use std::future::Future;
use std::io::Write;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Runs until `stop`, or with `--once` and `--dry-run` for one pass. Returns `Ok(false)` if that left
/// something to do.
///
/// # Errors
/// When the settings are wrong, the cluster cannot be reached, or a task ends before the stop.
pub async fn run(args: SyncPolaris, stop: impl Future<Output = ()> + Send) -> Result<bool> {
    let Checked {
        cluster,
        client,
        lease,
        admin,
        schedule,
        session,
        target,
        once,
        dry_run,
        output,
        kubeconfig,
    } = args.check()?;
    let kube = connect(&KubeSettings { kubeconfig }).await?;
    let metrics = Arc::new(SyncMetrics::new().context("metrics")?);
    let client = Client::new(client, metrics.clone());
    let feed = Feed::start(kube.clone(), Arc::new(target.clone()), cluster);
    let new_session = {
        let metrics = metrics.clone();
        move || Session::new(client.clone(), target.clone(), session, metrics.clone())
    };
    if once || dry_run {
        let result = tokio::select! {
            result = runner::once(feed, new_session(), dry_run) => result?,
            () = stop => bail!("stopped before the pass was done"),
        };
        let mut out = std::io::stdout().lock();
        report::print(&mut out, &result, output)?;
        out.flush()?;
        return Ok(result.is_equal());
    }
    let state = Arc::new(State::new(metrics));
    let admin = pages::bind(admin).await?;
    tracing::info!(admin = %admin.address(), "listening");
    let (stopped, pages_stop) = oneshot::channel::<()>();
    // A dropped sender counts as a stop, too.
    let pages = admin.run(pages::router(state.clone()), async { drop(pages_stop.await) });
    let pages = tokio::spawn(pages);
    let events = Events::start(kube.clone());
    let result = elected(kube, lease, |leadership| {
        Runner::new(feed, Box::new(new_session), schedule, state, events).run(leadership, stop)
    });
    let result = Box::pin(result).await;
    drop(stopped);
    pages.await.context("the pages")?;
    result.map(|()| true)
}

/// Takes part in the election, if it is enabled, while `work` runs. The Lease is released after the work has
/// ended.
async fn elected<W: Future<Output = Result<()>>>(
    kube: pilotfish_kube::client::Client,
    lease: Option<LeaseSettings>,
    work: impl FnOnce(Leadership) -> W,
) -> Result<()> {
    let Some(lease) = lease else { return work(Leadership::alone()).await };
    let (elector, leadership) = Elector::new(kube, lease);
    let (release, released) = oneshot::channel::<()>();
    let mut elector = tokio::spawn(elector.run(async { drop(released.await) }));
    let result = tokio::select! {
        ended = work(leadership) => ended,
        ended = &mut elector => bail!("the election ended unexpectedly: {ended:?}"),
    };
    // The work has stopped, so the next replica may lead.
    drop(release);
    elector.await.context("releasing the Lease")?;
    result
}
