//! State of the cluster, kept up to date by watches.

use crate::reconcile::{Cluster, ClusterSettings, Target};
use anyhow::{Result, bail};
use pilotfish_kube::NoopObserver;
use pilotfish_kube::client::Client;
use pilotfish_kube::watch::{Change, Reader, Resource, Watch, WatchTarget, WatchUpdate};
use pilotfish_model::Kind;
use pilotfish_runtime::Jitter;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// Capacity of the channel of updates.
const WAITING: usize = 1024;

/// State of the cluster with its watches, which end when this is dropped.
pub(super) struct Feed {
    client: Client,
    target: Arc<dyn Target>,
    settings: ClusterSettings,
    cluster: Cluster,
    updates: mpsc::Receiver<(Kind, WatchUpdate)>,
    received: Vec<(Kind, WatchUpdate)>,
    listed: BTreeSet<Kind>,
    failing: BTreeMap<Kind, String>,
    tasks: JoinSet<()>,
    /// Senders of the kinds' paths. A watch ends when its sender is dropped.
    _resources: Vec<watch::Sender<Option<Resource>>>,
}

fn path(kind: Kind) -> String {
    match kind.group() {
        "" => format!("/api/v1/{}", kind.plural()),
        group => format!("/apis/{group}/v1/{}", kind.plural()),
    }
}

impl Feed {
    /// Starts the watches of all kinds.
    pub(super) fn start(client: Client, target: Arc<dyn Target>, settings: ClusterSettings) -> Self {
        let (sender, updates) = mpsc::channel(WAITING);
        let (mut tasks, mut resources) = (JoinSet::new(), Vec::new());
        let jitter = Jitter::default();
        for kind in Cluster::KINDS {
            let watched = WatchTarget {
                cluster: "Kubernetes".into(),
                kind,
                observer: Arc::new(NoopObserver),
                jitter: jitter.fork(kind.plural()),
            };
            let resource = Resource { path: path(kind), labels: String::new(), fields: String::new() };
            let (keep, followed) = watch::channel(Some(resource));
            resources.push(keep);
            let watch = Watch::new(client.clone(), watched, Reader::Object(kind), sender.clone());
            tasks.spawn(watch.run(followed));
        }
        Self {
            cluster: Cluster::new(target.clone(), settings.clone()),
            client,
            target,
            settings,
            updates,
            received: Vec::new(),
            listed: BTreeSet::new(),
            failing: BTreeMap::new(),
            tasks,
            _resources: resources,
        }
    }

    /// Returns a second feed that reads the cluster from the start.
    pub(super) fn again(&self) -> Self {
        Self::start(self.client.clone(), self.target.clone(), self.settings.clone())
    }

    /// Waits for updates and applies them. Cancel-safe.
    ///
    /// # Errors
    /// When a watch ended, because the sync would continue with stale data.
    pub(super) async fn next(&mut self) -> Result<()> {
        tokio::select! {
            count = self.updates.recv_many(&mut self.received, WAITING) => {
                if count == 0 {
                    bail!("the watches of the cluster ended by themselves");
                }
            }
            Some(ended) = self.tasks.join_next() => {
                bail!("a watch of the cluster ended unexpectedly: {ended:?}")
            }
        }
        for (kind, update) in std::mem::take(&mut self.received) {
            match update {
                WatchUpdate::Changes(changes) => changes.iter().for_each(|change| self.change(change)),
                WatchUpdate::Listed => drop(self.listed.insert(kind)),
                WatchUpdate::Failed(reason) => {
                    if !self.failing.contains_key(&kind) {
                        tracing::warn!(%kind, reason, "the cluster cannot be read; what is known stays");
                    }
                    self.failing.insert(kind, reason);
                }
                WatchUpdate::Healthy => {
                    if self.failing.remove(&kind).is_some() {
                        tracing::info!(%kind, "the cluster can be read again");
                    }
                }
            }
        }
        Ok(())
    }

    fn change(&mut self, change: &Change) {
        match change {
            Change::Apply { object, .. } => self.cluster.apply(object),
            Change::Delete(key) => self.cluster.delete(key),
            Change::Rejected { key, problems, .. } => {
                let reason = problems.first().map(ToString::to_string).unwrap_or_default();
                tracing::warn!(
                    object = %key, reason,
                    "an object cannot be read; its last good version stays in force, if there is one"
                );
            }
            Change::Stored { .. } | Change::Json { .. } => {}
        }
    }

    /// True if the first lists of all kinds are complete.
    pub(super) fn is_listed(&self) -> bool {
        self.listed.len() == Cluster::KINDS.len()
    }

    /// Returns the reason why the cluster cannot be read at present, if there is one.
    pub(super) fn failure(&self) -> Option<String> {
        self.failing.iter().next().map(|(kind, reason)| format!("{}: {reason}", kind.plural()))
    }

    pub(super) fn cluster(&mut self) -> &mut Cluster {
        &mut self.cluster
    }
}
