//! ConfigMap `istio-ca-root-cert` with the roots of the mesh, in each namespace that takes part: workloads
//! verify control plane and peers with it.
//!
//! ```text
//! desired roots, namespaces ─┐
//!                            ├─▶ queue (pure) ─ one write at a time ─▶ API server
//! watch of the ConfigMaps ───┘
//! ```

mod queue;

use crate::lease::Leadership;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use pilotfish_admission::LogLimit;
use pilotfish_kube::request::{BACKOFF, RequestError, until};
use pilotfish_kube::watch::{Change, Observer, Reader, Resource, Watch, WatchTarget, WatchUpdate};
use pilotfish_model::Kind;
use pilotfish_runtime::{Backoff, ErrorClass, Health, Jitter};
use queue::RootsQueue;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// Name of the ConfigMap.
pub const NAME: &str = "istio-ca-root-cert";
/// Field manager of the writes.
pub const FIELD_MANAGER: &str = "pilotfish-ca";
/// Key of the roots in the ConfigMap.
const KEY: &str = "root-cert.pem";
/// Label that istiod gives the ConfigMap.
const LABEL: (&str, &str) = ("istio.io/config", "true");
/// Timeout of one write.
const ANSWER: Duration = Duration::from_secs(10);
/// Maximum number of queued watch updates.
const WAITING: usize = 1024;

/// Roots in PEM, and the namespaces that have them in a ConfigMap. Nothing is written without roots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesiredRoots {
    pub roots: Arc<str>,
    pub namespaces: BTreeSet<Arc<str>>,
}

/// Writer of the ConfigMaps.
pub struct RootsWriter {
    client: Client,
    leadership: Leadership,
    /// Cluster and observer of the watch.
    target: WatchTarget,
    queue: RootsQueue,
    backoff: Backoff,
    /// Health of the watch.
    health: Health,
    log: LogLimit,
}

impl RootsWriter {
    /// Creates a writer for the cluster of that client.
    #[must_use]
    pub fn new(
        client: Client,
        cluster: impl Into<Arc<str>>,
        observer: Arc<dyn Observer>,
        leadership: Leadership,
    ) -> Self {
        let jitter = Jitter::default();
        let backoff = Backoff::new(BACKOFF, jitter.fork("writes"));
        let target = WatchTarget { cluster: cluster.into(), kind: Kind::ConfigMap, observer, jitter };
        let (queue, health, log) = Default::default();
        Self { client, leadership, target, queue, backoff, health, log }
    }

    /// Writes until the sender is dropped, or this replica no longer leads.
    pub async fn run(mut self, mut desired: watch::Receiver<DesiredRoots>) {
        let (sender, mut updates) = mpsc::channel(WAITING);
        // Its other end is kept: the kind is always served.
        let (_resource, resources) = watch::channel(Some(resource()));
        let watch =
            Watch::new(self.client.clone(), self.target.clone(), Reader::Json(Kind::ConfigMap), sender);
        let mut watch = std::pin::pin!(watch.run(resources));
        let mut leadership = self.leadership.clone();
        desired.mark_changed();
        loop {
            let due = self.queue.next();
            let now = Instant::now();
            tokio::select! {
                biased;
                () = leadership.lost() => return,
                () = &mut watch => return,
                changed = desired.changed() => match changed {
                    Ok(()) => {
                        let new = desired.borrow_and_update().clone();
                        self.queue.set_desired(new, Instant::now());
                    }
                    Err(_) => return,
                },
                Some((_, update)) = updates.recv() => self.handle_watch(update),
                () = tokio::time::sleep_until(due.unwrap_or(now)), if due.is_some() => self.write().await,
            }
        }
    }

    fn handle_watch(&mut self, update: WatchUpdate) {
        let now = Instant::now();
        match update {
            WatchUpdate::Changes(changes) => {
                for change in changes {
                    match change {
                        Change::Json { key, json } => {
                            self.queue.stored(key.namespace.as_str(), stored_roots(&json).as_deref(), now);
                        }
                        Change::Delete(key) => self.queue.stored(key.namespace.as_str(), None, now),
                        // Sent by other readers only.
                        Change::Apply { .. } | Change::Rejected { .. } | Change::Stored { .. } => {}
                    }
                }
            }
            WatchUpdate::Listed => self.queue.listed(now),
            WatchUpdate::Failed(reason) => {
                if self.health.failed(reason.as_str(), SystemTime::now()) {
                    tracing::warn!(
                        config_map = NAME,
                        reason,
                        "cannot read the ConfigMaps with the mesh's roots; none is written until it can"
                    );
                }
            }
            WatchUpdate::Healthy => {
                if self.health.recovered().is_some() {
                    tracing::info!(
                        config_map = NAME,
                        "the ConfigMaps with the mesh's roots can be read again"
                    );
                }
            }
        }
    }

