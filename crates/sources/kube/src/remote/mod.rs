//! Remote clusters: each has a kubeconfig in a Secret of the root namespace, or in a file of a folder.
//!
//! ```text
//!  Secrets ─▶ RemoteClusters ─ Action ─▶ Remotes ─ KubeSource per generation ─ RemoteEvent ─▶ control loop
//!             (pure: owners)             (IO)  ▲             │
//!                   ▲                          ├─────────────┘ listed, failed
//!                   └──────────────────────────┘
//! ```
//!
//! Each cluster is a failure domain of its own. An unreachable cluster delays readiness until its timeout at
//! start-up, and keeps its last state later.

mod clients;
mod clusters;
mod credentials;
mod folder;
mod kubeconfig;
#[cfg(test)]
mod tests;

pub use clients::RemoteClients;
pub use clusters::ClusterGeneration;
pub use credentials::{CredentialError, CredentialSettings, remote_kubeconfig};
pub use kubeconfig::{InsecureOptions, KubeconfigError, UnknownOption, check_kubeconfig};

use crate::client::{Client, of_config};
use crate::source::{KubeSource, KubeSourceSettings, REMOTE_CLUSTER_LABEL, SourceError};
use crate::watch::{Change, Reader, Resource, Watch, WatchTarget, WatchUpdate};
use clusters::{Action, RemoteClusters};
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use pilotfish_config::{SourceBatch, SourceEvent, SourceProblems};
use pilotfish_model::Kind;
use pilotfish_runtime::{FileReader, error_chain};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Capacity of the channels, in updates.
const WAITING: usize = 64;
/// Quiet time without updates before a generation replaces another one: updates that the other has received
/// may still be on their way to the new one.
const SETTLE: Duration = Duration::from_millis(500);
/// Pause between the failure of a generation and the start of the next one.
const AFTER_BREAKDOWN: Duration = Duration::from_secs(5);

/// Source of the kubeconfigs of remote clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KubeconfigsIn {
    /// Secrets with the label `istio/multiCluster` in the root namespace.
    #[default]
    Secrets,
    /// Files `ID.yaml` or `ID.yml` in a folder.
    Folder(PathBuf),
}

/// Settings for finding and reading remote clusters.
#[derive(Clone)]
pub struct RemoteSettings {
    pub kubeconfigs: KubeconfigsIn,
    /// Settings of the source of each cluster. Their `cluster` is the one that holds the Secrets, in their
    /// `root_namespace`.
    pub source: KubeSourceSettings,
    /// Timeout of the first complete list of a cluster, for readiness.
    pub timeout: Duration,
    /// Dangerous options that kubeconfigs may use.
    pub allowed: InsecureOptions,
    /// Registry for the clients of the clusters.
    pub clients: RemoteClients,
}

/// Events of remote clusters, in order: a generation is opened before it sends batches, and sends none
/// after it was closed.
#[derive(Debug)]
pub enum RemoteEvent {
    /// State of the Secrets or the folder: `Listed` when all clusters of the first list have been opened.
    Secrets(SourceBatch),
    /// Start of a generation, perhaps beside an older one, which it replaces with its first complete list.
    Opened(ClusterGeneration),
    /// Content of a cluster.
    Batch(ClusterGeneration, SourceBatch),
    /// Readiness no longer waits for the first list of this generation, with the reason.
    GivenUp(ClusterGeneration, Arc<str>),
    /// End of a generation; another one is in force.
    Closed(ClusterGeneration),
    /// Removal of a cluster, with its generations.
    Removed(Arc<str>, Vec<ClusterGeneration>),
}

/// An event of a generation's task.
enum TaskEvent {
    /// The first list is complete. The task waits for the permit to send it, which puts this generation in
    /// force.
    Listed(oneshot::Sender<()>),
    Broke,
}

/// The receiver of the events is gone.
struct Closed;

/// Controller of the remote clusters and of their tasks.
pub struct Remotes {
    client: Client,
    settings: RemoteSettings,
    clusters: RemoteClusters,
    tasks: BTreeMap<ClusterGeneration, JoinHandle<()>>,
    /// True after the first complete list of Secrets; until then no cluster is opened.
    complete: bool,
    failing: bool,
    out: mpsc::Sender<RemoteEvent>,
    task_event_sender: mpsc::Sender<(ClusterGeneration, TaskEvent)>,
    task_events: mpsc::Receiver<(ClusterGeneration, TaskEvent)>,
}

