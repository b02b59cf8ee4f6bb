//! The configured sources: folders of files, a live cluster, registries that bring objects.
//!
//! Where two have an object of the same kind, namespace and name, the one that was named more explicitly
//! counts: files before the cluster, the cluster before those registries in their order, and they before
//! defaults.

use super::registries::Registries;
use super::revision_tags;
use super::subsystem::{StopOrder, Subsystem};
use crate::settings::{RegistriesSettings, Settings};
use anyhow::{Context, Result};
use pilotfish_admin_state::PrometheusRecorder;
use pilotfish_config::mesh::MeshConfig;
use pilotfish_config::{MeshFile, ObjectCheck, SourceBatch, SourceEvent};
use pilotfish_control_plane::control::{
    ControlMessage, REMOTE_SECRETS, Shared, cluster_source, watch_silences,
};
use pilotfish_files::{FileSource, FileSourceSettings};
use pilotfish_kube::client::{self, Client};
use pilotfish_kube::remote::{RemoteClients, RemoteSettings, Remotes};
use pilotfish_kube::{KubeSource, KubeSourceSettings};
use pilotfish_model::{Object, ObjectMeta, Revision};
use pilotfish_registry::{BatchSender, Input, ObjectSettings, ObjectSource, SourceReport};
use pilotfish_runtime::{GuardBoard, Heartbeat};
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

/// The name of the file source.
const FILES: &str = "files";
/// The name of the source of what holds where no other source has it.
const DEFAULTS: &str = "defaults";

/// Batches of one source that may wait.
const WAITING: usize = 64;

/// Sources that are open and do not run yet.
pub(crate) struct Sources {
    feed: Arc<str>,
    files: Option<FileSource>,
    cluster: Option<(Client, RemoteSettings)>,
    registries: Vec<RegistrySource>,
    defaults: Option<Object>,
}

impl Sources {
    /// Opens the configured sources, and adds the sources to the controller; what those of registries tell
    /// about themselves goes to `shared`.
    ///
    /// # Errors
    /// When files cannot be read or there is no such cluster.
    pub(super) async fn open(
        settings: &Settings,
        registries: &mut Registries,
        recorder: &Arc<PrometheusRecorder>,
        shared: &Shared,
    ) -> Result<Self> {
        let (controller, feed) = (&mut registries.controller, &registries.feed);
        let sources = &settings.sources;
        let files = if sources.has_files() {
            controller.add_source(feed, FILES);
            let settings = file_settings(settings, shared.guards());
            shared.add_heartbeat(FILES, settings.heartbeats.reading.clone());
            shared.add_heartbeat(FILES, settings.heartbeats.walking.clone());
            Some(FileSource::open(settings)?)
        } else {
            None
        };
        let cluster = match &sources.kubernetes {
            Some(wanted) => {
                let client = client::connect(wanted).await.context("--kubernetes")?;
                let cluster = settings.registries.settings.cluster.to_string();
                controller.add_source(feed, &cluster_source(&cluster));
                controller.add_source(feed, REMOTE_SECRETS);
                Some((client, kube_settings(settings, &cluster, recorder, shared.guards())))
            }
            None => None,
        };
        let of_registries = object_sources(&settings.registries)?;
        for registry in &of_registries {
            controller.add_source(feed, &registry.name);
            shared.add_object_source(feed, &registry.name, registry.report.clone());
        }
        let defaults = default_mesh(&sources.root_namespace);
        if defaults.is_some() {
            controller.add_source(feed, DEFAULTS);
        }
        Ok(Self { feed: feed.clone(), files, cluster, registries: of_registries, defaults })
    }

    /// The live cluster's client, and those of remote clusters; `None` where no cluster is read.
    pub(crate) fn clients(&self) -> Option<(Client, RemoteClients)> {
        self.cluster.as_ref().map(|(client, settings)| (client.clone(), settings.clients.clone()))
    }

