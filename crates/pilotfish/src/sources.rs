//! The sources that were asked for: folders of files, a live cluster, or both.
//!
//! Where two have an object of the same kind, namespace and name, the one that was named more explicitly counts: files
//! before the cluster, the cluster before defaults.

use crate::control::Said;
use crate::recorder::Counted;
use crate::remote::{REMOTE_SECRETS, cluster_source};
use crate::settings::Settings;
use anyhow::{Context, Result, bail};
use pilotfish_admin::Metrics;
use pilotfish_config::file::{FileSource, FileSourceSettings, RunningFileSource};
use pilotfish_config::mesh::MeshConfig;
use pilotfish_config::{MeshFile, SourceBatch, SourceEvent};
use pilotfish_kube::remote::{RemoteClients, RemoteEvent, RemoteSettings, Remotes};
use pilotfish_kube::{KubeSource, KubeSourceSettings, client};
use pilotfish_model::{Object, ObjectMeta};
use pilotfish_registry::Hub;
use std::future::Future;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// The name of the file source.
const FILES: &str = "files";
/// The name of the source of what holds when nobody says otherwise.
const DEFAULTS: &str = "defaults";

/// Batches of one source that may wait.
const WAITING: usize = 64;

/// Sources that are ready to be started.
pub struct Sources {
    feed: Arc<str>,
    files: Option<FileSource>,
    cluster: Option<(client::Client, RemoteSettings)>,
    defaults: Option<Object>,
}

/// Sources that run; they stop when this is dropped.
pub struct Running {
    tasks: JoinSet<Result<()>>,
    _files: Option<RunningFileSource>,
}

impl Sources {
    /// Opens what was asked for, and tells the hub of it.
    ///
    /// # Errors
    /// When files cannot be read or there is no such cluster.
    pub async fn open(
        settings: &Settings,
        hub: &mut Hub,
        feed: &Arc<str>,
        metrics: &Arc<Metrics>,
    ) -> Result<Self> {
        let mesh_files = settings.mesh_config.is_some() || settings.mesh_networks.is_some();
        let files = if !settings.paths.is_empty() || mesh_files {
            hub.add_source(feed, FILES);
            Some(FileSource::open(file_settings(settings))?)
        } else {
            None
        };
        let cluster = match &settings.kubernetes {
            Some(wanted) => {
                let client = client::connect(wanted).await.context("--kubernetes")?;
                let cluster = settings.registry.cluster.to_string();
                hub.add_source(feed, &cluster_source(&cluster));
                hub.add_source(feed, REMOTE_SECRETS);
                Some((client, kube_settings(settings, &cluster, metrics)))
            }
            None => None,
        };
        let defaults = default_mesh(settings);
        if defaults.is_some() {
            hub.add_source(feed, DEFAULTS);
        }
        Ok(Self { feed: feed.clone(), files, cluster, defaults })
    }

    /// The client of the live cluster, where one is read.
    #[must_use]
    pub fn client(&self) -> Option<client::Client> {
        self.cluster.as_ref().map(|(client, _)| client.clone())
    }

    /// The clients of remote clusters, where some may be read.
    #[must_use]
    pub fn remote_clients(&self) -> Option<RemoteClients> {
        self.cluster.as_ref().map(|(_, settings)| settings.clients.clone())
    }

