//! Source of the objects of one cluster.

mod discovery;
mod kinds;
#[cfg(test)]
mod review_tests;
mod state;
#[cfg(test)]
mod tests;
mod unserved;

pub(crate) use kinds::REMOTE_CLUSTER_LABEL;
pub use kinds::{Kinds, has_status, resources_of};

use crate::request::{BACKOFF, RequestError, within};
use crate::watch::{NoopObserver, Observer, Reader, Resource, Watch, WatchTarget, WatchUpdate};
use discovery::{Discovered, Discovery, Rights, Unreviewed};
use kinds::MESH;
use kube::Client;
use pilotfish_config::{ObjectCheck, SourceBatch};
use pilotfish_model::Kind;
use pilotfish_runtime::{Backoff, Classify, ErrorClass, GuardBoard, GuardSettings, HeldLosses, Jitter};
use state::SourceState;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use unserved::{Counts, UnservedKind};

/// Capacity of the channel from watches to the source.
const WAITING: usize = 1024;
/// Maximum number of updates in one batch.
const BATCH: usize = 4096;
/// Interval of discovery without a sign that the served kinds changed.
const REDISCOVER_AFTER: Duration = Duration::from_secs(60);
/// Delay of discovery after a change of CustomResourceDefinitions. It doubles with each further discovery,
/// and from 10 s on the regular interval applies.
const REDISCOVER_SOON: Duration = Duration::from_millis(250);
/// Delay from which the regular interval applies instead.
const REDISCOVER_SOON_UNTIL: Duration = Duration::from_secs(10);
/// Time without events after which a watch of CustomResourceDefinitions counts as dead: the API server ends
/// it sooner.
const SILENCE: Duration = Duration::from_secs(320);

/// Identity and settings of a cluster's source.
#[derive(Clone)]
pub struct KubeSourceSettings {
    /// The cluster's id, for messages and metrics.
    pub cluster: Arc<str>,
    /// The kinds that are read.
    pub kinds: Kinds,
    /// The namespace of the mesh-wide settings.
    pub root_namespace: Arc<str>,
    /// The ConfigMap of the mesh-wide settings: `istio`, or `istio-REVISION`.
    pub mesh_config_map: Arc<str>,
    /// Time without updates after which the initial lists count as complete; 10 times as long at most. For a
    /// source that replaces another one.
    pub settle: Duration,
    /// Further checks of each object.
    pub checks: Vec<ObjectCheck>,
    /// Observer of the watches' events.
    pub observer: Arc<dyn Observer>,
    pub jitter: Jitter,
    /// Settings of the guard against lists that lack most objects.
    pub guard: GuardSettings,
    /// Board on which held losses are shown and accepted.
    pub board: GuardBoard,
}

impl KubeSourceSettings {
    /// Settings for all kinds of a cluster, with Istio's names.
    #[must_use]
    pub fn new(cluster: impl Into<Arc<str>>) -> Self {
        Self {
            cluster: cluster.into(),
            kinds: Kinds::All,
            root_namespace: "istio-system".into(),
            mesh_config_map: "istio".into(),
            settle: Duration::ZERO,
            checks: Vec::new(),
            observer: Arc::new(NoopObserver),
            jitter: Jitter::default(),
            guard: GuardSettings::default(),
            board: GuardBoard::default(),
        }
    }

    /// The held losses of the cluster.
    pub(crate) fn losses(&self) -> HeldLosses {
        self.board.of(&format!("cluster {}", self.cluster))
    }
}

struct RunningWatch {
    /// Resource that is watched; `None` if the kind is gone.
    resource: Option<Resource>,
    /// Channel to the watch with the kind's resource; `None` if the kind is gone.
    resources: watch::Sender<Option<Resource>>,
}

/// See the module's description.
pub struct KubeSource {
    client: Client,
    settings: KubeSourceSettings,
    state: SourceState,
    running: BTreeMap<Kind, RunningWatch>,
    /// The right to read Secrets in every namespace.
    secrets: Rights,
    /// The right to read ConfigMaps in every namespace.
    config_maps: Rights,
    /// True if the mesh-wide settings are read.
    mesh: bool,
    /// True after the first successful discovery.
    discovered: bool,
    /// Reviews of rights that failed in the last discovery.
    unreviewed: Vec<Unreviewed>,
    /// The running count of objects of unserved kinds.
    counting: JoinSet<Counts>,
    tasks: JoinSet<()>,
    out: mpsc::Sender<SourceBatch>,
}