impl Remotes {
    /// Reads the Secrets with `client`, and sends events to `out`.
    #[must_use]
    pub fn new(client: Client, settings: RemoteSettings, out: mpsc::Sender<RemoteEvent>) -> Self {
        let clusters = RemoteClusters::new(settings.source.cluster.clone(), settings.allowed.clone());
        let (task_event_sender, task_events) = mpsc::channel(WAITING);
        let tasks = BTreeMap::new();
        Self {
            client,
            settings,
            clusters,
            tasks,
            complete: false,
            failing: false,
            out,
            task_event_sender,
            task_events,
        }
    }

    /// Runs until the receiver is dropped. Dropping the future stops all its tasks.
    ///
    /// # Errors
    /// When the watch of Secrets ends although the receiver exists.
    pub async fn run(self) -> Result<(), SourceError> {
        match self.settings.kubeconfigs.clone() {
            KubeconfigsIn::Secrets => self.follow_secrets().await,
            KubeconfigsIn::Folder(folder) => {
                // A closed channel means that the process is ending.
                let _ = self.follow_folder(folder).await;
                Ok(())
            }
        }
    }

    async fn follow_folder(mut self, folder: PathBuf) -> Result<(), Closed> {
        let mut again = tokio::time::interval(folder::INTERVAL);
        again.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (mut before, reader) = (None, FileReader::default());
        let out = self.out.clone();
        loop {
            tokio::select! {
                _ = again.tick() => {
                    let files = folder::read(&reader, folder.clone()).await;
                    if before.as_ref() != Some(&files) {
                        self.apply_files(&files).await?;
                        before = Some(files);
                    }
                }
                Some((generation, task_event)) = self.task_events.recv() => {
                    self.handle_task_event(&generation, task_event).await?;
                }
                () = out.closed() => return Err(Closed),
            }
        }
    }

    /// Applies the current content of the folder.
    async fn apply_files(&mut self, files: &Result<folder::Files, String>) -> Result<(), Closed> {
        match files {
            Ok(files) => {
                self.clusters.set_files(files);
                let actions = self.clusters.settle();
                self.execute(actions).await?;
                let first = !std::mem::replace(&mut self.complete, true);
                let again = std::mem::take(&mut self.failing);
                let event =
                    if first { Some(SourceEvent::Listed) } else { again.then_some(SourceEvent::Recovered) };
                self.send_state(event.into_iter().collect()).await
            }
            Err(reason) => {
                self.failing = true;
                let reason = format!("kubeconfigs of remote clusters: {reason}").into();
                self.send_state(vec![SourceEvent::Failed { at: SystemTime::now(), reason }]).await
            }
        }
    }

    async fn follow_secrets(mut self) -> Result<(), SourceError> {
        let (sender, mut secrets) = mpsc::channel(WAITING);
        let (_resource_sender, resource) = watch::channel(Some(self.resource()));
        let KubeSourceSettings { cluster, observer, jitter, .. } = &self.settings.source;
        let (observer, jitter) = (observer.clone(), jitter.fork("remote secrets"));
        let target = WatchTarget { cluster: cluster.clone(), kind: Kind::Secret, observer, jitter };
        let watch = Watch::new(self.client.clone(), target, Reader::Object(Kind::Secret), sender);
        let watch =
            watch.guarded(self.settings.source.guard, &self.settings.source.board.of("remote clusters"));
        let mut watch = std::pin::pin!(watch.run(resource));
        let out = self.out.clone();
        loop {
            let next = tokio::select! {
                Some((_, update)) = secrets.recv() => self.handle(update).await,
                Some((generation, task_event)) = self.task_events.recv() => {
                    self.handle_task_event(&generation, task_event).await
                }
                () = &mut watch => {
                    let cluster = self.settings.source.cluster.clone();
                    return Err(SourceError::new(cluster, "Secrets of remote clusters are not watched"));
                }
                () = out.closed() => return Ok(()),
            };
            if let Err(Closed) = next {
                return Ok(());
            }
        }
    }

    fn resource(&self) -> Resource {
        let path = format!("/api/v1/namespaces/{}/secrets", self.settings.source.root_namespace);
        Resource { path, labels: format!("{REMOTE_CLUSTER_LABEL}=true"), fields: String::new() }
    }