    /// Starts them; what they say goes to `say`.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start(self, say: &mpsc::Sender<Said>) -> Result<Running> {
        let mut tasks = JoinSet::new();
        let feed = self.feed;
        let files = match self.files {
            Some(files) => {
                let (batches, told) = mpsc::channel(WAITING);
                tasks.spawn(forward(feed.clone(), FILES.into(), told, say.clone()));
                Some(files.spawn(batches)?)
            }
            None => None,
        };
        if let Some((client, settings)) = self.cluster {
            let (batches, told) = mpsc::channel(WAITING);
            let source = cluster_source(&settings.source.cluster);
            tasks.spawn(forward(feed.clone(), source.into(), told, say.clone()));
            tasks.spawn(live(KubeSource::new(client.clone(), settings.source.clone(), batches).run()));
            let (events, told) = mpsc::channel(WAITING);
            tasks.spawn(forward_remote(told, say.clone()));
            tasks.spawn(live(Remotes::new(client, settings, events).run()));
        }
        if let Some(object) = self.defaults {
            let (batches, told) = mpsc::channel(1);
            tasks.spawn(forward(feed, DEFAULTS.into(), told, say.clone()));
            tasks.spawn(async move {
                let events = vec![SourceEvent::Apply(object), SourceEvent::Listed];
                // Nobody listens only when all of this ends anyway.
                let _ = batches.send(SourceBatch { events, problems: None }).await;
                batches.closed().await;
                Ok(())
            });
        }
        Ok(Running { tasks, _files: files })
    }
}

impl Running {
    /// Waits until one of them ends, which none should.
    pub async fn ended(&mut self) -> anyhow::Error {
        match self.tasks.join_next().await {
            Some(Ok(Ok(()))) | None => anyhow::anyhow!("a source ended by itself"),
            Some(Ok(Err(error))) => error,
            Some(Err(error)) => anyhow::anyhow!("a source ended by itself: {error}"),
        }
    }
}

async fn live(run: impl Future<Output = Result<(), pilotfish_kube::SourceError>>) -> Result<()> {
    run.await?;
    bail!("the source of a cluster ended by itself")
}

/// What the file source reads.
fn file_settings(settings: &Settings) -> FileSourceSettings {
    FileSourceSettings {
        mesh_config: settings.mesh_config.clone(),
        mesh_networks: settings.mesh_networks.clone(),
        checks: vec![pilotfish_translate::envoy_filter::check_object],
        ..FileSourceSettings::new(settings.paths.clone())
    }
}

/// How the live cluster is read, and those that it knows of.
fn kube_settings(settings: &Settings, cluster: &str, metrics: &Arc<Metrics>) -> RemoteSettings {
    let source = KubeSourceSettings {
        root_namespace: settings.root_namespace.as_str().into(),
        checks: vec![pilotfish_translate::envoy_filter::check_object],
        observer: Arc::new(Counted(metrics.clone())),
        ..KubeSourceSettings::new(cluster)
    };
    let (timeout, allowed) = (settings.remote_cluster_timeout, settings.insecure_kubeconfig_options.clone());
    let kubeconfigs = settings.remote_kubeconfigs.clone();
    RemoteSettings { kubeconfigs, source, timeout, allowed, clients: RemoteClients::default() }
}

/// The mesh config that holds when none is written: only needed where it differs from Istio's.
fn default_mesh(settings: &Settings) -> Option<Object> {
    let default = MeshConfig::default();
    (settings.root_namespace != default.root_namespace).then(|| {
        let root_namespace = settings.root_namespace.clone();
        let meta = ObjectMeta { origin: "--root-namespace".into(), ..ObjectMeta::of(MeshFile::Config.key()) };
        Object::new(meta, MeshConfig { root_namespace, ..default })
    })
}

/// Passes on what a source says, under its name.
async fn forward(
    feed: Arc<str>,
    source: Arc<str>,
    mut told: mpsc::Receiver<SourceBatch>,
    say: mpsc::Sender<Said>,
) -> Result<()> {
    while let Some(batch) = told.recv().await {
        let listed = batch.events.contains(&SourceEvent::Listed);
        tracing::debug!(%source, events = batch.events.len(), listed, "a source speaks");
        let said = Said::Batch { feed: feed.clone(), source: source.clone(), batch };
        if say.send(said).await.is_err() {
            break;
        }
    }
    bail!("the source {source:?} ended by itself")
}

/// Passes on what happens to remote clusters.
async fn forward_remote(mut told: mpsc::Receiver<RemoteEvent>, say: mpsc::Sender<Said>) -> Result<()> {
    while let Some(event) = told.recv().await {
        if say.send(Said::Remote(event)).await.is_err() {
            break;
        }
    }
    bail!("remote clusters are watched no longer")
}