    /// A subsystem for each, and one for the tags of the revision; what they read goes to `messages`.
    pub(crate) fn subsystems(
        self,
        messages: mpsc::Sender<ControlMessage>,
        shared: &Arc<Shared>,
        revision: watch::Sender<Revision>,
    ) -> Vec<Subsystem> {
        let heartbeat = |source: &str| {
            let heartbeat = Heartbeat::default();
            shared.add_heartbeat(source, heartbeat.clone());
            heartbeat
        };
        let mut subsystems = vec![liveness(shared)];
        let mesh_config_map = revision.borrow().mesh_config_map();
        subsystems.extend(revision_tags::subsystem(&self, revision, messages.clone()));
        let Forwarding { feed, messages } = &Forwarding { feed: self.feed, messages };
        let forwarding = || Forwarding { feed: feed.clone(), messages: messages.clone() };
        subsystems.extend(self.files.map(|files| file_source(files, forwarding())));
        if let Some((client, settings)) = self.cluster {
            let name = cluster_source(&settings.source.cluster);
            let alive = heartbeat(&name);
            // Remote clusters have no revision of ours.
            let own =
                KubeSourceSettings { mesh_config_map: mesh_config_map.into(), ..settings.source.clone() };
            subsystems.push(cluster(name, client.clone(), own, alive, forwarding()));
            let alive = heartbeat(REMOTE_SECRETS);
            subsystems.push(remote_clusters(client, settings, alive, forwarding().messages));
        }
        let registries = self.registries.into_iter();
        subsystems.extend(registries.map(|source| {
            let alive = heartbeat(&source.name);
            object_source(source, alive, forwarding())
        }));
        subsystems.extend(self.defaults.map(|object| default_objects(object, forwarding())));
        subsystems
    }
}

/// Returns the subsystem that logs silent sources.
fn liveness(shared: &Arc<Shared>) -> Subsystem {
    let shared = shared.clone();
    Subsystem::new("the liveness of sources", StopOrder::Abort).task(|_| async move {
        watch_silences(&shared).await;
        Ok(())
    })
}

fn file_source(files: FileSource, forwarding: Forwarding) -> Subsystem {
    source("the file source").task(|_| async move {
        let (batches, received) = mpsc::channel(WAITING);
        // Its thread stops when this is dropped.
        let _running = files.spawn(batches)?;
        forwarding.run(FILES.into(), received).await
    })
}

fn cluster(
    name: String,
    client: Client,
    settings: KubeSourceSettings,
    alive: Heartbeat,
    forwarding: Forwarding,
) -> Subsystem {
    let (batches, received) = mpsc::channel(WAITING);
    source(format!("the source of {name}"))
        .task(|_| async move { Ok(alive.accompany(KubeSource::new(client, settings, batches).run()).await?) })
        .task(|_| forwarding.run(name.into(), received))
}

fn remote_clusters(
    client: Client,
    settings: RemoteSettings,
    alive: Heartbeat,
    messages: mpsc::Sender<ControlMessage>,
) -> Subsystem {
    let (events, mut received) = mpsc::channel(WAITING);
    source("watching remote clusters")
        .task(|_| async move { Ok(alive.accompany(Remotes::new(client, settings, events).run()).await?) })
        .task(|_| async move {
            while let Some(event) = received.recv().await {
                if messages.send(ControlMessage::Remote(event)).await.is_err() {
                    break;
                }
            }
            Ok(())
        })
}

/// A source of objects with its name and its reports.
struct RegistrySource {
    name: Arc<str>,
    source: Box<dyn ObjectSource>,
    report: SourceReport,
}

/// The sources of registries that bring objects, by name, in the order in which they count.
fn object_sources(settings: &RegistriesSettings) -> Result<Vec<RegistrySource>> {
    let mut sources = Vec::new();
    for registry in &settings.live {
        let Input::Source { open, .. } = registry.input else { continue };
        let name = registry.source_name();
        let live = registry.with(&settings.settings);
        let checks: Vec<ObjectCheck> = vec![pilotfish_translate::check_object];
        let source = open(ObjectSettings { name: name.clone(), live, checks })?;
        sources.push(RegistrySource { name, source, report: SourceReport::default() });
    }
    Ok(sources)
}

fn object_source(registry: RegistrySource, alive: Heartbeat, forwarding: Forwarding) -> Subsystem {
    let RegistrySource { name, source: object_source, report } = registry;
    let (batches, received) = mpsc::channel(WAITING);
    let sender = BatchSender::new(report, move |batch| {
        let batches = batches.clone();
        Box::pin(async move { batches.send(batch).await.is_ok() })
    });
    source(format!("the source of {name}"))
        .task(|_| async move {
            alive.accompany(object_source.run(sender)).await;
            Ok(())
        })
        .task(|_| forwarding.run(name, received))
}

/// A source of one object that never changes.
fn default_objects(object: Object, forwarding: Forwarding) -> Subsystem {
    source("default objects").task(|_| async move {
        let (batches, received) = mpsc::channel(1);
        let events = vec![SourceEvent::Apply(object), SourceEvent::Listed];
        // Nobody listens only when all of this ends anyway. The sender stays: a source that ends is an error.
        let _ = batches.send(SourceBatch { events, problems: None }).await;
        forwarding.run(DEFAULTS.into(), received).await
    })
}