    /// Applies an update of the watch of Secrets.
    async fn handle(&mut self, update: WatchUpdate) -> Result<(), Closed> {
        let mut events = Vec::new();
        match update {
            WatchUpdate::Changes(changes) => changes.into_iter().for_each(|change| self.change(change)),
            WatchUpdate::Listed => {
                self.complete = true;
                events.push(SourceEvent::Listed);
            }
            WatchUpdate::Failed(reason) => {
                self.failing = true;
                let reason = format!("Secrets of remote clusters: {reason}").into();
                events.push(SourceEvent::Failed { at: SystemTime::now(), reason });
            }
            WatchUpdate::Healthy => {
                if std::mem::take(&mut self.failing) && self.complete {
                    events.push(SourceEvent::Recovered);
                }
            }
        }
        if self.complete {
            let actions = self.clusters.settle();
            self.execute(actions).await?;
        }
        self.send_state(events).await
    }

    /// Sends events of the Secrets or files as a whole, with their current problems.
    async fn send_state(&self, events: Vec<SourceEvent>) -> Result<(), Closed> {
        let origin = format!("cluster {}", self.settings.source.cluster).into();
        let reports = self.clusters.problems(&origin);
        let problems = Some(Arc::new(SourceProblems { reports, ignored: BTreeMap::new() }));
        self.send(RemoteEvent::Secrets(SourceBatch { events, problems })).await
    }

    fn change(&mut self, change: Change) {
        match change {
            Change::Apply { object, .. } => {
                if let Some(secret) = object.typed() {
                    self.clusters.apply(&secret);
                }
            }
            Change::Rejected { key, problems, last_good, .. } => {
                self.clusters.refuse(key, problems, last_good)
            }
            // This watch never requests statuses.
            Change::Stored { .. } | Change::Json { .. } => {}
            Change::Delete(key) => self.clusters.delete(&key),
        }
    }

    async fn handle_task_event(
        &mut self,
        generation: &ClusterGeneration,
        task_event: TaskEvent,
    ) -> Result<(), Closed> {
        let actions = match task_event {
            TaskEvent::Listed(permit) => {
                if !self.clusters.is_current(generation) {
                    return Ok(());
                }
                // An error means that the task has been stopped.
                let _ = permit.send(());
                self.clusters.listed(generation).into_iter().collect()
            }
            TaskEvent::Broke => self.clusters.broke(generation),
        };
        self.execute(actions).await
    }

    async fn execute(&mut self, actions: Vec<Action>) -> Result<(), Closed> {
        for action in actions {
            match action {
                Action::Open(generation, kubeconfig) => {
                    tracing::info!(cluster = %generation.cluster, %generation, "reading a remote cluster");
                    self.send(RemoteEvent::Opened(generation.clone())).await?;
                    let task = self.task(generation.clone()).run(kubeconfig);
                    self.tasks.insert(generation, tokio::spawn(task));
                }
                Action::Close(generation) => {
                    self.stop(&generation).await;
                    self.send(RemoteEvent::Closed(generation)).await?;
                }
                Action::Remove(cluster, generations) => {
                    tracing::info!(
                        %cluster,
                        "the remote cluster has no usable kubeconfig left; removing its services"
                    );
                    for generation in &generations {
                        self.stop(generation).await;
                    }
                    self.send(RemoteEvent::Removed(cluster, generations)).await?;
                }
            }
        }
        Ok(())
    }

    fn task(&self, generation: ClusterGeneration) -> Task {
        let follows = self.tasks.keys().any(|known| known.cluster == generation.cluster);
        let source = KubeSourceSettings {
            cluster: generation.cluster.clone(),
            kinds: crate::Kinds::Discovery,
            settle: if follows { SETTLE } else { Duration::ZERO },
            jitter: self.settings.source.jitter.fork(&generation.to_string()),
            ..self.settings.source.clone()
        };
        let (timeout, clients) = (self.settings.timeout, self.settings.clients.clone());
        Task {
            generation,
            source,
            timeout,
            clients,
            out: self.out.clone(),
            task_event_sender: self.task_event_sender.clone(),
        }
    }

    /// Stops a generation and waits for its task, so that it sends nothing more.
    async fn stop(&mut self, generation: &ClusterGeneration) {
        let Some(task) = self.tasks.remove(generation) else { return };
        task.abort();
        let ended = task.await;
        self.settings.clients.remove(generation);
        if let Err(error) = ended
            && error.is_panic()
        {
            tracing::error!(%generation, %error, "the task that reads a remote cluster panicked");
        }
    }

    async fn send(&self, event: RemoteEvent) -> Result<(), Closed> {
        self.out.send(event).await.map_err(|_| Closed)
    }
}

impl Drop for Remotes {
    fn drop(&mut self) {
        self.tasks.values().for_each(JoinHandle::abort);
    }
}

