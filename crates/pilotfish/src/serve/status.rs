//! Writing of status to the cluster that is read, by the leading replica.
//!
//! ```text
//! control loop ── worlds ─▶ StatusTranslator (pure) ── DesiredStatuses ─▶ StatusWriter ─▶ API server
//!                                                                              ▲
//!                                               Elector ── Leadership ─────────┘
//! ```

use super::elections::elected;
use super::sources::Sources;
use super::subsystem::Subsystem;
use pilotfish_admin_state::PrometheusRecorder;
use crate::settings::{Settings, StatusSettings, WriteStatus};
use anyhow::{Context, Result};
use pilotfish_admin::Metrics;
use pilotfish_config::status::Message;
use pilotfish_control_plane::control::Shared;
use pilotfish_control_plane::control::{Findings, PlacedFinding};
use pilotfish_kube::NoopObserver;
use pilotfish_kube::client::Client;
use pilotfish_kube_writer::lease::{Leadership, LeaseSettings, STATUS_LEASE};
use pilotfish_kube_writer::status::{DesiredStatuses, StatusSettings as WriterSettings, StatusWriter};
use pilotfish_model::{ChangeSet, ClusterId, Fact, Kind, ObjectKey, Revision};
use pilotfish_translate::{Level, StatusTranslator, TranslationSettings, kinds};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

/// Returns the subsystem that writes status while this replica leads; `None` if no cluster is read, or
/// writing status is disabled.
pub(super) fn subsystem(
    settings: &Settings,
    sources: &Sources,
    shared: &Arc<Shared>,
    metrics: &Arc<Metrics>,
    revision: &watch::Sender<Revision>,
) -> Option<Subsystem> {
    let (client, _) = sources.clients().filter(|_| settings.status.write != WriteStatus::Off)?;
    let work = StatusWork {
        client: client.clone(),
        cluster: settings.registries.settings.cluster.clone(),
        translation: super::translation(settings),
        settings: settings.status,
        shared: shared.clone(),
        metrics: metrics.clone(),
        revision: revision.subscribe(),
    };
    // Each revision has its own writers.
    let lease = settings.sources.revision.name_of(STATUS_LEASE);
    let lease = LeaseSettings::new(settings.sources.root_namespace.as_str(), lease);
    Some(elected("writing status", client, lease, |leadership| work.run(leadership)))
}

/// Writer of status, for the leading replica.
struct StatusWork {
    client: Client,
    cluster: ClusterId,
    translation: TranslationSettings,
    settings: StatusSettings,
    shared: Arc<Shared>,
    metrics: Arc<Metrics>,
    revision: watch::Receiver<Revision>,
}

impl StatusWork {
    fn writer_settings(&self) -> WriterSettings {
        WriterSettings {
            cluster: self.cluster.to_string().into(),
            wanted: kinds(),
            analysed: match self.settings.write {
                WriteStatus::Off | WriteStatus::GatewayApi => Vec::new(),
                WriteStatus::All => istio_kinds(),
            },
            addresses: self.settings.address_ranges,
            revision: self.revision.clone(),
            observer: Arc::new(NoopObserver),
            written: Arc::new(PrometheusRecorder::new(self.metrics.clone())),
        }
    }

    /// Writes status in each term of leadership.
    async fn run(self, mut leadership: Leadership) -> Result<()> {
        loop {
            leadership.gained().await;
            let _gauge = LeaderGauge::set(&self.metrics);
            let (sender, wanted) = mpsc::channel(1);
            let writer = StatusWriter::new(self.client.clone(), self.writer_settings(), leadership.clone());
            let book = StatusTranslator::new(
                self.translation.clone(),
                self.cluster.clone(),
                self.settings.controllers,
            );
            tokio::select! {
                () = writer.run(wanted) => {}
                ended = follow(&self.shared, book, sender) => return ended,
            }
        }
    }
}

/// Sets the metric of leadership until dropped.
struct LeaderGauge<'a>(&'a Metrics);

impl<'a> LeaderGauge<'a> {
    fn set(metrics: &'a Metrics) -> Self {
        metrics.kube.status_leader.set(1);
        Self(metrics)
    }
}

impl Drop for LeaderGauge<'_> {
    fn drop(&mut self) {
        self.0.kube.status_leader.set(0);
    }
}

/// Returns Istio's kinds that are objects of a cluster.
fn istio_kinds() -> Vec<Kind> {
    let of_istio =
        |kind: &Kind| kind.group().ends_with(".istio.io") && pilotfish_config::served(*kind).is_some();
    Kind::ALL.iter().copied().filter(of_istio).collect()
}

/// Sends the statuses that change with each world, for the duration of the term.
async fn follow(
    shared: &Shared,
    mut book: StatusTranslator,
    sender: mpsc::Sender<DesiredStatuses>,
) -> Result<()> {
    let (mut follower, mut findings) = (shared.follow(), shared.follow_findings());
    let mut known = BTreeMap::new();
    let mut is_first = true;
    let mut newest = Arc::default();
    loop {
        let (world, changes) = tokio::select! {
            news = follower.next() => news,
            // Only the findings changed, so the last world is used again. The sender lives as long as
            // `shared`.
            Ok(()) = findings.changed(), if !is_first => (Arc::clone(&newest), ChangeSet::default()),
        };
        newest = world.clone();
        let of_objects = messages(&findings.borrow_and_update());
        let found = differing(&known, &of_objects);
        known = of_objects;
        // The first world has no differences, but all of it is new to the writer.
        let namespaces = std::mem::take(&mut is_first) || touches_namespaces(&changes);
        // Many routes take time, and this thread also serves streams.
        let work = tokio::task::spawn_blocking(move || {
            let changes = book.advance(world.clone(), &changes);
            (book, DesiredStatuses { world, changes, namespaces, findings: found })
        });
        let (after, wanted) = work.await.context("computing statuses")?;
        book = after;
        if sender.send(wanted).await.is_err() {
            // The term is over, and this future is about to be dropped.
            std::future::pending::<()>().await;
        }
    }
}

/// Returns the messages of the analysis by object.
fn messages(findings: &Findings) -> BTreeMap<ObjectKey, Vec<Message>> {
    let mut out: BTreeMap<ObjectKey, Vec<Message>> = BTreeMap::new();
    for PlacedFinding { finding, .. } in &findings.list {
        if finding.code.level() == Level::Warning {
            let text = finding.as_problem().to_string();
            out.entry(finding.object.clone()).or_default().push(Message { error: false, text });
        }
    }
    out
}

/// Returns the changed messages by object; empty for an object without messages now.
fn differing(
    before: &BTreeMap<ObjectKey, Vec<Message>>,
    after: &BTreeMap<ObjectKey, Vec<Message>>,
) -> Vec<(ObjectKey, Vec<Message>)> {
    let gone = before.keys().filter(|key| !after.contains_key(*key)).map(|key| (key.clone(), Vec::new()));
    let new = after.iter().filter(|(key, messages)| before.get(*key) != Some(*messages));
    gone.chain(new.map(|(key, messages)| (key.clone(), messages.clone()))).collect()
}

/// True if the set of namespaces in the mesh may have changed.
pub(super) fn touches_namespaces(changes: &ChangeSet) -> bool {
    [Kind::Namespace, Kind::MeshConfig].into_iter().any(|kind| changes.facts.contains(&Fact::Kind(kind)))
}