/// Sources have nothing to finish when the process stops.
fn source(name: impl Into<String>) -> Subsystem {
    Subsystem::new(name, StopOrder::Abort)
}

/// The way of a source's batches to the control loop.
struct Forwarding {
    feed: Arc<str>,
    messages: mpsc::Sender<ControlMessage>,
}

impl Forwarding {
    /// Passes on batches under the source's name until there are no more.
    async fn run(self, source: Arc<str>, mut received: mpsc::Receiver<SourceBatch>) -> Result<()> {
        while let Some(batch) = received.recv().await {
            let listed = batch.events.contains(&SourceEvent::Listed);
            tracing::debug!(%source, events = batch.events.len(), listed, "a source sent a batch");
            let message = ControlMessage::Batch { feed: self.feed.clone(), source: source.clone(), batch };
            if self.messages.send(message).await.is_err() {
                break;
            }
        }
        Ok(())
    }
}

/// Settings of the file source.
fn file_settings(settings: &Settings, guards: &GuardBoard) -> FileSourceSettings {
    let guard = settings.registries.settings.guard;
    let settings = &settings.sources;
    FileSourceSettings {
        guard,
        losses: guards.of(FILES),
        mesh_config: settings.mesh_config.clone(),
        mesh_networks: settings.mesh_networks.clone(),
        checks: vec![pilotfish_translate::check_object],
        ..FileSourceSettings::new(settings.paths.clone())
    }
}

/// Settings of the live cluster's source, and of the sources of its remote clusters.
fn kube_settings(
    settings: &Settings,
    cluster: &str,
    recorder: &Arc<PrometheusRecorder>,
    guards: &GuardBoard,
) -> RemoteSettings {
    let source = KubeSourceSettings {
        root_namespace: settings.sources.root_namespace.as_str().into(),
        checks: vec![pilotfish_translate::check_object],
        observer: recorder.clone(),
        guard: settings.registries.settings.guard,
        board: guards.clone(),
        ..KubeSourceSettings::new(cluster)
    };
    let remote = &settings.remote_clusters;
    RemoteSettings {
        kubeconfigs: remote.kubeconfigs.clone(),
        source,
        timeout: remote.timeout,
        allowed: remote.insecure_options.clone(),
        clients: RemoteClients::default(),
    }
}

/// The mesh config that holds when none is written: only needed where it differs from Istio's.
fn default_mesh(root_namespace: &str) -> Option<Object> {
    let default = MeshConfig::default();
    (root_namespace != default.root_namespace).then(|| {
        let root_namespace = root_namespace.to_owned();
        let meta = ObjectMeta { origin: "--root-namespace".into(), ..ObjectMeta::of(MeshFile::Config.key()) };
        Object::new(meta, MeshConfig { root_namespace, ..default })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_namespace_of_ones_own_is_a_default_mesh_config() {
        assert!(default_mesh("istio-system").is_none());
        let object = default_mesh("mesh").unwrap();
        assert_eq!(*object.key(), MeshFile::Config.key());
        assert_eq!(object.typed::<MeshConfig>().unwrap().root_namespace, "mesh");
    }

    #[tokio::test]
    async fn batches_reach_the_control_loop_under_the_name_of_their_source() {
        let (messages, mut inbox) = mpsc::channel(8);
        let forwarding = Forwarding { feed: "feed".into(), messages };
        let (batches, received) = mpsc::channel(8);
        let events = vec![SourceEvent::Listed];
        batches.send(SourceBatch { events: events.clone(), problems: None }).await.unwrap();
        drop(batches);
        forwarding.run(FILES.into(), received).await.unwrap();
        let Some(ControlMessage::Batch { feed, source, batch }) = inbox.recv().await else {
            unreachable!("nothing else was sent")
        };
        assert_eq!((&*feed, &*source, batch.events), ("feed", FILES, events));
        assert!(inbox.recv().await.is_none());
    }

    #[tokio::test]
    async fn a_source_of_defaults_never_ends() {
        let (messages, mut inbox) = mpsc::channel(8);
        let forwarding = Forwarding { feed: "feed".into(), messages };
        let mut subsystems = crate::serve::Subsystems::default();
        subsystems.add(default_objects(default_mesh("mesh").unwrap(), forwarding));
        let mut running = subsystems.start();
        let Some(ControlMessage::Batch { source, batch, .. }) = inbox.recv().await else {
            unreachable!("nothing else is sent")
        };
        assert_eq!((&*source, batch.events.len()), (DEFAULTS, 2));
        let ended = tokio::time::timeout(std::time::Duration::from_millis(50), running.ended()).await;
        assert!(ended.is_err(), "it goes on");
    }
}