/// A watch ended although the source was not stopped.
#[derive(Debug, thiserror::Error)]
#[error("a watch of cluster {0} ended unexpectedly: {1}")]
pub struct SourceError(Arc<str>, String);

impl SourceError {
    pub(crate) fn new(cluster: Arc<str>, reason: impl Into<String>) -> Self {
        Self(cluster, reason.into())
    }
}

impl KubeSource {
    /// A source that sends its batches to `out`.
    #[must_use]
    pub fn new(client: Client, settings: KubeSourceSettings, out: mpsc::Sender<SourceBatch>) -> Self {
        let mesh = settings.kinds.includes(MESH);
        let state = SourceState::new(&settings.cluster, settings.checks.clone(), settings.settle.is_zero());
        Self {
            client,
            settings,
            state,
            running: BTreeMap::new(),
            secrets: Rights::default(),
            config_maps: Rights::default(),
            mesh,
            discovered: false,
            unreviewed: Vec::new(),
            counting: JoinSet::new(),
            tasks: JoinSet::new(),
            out,
        }
    }

    /// Reads until the receiver of the batches is dropped. Dropping the future stops all watches.
    ///
    /// # Errors
    /// If a watch ends unexpectedly: the source must not serve its stale data.
    pub async fn run(mut self) -> Result<(), SourceError> {
        let (sender, mut updates) = mpsc::channel(WAITING);
        let (definitions, mut definitions_changed) = mpsc::channel(WAITING);
        self.watch_definitions(definitions);
        let mut schedule = DiscoverySchedule::new(self.settings.jitter.fork("discovery"));
        let mut discovering = JoinSet::new();
        let mut received = Vec::new();
        let mut quiet = SettleTimer::new(self.settings.settle);
        loop {
            tokio::select! {
                count = updates.recv_many(&mut received, BATCH) => {
                    if count == 0 {
                        return Ok(());
                    }
                    for (kind, update) in received.drain(..) {
                        self.state.handle(kind, update);
                    }
                    quiet.activity(self.state.waits_for_quiet(), Instant::now());
                }
                () = tokio::time::sleep_until(quiet.at), if self.state.waits_for_quiet() => {
                    self.state.settled();
                }
                Some(_) = definitions_changed.recv() => schedule.soon(Instant::now()),
                () = tokio::time::sleep_until(schedule.at), if discovering.is_empty() => {
                    discovering.spawn(self.discover());
                }
                Some(found) = discovering.join_next() => {
                    let found = found.map_err(|error| self.broken(&error))?;
                    schedule.done(self.apply_discovery(found, &sender), Instant::now());
                }
                Some(counts) = self.counting.join_next() => {
                    self.state.counted(counts.map_err(|error| self.broken(&error))?);
                }
                Some(ended) = self.tasks.join_next() => self.ended(ended)?,
                () = self.out.closed() => return Ok(()),
            }
            let batch = self.state.batch(SystemTime::now());
            if !batch.is_empty() && self.out.send(batch).await.is_err() {
                return Ok(());
            }
        }
    }