    /// Writes the ConfigMap that is due.
    async fn write(&mut self) {
        let now = Instant::now();
        // Checked before each write: only the current leader may write.
        let Some(leads) = self.leadership.until() else { return };
        let Some((namespace, roots)) = self.queue.take(now) else { return };
        let written = apply(&self.client, &namespace, &roots, leads.min(now + ANSWER)).await;
        match &written {
            Ok(()) => {
                self.backoff.reset();
                tracing::debug!(%namespace, config_map = NAME, "wrote the mesh's roots");
            }
            Err(error) => self.failed(&namespace, error),
        }
        if self.queue.ended(&namespace, &roots, written.is_ok(), Instant::now()) {
            tracing::warn!(
                %namespace,
                config_map = NAME,
                "another writer keeps changing the mesh's roots; they are written again at longer intervals, \
                 of five minutes at most"
            );
        }
    }

    fn failed(&mut self, namespace: &str, error: &RequestError) {
        if error.class == ErrorClass::Gone || is_terminating(error) {
            // The namespace is being deleted, so it will soon not be desired any more.
            return;
        }
        if error.class == ErrorClass::Transient {
            self.queue.pause(Instant::now() + self.backoff.wait_at_least(error.retry_after));
        }
        if let Some(left_out) = self.log.allow(Instant::now().into_std()) {
            tracing::warn!(
                namespace,
                config_map = NAME,
                reason = %error,
                left_out,
                "cannot write the mesh's roots; retrying"
            );
        }
    }
}

/// The ConfigMaps of that name in all namespaces.
fn resource() -> Resource {
    Resource {
        path: "/api/v1/configmaps".to_owned(),
        labels: String::new(),
        fields: format!("metadata.name={NAME}"),
    }
}

/// Returns the roots in a ConfigMap; `None` if they, or its label, are missing.
fn stored_roots(json: &str) -> Option<String> {
    let map: ConfigMap = serde_json::from_str(json).ok()?;
    let is_labelled = map.metadata.labels?.get(LABEL.0).is_some_and(|value| value == LABEL.1);
    map.data.filter(|_| is_labelled)?.remove(KEY)
}

/// True if objects cannot be created because their namespace is being deleted.
fn is_terminating(error: &RequestError) -> bool {
    error.status == Some(403) && error.message.contains("because it is being terminated")
}

/// Creates or updates a ConfigMap. Other keys and labels stay.
async fn apply(client: &Client, namespace: &str, roots: &str, limit: Instant) -> Result<(), RequestError> {
    let path =
        format!("/api/v1/namespaces/{namespace}/configmaps/{NAME}?fieldManager={FIELD_MANAGER}&force=true");
    let request = http::Request::patch(path)
        .header(http::header::CONTENT_TYPE, "application/apply-patch+yaml")
        .body(body(namespace, roots).to_string().into_bytes())?;
    until(limit, client.request::<Value>(request)).await.map(drop)
}

fn body(namespace: &str, roots: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": NAME, "namespace": namespace, "labels": {LABEL.0: LABEL.1}},
        "data": {KEY: roots},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_config_map_has_the_roots_and_one_without_the_label_counts_as_missing() {
        let read = |value: &Value| stored_roots(&value.to_string());
        let mut value = body("shop", "some roots");
        assert_eq!(read(&value).as_deref(), Some("some roots"));
        value["metadata"]["labels"] = json!({"istio.io/config": "false"});
        assert_eq!(read(&value), None);
        value["metadata"]["labels"] = json!({LABEL.0: LABEL.1});
        value["data"] = json!({"other": "some roots"});
        assert_eq!(read(&value), None);
    }

    #[test]
    fn refusals_of_namespaces_that_are_deleted_are_no_failures() {
        let message = "configmaps \"istio-ca-root-cert\" is forbidden: unable to create new content in \
                       namespace shop because it is being terminated";
        assert!(is_terminating(&RequestError::of_status(403, message, 0)));
        let message = "configmaps \"istio-ca-root-cert\" is forbidden: User \"pilotfish\" cannot patch";
        assert!(!is_terminating(&RequestError::of_status(403, message, 0)));
    }
}
