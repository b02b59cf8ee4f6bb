//! `pilotfish serve`: bind, report, run, drain.

use crate::control::{Control, Said};
use crate::election::Elections;
use crate::exports::Exporting;
use crate::lanes::Lanes;
use crate::plane::Plane;
use crate::recorder::Counted;
use crate::registration::{self, Writing};
use crate::remote::RemoteRegistries;
use crate::resources::Resources;
use crate::secure::{self, Renewal};
use crate::settings::Settings;
use crate::shared::Shared;
use crate::sources::Sources;
use crate::status::StatusWriting;
use crate::webhooks::Webhooks;
use anyhow::{Context, Result};
use pilotfish_admin::Metrics;
use pilotfish_kube::auto_registration::Registrations;
use pilotfish_model::{ClusterDomain, WorldWriter};
use pilotfish_registry::{Hub, HubSettings};
use pilotfish_translate::Translator;
use pilotfish_xds::server::{Secure, Server, ServerConfig};
use pilotfish_xds::{Fanout, StreamLimits};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

/// The version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Batches that may wait for the control loop before a source has to wait.
const WAITING_BATCHES: usize = 64;

/// A control plane that has its addresses and does not serve yet.
pub struct Bound {
    settings: Settings,
    plane: Arc<Plane>,
    control: Control,
    sources: Sources,
    xds: pilotfish_xds::server::Bound<Resources>,
    renewal: Option<Renewal>,
    admin: pilotfish_admin::Bound,
    metrics: Arc<Metrics>,
    webhooks: Option<Webhooks>,
    status: Option<StatusWriting>,
    exports: Option<Exporting>,
    registrations: Option<Registrations>,
}

impl Bound {
    /// Reads the files for the first time and takes the addresses.
    ///
    /// # Errors
    /// When a path or a mesh file is wrong, or an address is taken.
    pub async fn bind(settings: Settings) -> Result<Self> {
        let admin =
            pilotfish_admin::Bound::bind(settings.admin_address).await.context("hint: --admin-address")?;
        let metrics = Arc::new(Metrics::new(VERSION)?);
        let translator = Arc::new(Translator::with_domain(ClusterDomain::new(&settings.registry.domain)));
        let resources = Arc::new(Resources::new(translator.clone(), settings.trust_nodes));
        let limits = StreamLimits { subscriptions: settings.max_subscriptions, ..StreamLimits::default() };
        let fanout = Fanout::new(resources.clone(), Arc::new(Counted(metrics.clone())), limits);
        let shared = Arc::new(Shared::default());
        let (mut hub, feed) = hub(&settings)?;
        let sources = Sources::open(&settings, &mut hub, &feed, &metrics).await?;
        let control = Control {
            hub,
            lanes: Lanes::new(settings.windows),
            writer: WorldWriter::new(),
            translator: translator.clone(),
            resources: resources.clone(),
            fanout: fanout.clone(),
            shared: shared.clone(),
            metrics: metrics.clone(),
            remote: RemoteRegistries::new(feed, settings.registry.clone(), &settings.registries),
        };
        let status = StatusWriting::open(&settings).await?;
        let exports = Exporting::open(&settings, &sources);
        let registrations = sources.client().and_then(|client| {
            let observer = Arc::new(Counted(metrics.clone()));
            let (gate, registrations) = registration::gate(&settings, client, shared.clone(), observer)?;
            resources.set_gate(gate);
            Some(registrations)
        });
        let webhooks = match settings.webhooks.as_ref().zip(settings.kubernetes.as_ref()) {
            Some((webhooks, cluster)) => Some(Webhooks::bind(webhooks, cluster, &metrics).await?),
            None => None,
        };
        let secure = secure::open(&settings, &sources, webhooks.as_ref(), &shared, &metrics)?;
        let (secure, renewal) = secure.unzip();
        let xds = server(&settings, fanout.clone(), secure)?;
        let view = webhooks.as_ref().map(Webhooks::view);
        let plane = Arc::new(Plane { shared, resources, fanout, translator, webhooks: view });
        Ok(Self {
            settings,
            plane,
            control,
            sources,
            xds,
            renewal,
            admin,
            metrics,
            webhooks,
            status,
            exports,
            registrations,
        })
    }

    /// Where proxies connect.
    #[must_use]
    pub fn xds_address(&self) -> SocketAddr {
        self.xds.local_addr()
    }

    /// Where they connect over TLS, where that is wanted.
    #[must_use]
    pub fn secure_xds_address(&self) -> Option<SocketAddr> {
        self.xds.secure_addr()
    }

    /// Where the admin API is.
    #[must_use]
    pub fn admin_address(&self) -> SocketAddr {
        self.admin.address()
    }

    /// Where API servers ask the webhooks, where there are any.
    #[must_use]
    pub fn webhook_address(&self) -> Option<SocketAddr> {
        self.webhooks.as_ref().map(Webhooks::address)
    }