    /// Starts a discovery. A slow API server delays nothing else.
    fn discover(&self) -> impl Future<Output = Result<Discovered, String>> + Send + 'static {
        let known = self.running.iter();
        let known = known.filter_map(|(kind, running)| Some((*kind, running.resource.clone()?))).collect();
        let discovery = Discovery {
            client: self.client.clone(),
            kinds: self.settings.kinds,
            root_namespace: self.settings.root_namespace.clone(),
            mesh_config_map: self.settings.mesh_config_map.clone(),
            secrets: self.secrets,
            config_maps: self.config_maps,
            mesh: self.mesh,
            known: self.discovered.then_some(known),
        };
        discovery.run()
    }

    /// Starts and stops watches according to a discovery. Returns true if nothing is missing until the next
    /// regular one.
    fn apply_discovery(
        &mut self,
        found: Result<Discovered, String>,
        sender: &mpsc::Sender<(Kind, WatchUpdate)>,
    ) -> bool {
        let found = match found {
            Ok(found) => found,
            Err(reason) => {
                self.state.discovered(Err(reason));
                return false;
            }
        };
        self.mesh = found.mesh;
        let before = (self.secrets.all(), self.config_maps.all());
        self.secrets.answered(found.all_secrets, !self.discovered, Instant::now());
        self.config_maps.answered(found.all_config_maps, !self.discovered, Instant::now());
        let cluster = &self.settings.cluster;
        if before.0 && !self.secrets.all() && self.settings.kinds.includes(Kind::Secret) {
            tracing::info!(
                %cluster,
                "no right to list Secrets of all namespaces; reading the root namespace only"
            );
        }
        if before.1 && !self.config_maps.all() && self.settings.kinds == Kinds::All {
            tracing::info!(%cluster, "no right to list ConfigMaps; those with CA certificates are not read");
        }
        if !self.discovered && self.settings.kinds == Kinds::All && !found.has_istio() {
            tracing::warn!(
                %cluster,
                "the API server serves none of Istio's kinds, so no configuration is read; `pilotfish crds` \
                 prints their definitions for `kubectl apply --server-side -f -`"
            );
        }
        for kind in found.gone {
            if let Some(running) = self.running.get_mut(&kind) {
                tracing::info!(%cluster, %kind, "the cluster no longer serves this kind");
                running.resource = None;
                running.resources.send_replace(None);
                self.state.unwatch(kind);
            }
        }
        for (kind, resource) in found.resources {
            self.watch(kind, resource, sender);
        }
        self.discovered = true;
        self.state.discovered(Ok(()));
        self.count(found.unserved);
        self.report_unreviewed(found.unreviewed)
    }

    /// Starts counting objects of unserved kinds in the background, unless the last count is still running.
    fn count(&mut self, unserved: Vec<UnservedKind>) {
        if self.counting.is_empty() {
            self.counting.spawn(unserved::count(self.client.clone(), unserved));
        }
    }

    /// Logs reviews of rights that failed, once for each reason. Returns true if the next try can wait for
    /// the regular discovery, since no failure is transient.
    fn report_unreviewed(&mut self, unreviewed: Vec<Unreviewed>) -> bool {
        let cluster = &self.settings.cluster;
        for review in unreviewed.iter().filter(|review| !self.unreviewed.contains(review)) {
            tracing::warn!(
                %cluster,
                reason = %review,
                "cannot review the right to read objects; the last known right applies until a review \
                 succeeds"
            );
        }
        let passes = unreviewed.iter().any(|review| review.class() == ErrorClass::Transient);
        self.unreviewed = unreviewed;
        !passes
    }

    fn watch(&mut self, kind: Kind, resource: Resource, sender: &mpsc::Sender<(Kind, WatchUpdate)>) {
        match self.running.get_mut(&kind) {
            Some(running) if running.resource.as_ref() == Some(&resource) => {}
            Some(running) => {
                running.resource = Some(resource.clone());
                running.resources.send_replace(Some(resource));
                self.state.watch(kind);
            }
            None => {
                let (resources, followed) = watch::channel(Some(resource.clone()));
                let watch =
                    Watch::new(self.client.clone(), self.target(kind), self.reader(kind), sender.clone());
                let watch = watch.guarded(self.settings.guard, &self.settings.losses());
                self.tasks.spawn(watch.run(followed));
                self.state.watch(kind);
                self.running.insert(kind, RunningWatch { resource: Some(resource), resources });
            }
        }
    }

    /// Watches CustomResourceDefinitions, whose changes suggest that other kinds are served. Without the
    /// right to read them, only the periodic discovery finds new kinds.
    fn watch_definitions(&mut self, sender: mpsc::Sender<()>) {
        let client = self.client.clone();
        let cluster = self.settings.cluster.clone();
        let mut backoff = Backoff::new(BACKOFF, self.settings.jitter.fork("definitions"));
        self.tasks.spawn(async move {
            loop {
                match definitions(&client, &sender).await {
                    Ok(()) => backoff.reset(),
                    Err(error) => {
                        tracing::debug!(%cluster, reason = %error, "cannot watch CustomResourceDefinitions");
                    }
                }
                if sender.is_closed() {
                    return;
                }
                tokio::time::sleep(backoff.wait_at_least(REDISCOVER_SOON)).await;
            }
        });
    }

    /// Returns the reader of a kind's objects.
    fn reader(&self, kind: Kind) -> Reader {
        match kind {
            MESH => Reader::ConfigMaps {
                mesh_namespace: self.settings.root_namespace.clone(),
                mesh_name: self.settings.mesh_config_map.clone(),
            },
            Kind::Secret => Reader::ServedSecrets { root_namespace: self.settings.root_namespace.clone() },
            _ => Reader::Object(kind),
        }
    }

    fn target(&self, kind: Kind) -> WatchTarget {
        let KubeSourceSettings { cluster, observer, jitter, .. } = &self.settings;
        let jitter = jitter.fork(kind.plural());
        WatchTarget { cluster: cluster.clone(), kind, observer: observer.clone(), jitter }
    }

    /// Handles the end of a task: regular if its kind is gone, an error otherwise.
    fn ended(&self, ended: Result<(), tokio::task::JoinError>) -> Result<(), SourceError> {
        ended.map_err(|error| self.broken(&error))
    }

    fn broken(&self, error: &tokio::task::JoinError) -> SourceError {
        SourceError(self.settings.cluster.clone(), error.to_string())
    }
}