/// Task that reads one generation of a cluster.
struct Task {
    generation: ClusterGeneration,
    source: KubeSourceSettings,
    timeout: Duration,
    clients: RemoteClients,
    out: mpsc::Sender<RemoteEvent>,
    task_event_sender: mpsc::Sender<(ClusterGeneration, TaskEvent)>,
}

impl Task {
    /// Reads until the receiver is dropped, or the source ends.
    async fn run(self, kubeconfig: Arc<Kubeconfig>) {
        // A closed channel means that the process is ending.
        let _ = self.follow(kubeconfig).await;
    }

    async fn follow(&self, kubeconfig: Arc<Kubeconfig>) -> Result<(), Closed> {
        let made = timeout(self.timeout, connect(kubeconfig)).await;
        let too_long = || Err(format!("making a client took longer than {:?}", self.timeout));
        let client = match made.unwrap_or_else(|_| too_long()) {
            Ok(client) => client,
            Err(reason) => {
                // A retry with an unchanged kubeconfig would fail again.
                self.failed(&reason).await?;
                return self.give_up(reason).await;
            }
        };
        self.clients.insert(self.generation.clone(), client.clone());
        let (sender, mut batches) = mpsc::channel(WAITING);
        let mut source = std::pin::pin!(KubeSource::new(client, self.source.clone(), sender).run());
        let mut deadline = std::pin::pin!(tokio::time::sleep(self.timeout));
        let mut waiting = true;
        loop {
            tokio::select! {
                Some(batch) = batches.recv() => {
                    if batch.events.contains(&SourceEvent::Listed) {
                        waiting = false;
                        self.ask_to_take_over().await?;
                    }
                    self.send(RemoteEvent::Batch(self.generation.clone(), batch)).await?;
                }
                ended = &mut source => {
                    let reason = match ended {
                        Ok(()) => "the source ended by itself".to_owned(),
                        Err(broken) => broken.to_string(),
                    };
                    tracing::error!(
                        cluster = %self.generation.cluster, reason,
                        "the source of a remote cluster ended; keeping its content and restarting it"
                    );
                    self.failed(&reason).await?;
                    tokio::time::sleep(AFTER_BREAKDOWN).await;
                    return self.notify(TaskEvent::Broke).await;
                }
                () = &mut deadline, if waiting => {
                    waiting = false;
                    self.give_up(format!("no complete list within {:?}", self.timeout)).await?;
                }
            }
        }
    }

    /// Requests the permit to put this generation in force, and waits for it.
    async fn ask_to_take_over(&self) -> Result<(), Closed> {
        let (permit, answer) = oneshot::channel();
        self.notify(TaskEvent::Listed(permit)).await?;
        match answer.await {
            Ok(()) => Ok(()),
            // The generation has been replaced, and this task is about to be stopped.
            Err(_) => std::future::pending().await,
        }
    }

    async fn failed(&self, reason: &str) -> Result<(), Closed> {
        let event = SourceEvent::Failed { at: SystemTime::now(), reason: reason.into() };
        let batch = SourceBatch { events: vec![event], problems: None };
        self.send(RemoteEvent::Batch(self.generation.clone(), batch)).await
    }

    async fn give_up(&self, reason: String) -> Result<(), Closed> {
        self.send(RemoteEvent::GivenUp(self.generation.clone(), reason.into())).await
    }

    async fn send(&self, event: RemoteEvent) -> Result<(), Closed> {
        self.out.send(event).await.map_err(|_| Closed)
    }

    async fn notify(&self, task_event: TaskEvent) -> Result<(), Closed> {
        self.task_event_sender.send((self.generation.clone(), task_event)).await.map_err(|_| Closed)
    }
}

/// Makes a client on a thread of its own, because reading files and running programs (where allowed) may
/// block for long.
async fn connect(kubeconfig: Arc<Kubeconfig>) -> Result<Client, String> {
    let runtime = tokio::runtime::Handle::current();
    let made = tokio::task::spawn_blocking(move || {
        // Making a client starts a task of its own.
        let _inside = runtime.enter();
        runtime.block_on(async {
            let options = KubeConfigOptions::default();
            let config = Config::from_custom_kubeconfig(Kubeconfig::clone(&kubeconfig), &options).await;
            let config = config.map_err(|error| error_chain(&error))?;
            of_config(config).map_err(|error| error_chain(&error))
        })
    });
    made.await.unwrap_or_else(|error| Err(format!("making a client failed: {error}")))
}