    /// What the admin API reads, for embedding.
    #[must_use]
    pub fn plane(&self) -> Arc<Plane> {
        self.plane.clone()
    }

    /// Serves until `stop` is done, then drains: not ready, no new connections, streams ended, at the latest after the
    /// deadline.
    ///
    /// # Errors
    /// When a part of the process ends although nobody stopped it: serving on with frozen data would be worse.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) -> Result<()> {
        let Self {
            settings,
            plane,
            control,
            sources,
            xds,
            renewal,
            admin,
            metrics,
            webhooks,
            status,
            exports,
            registrations,
        } = self;
        let (stopping, stopped) = watch::channel(false);
        let (say, said) = mpsc::channel(WAITING_BATCHES);
        let mut sources = sources.start(&say)?;
        drop(say);
        let mut control = control_thread(control, said)?;
        let mut elections = Elections::new();
        if let Some(status) = status {
            status.stand(&mut elections, plane.shared.clone(), metrics.clone());
        }
        if let Some(exports) = exports {
            exports.stand(&mut elections, plane.shared.clone());
        }
        let router = pilotfish_admin::router(plane.clone(), metrics, VERSION);
        let mut admin = tokio::spawn(admin.run(router, told_to_stop(stopped.clone())));
        let mut webhooks = webhooks.map(|webhooks| webhooks.start(&stopped)).unwrap_or_default();
        let mut xds = tokio::spawn(xds.run(told_to_stop(stopped)));
        let mut registrations = Writing::start(registrations);
        tokio::select! {
            () = stop => {}
            error = sources.ended() => return Err(error),
            error = elections.ended() => return Err(error),
            error = registrations.ended() => return Err(error),
            () = renewed(renewal) => anyhow::bail!("nobody looks at TLS files any longer"),
            _ = &mut control => anyhow::bail!("the control loop ended by itself"),
            end = &mut admin => anyhow::bail!("the admin server ended by itself: {end:?}"),
            end = &mut xds => anyhow::bail!("the xDS server ended by itself: {end:?}"),
            Some(end) = webhooks.join_next() => anyhow::bail!("the webhooks ended by themselves: {end:?}"),
        }
        tracing::info!(deadline = ?settings.drain_deadline, "stopping: streams are ended, proxies keep what they have");
        plane.shared.drain();
        stopping.send_replace(true);
        // The server cuts streams at the deadline itself; this one is for everything else that might hang.
        let all = async {
            let _ = tokio::join!(xds, admin, webhooks.join_all(), elections.stop());
            // Only now all streams have ended: what that means for entries is written before the process goes.
            registrations.finish().await;
        };
        if tokio::time::timeout(settings.drain_deadline + std::time::Duration::from_secs(1), all)
            .await
            .is_err()
        {
            tracing::warn!("not everything ended before the deadline");
        }
        drop(sources);
        Ok(())
    }
}

/// Keeps TLS up to date, where there is some; does not end.
async fn renewed(renewal: Option<Renewal>) {
    match renewal {
        Some(renewal) => renewal.run().await,
        None => std::future::pending().await,
    }
}

async fn told_to_stop(mut stopped: watch::Receiver<bool>) {
    // An error says that the sender is gone, which means the same.
    let _ = stopped.wait_for(|stop| *stop).await;
}

/// The xDS server, with its addresses.
fn server(
    settings: &Settings,
    fanout: Arc<Fanout<Resources>>,
    secure: Option<Secure>,
) -> Result<pilotfish_xds::server::Bound<Resources>> {
    let config = ServerConfig {
        max_message: settings.max_request_bytes,
        max_connections: settings.max_streams,
        drain_timeout: settings.drain_deadline,
        ..ServerConfig::default()
    };
    let server = Server::new(fanout, config).with_secure(secure);
    server.bind(settings.xds_address).context("hint: --xds-address, --secure-xds-address")
}

/// The registries that were asked for, fed by one feed.
fn hub(settings: &Settings) -> Result<(Hub, Arc<str>)> {
    let cluster = settings.registry.cluster.clone();
    let feed: Arc<str> = cluster.clone().into();
    let mut hub = Hub::new(HubSettings { config_feed: feed.clone(), primary: cluster });
    for registry in pilotfish_registry::select(&settings.registries)? {
        let reads = registry.reads_objects.then_some(&*feed);
        hub.add_registry((registry.new)(settings.registry.clone()), reads);
    }
    Ok((hub, feed))
}

/// Runs the control loop on a thread of its own; the task ends when the thread does.
fn control_thread(control: Control, said: mpsc::Receiver<Said>) -> Result<tokio::task::JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let (ended, end) = tokio::sync::oneshot::channel::<()>();
    std::thread::Builder::new().name("control".into()).spawn(move || {
        runtime.block_on(control.run(said));
        drop(ended);
    })?;
    Ok(tokio::spawn(async {
        // The sender is dropped when the loop returns or panics; either way it is over.
        let _ = end.await;
    }))
}