/// One watch of CustomResourceDefinitions, which requests their metadata only.
async fn definitions(client: &Client, sender: &mpsc::Sender<()>) -> Result<(), RequestError> {
    use futures::TryStreamExt;
    use kube::core::{PartialObjectMeta, WatchEvent};
    const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    // From any known version (0): an API server with an old etcd cannot guarantee the newest, which a list
    // without a version requests.
    let request = http::Request::get(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions\
         ?watch=true&resourceVersion=0&timeoutSeconds=300",
    )
    .header(http::header::ACCEPT, METADATA)
    .body(Vec::new())?;
    type Definition = PartialObjectMeta<
        k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    >;
    let events = client.request_events::<Definition>(request).await?;
    let mut events = std::pin::pin!(events);
    while let Some(event) = within(SILENCE, events.try_next()).await? {
        if let WatchEvent::Error(status) = event {
            return Err(RequestError::of_status(status.code, &status.message, 0));
        }
        if sender.send(()).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// Timer that detects the end of the initial updates.
struct SettleTimer {
    settle: Duration,
    at: Instant,
    /// Time at which it ends regardless of further updates.
    latest: Option<Instant>,
}

impl SettleTimer {
    fn new(settle: Duration) -> Self {
        Self { settle, at: Instant::now() + settle, latest: None }
    }

    /// Handles an update. `complete` is true if all lists were complete before.
    fn activity(&mut self, complete: bool, now: Instant) {
        self.at = now + self.settle;
        if complete {
            let latest = *self.latest.get_or_insert(now + self.settle * 10);
            self.at = self.at.min(latest);
        }
    }
}

struct DiscoverySchedule {
    at: Instant,
    /// Delay of the next discovery while kinds may still be changing.
    soon: Option<Duration>,
    backoff: Backoff,
}

impl DiscoverySchedule {
    fn new(jitter: Jitter) -> Self {
        Self { at: Instant::now(), soon: None, backoff: Backoff::new(BACKOFF, jitter) }
    }

    /// Brings discovery forward, after a sign that kinds changed. They are served a moment later.
    fn soon(&mut self, now: Instant) {
        self.soon = Some(REDISCOVER_SOON);
        self.at = self.at.min(now + REDISCOVER_SOON);
    }

    /// Schedules the discovery after this one. `found` is true if this one succeeded.
    fn done(&mut self, found: bool, now: Instant) {
        let wait = match (found, self.soon) {
            (false, _) => self.backoff.wait(),
            (true, Some(soon)) => soon,
            (true, None) => REDISCOVER_AFTER,
        };
        if found {
            self.backoff.reset();
        }
        self.soon = self.soon.map(|soon| soon * 2).filter(|soon| *soon < REDISCOVER_SOON_UNTIL);
        self.at = now + wait;
    }
}
