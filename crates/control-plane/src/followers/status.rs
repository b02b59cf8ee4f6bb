//! Writing of status to the cluster that is read, by the leading replica.
//!
//! ```text
//! control loop ── worlds ─▶ StatusTranslator (pure) ── DesiredStatuses ─▶ StatusWriter ─▶ API server
//!                                                                              ▲
//!                                               Elector ── Leadership ─────────┘
//! ```

use crate::control::{Findings, PlacedFinding, Shared};
use anyhow::{Context, Result};
use pilotfish_config::status::{Controllers, Message};
use pilotfish_kube::NoopObserver;
use pilotfish_kube::client::Client;
use pilotfish_kube_writer::lease::Leadership;
use pilotfish_kube_writer::status::{
    AddressRanges, DesiredStatuses, StatusSettings, StatusWriter, WriteObserver,
};
use pilotfish_model::{ChangeSet, ClusterId, Fact, Kind, ObjectKey, Revision};
use pilotfish_translate::{Level, StatusTranslator, TranslationSettings, kinds};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

/// Observer of written statuses and of the leadership for them, for metrics.
pub trait StatusObserver: WriteObserver {
    /// This replica began or ended to write status.
    fn writes_status(&self, leads: bool);
}

/// Writer of status, for the leading replica.
pub struct StatusPublisher<O> {
    pub client: Client,
    /// Cluster whose objects get status.
    pub cluster: ClusterId,
    pub translation: TranslationSettings,
    /// Gateway controllers whose classes count as ours.
    pub controllers: Controllers,
    /// True if Istio's own kinds get status, too, and not only those of the Gateway API.
    pub istio: bool,
    /// Ranges of the addresses that are allocated in statuses, if they are.
    pub addresses: Option<AddressRanges>,
    /// True if Deployments of Gateways are made.
    pub deploys: bool,
    pub shared: Arc<Shared>,
    pub revision: watch::Receiver<Revision>,
    pub observer: Arc<O>,
}

impl<O: StatusObserver + 'static> StatusPublisher<O> {
    fn writer_settings(&self) -> StatusSettings {
        StatusSettings {
            cluster: self.cluster.to_string().into(),
            wanted: kinds(),
            analysed: if self.istio { istio_kinds() } else { Vec::new() },
            addresses: self.addresses,
            revision: self.revision.clone(),
            observer: Arc::new(NoopObserver),
            written: self.observer.clone(),
        }
    }

    /// Writes status in each term of leadership.
    ///
    /// # Errors
    /// When the computation of statuses panics.
    pub async fn run(self, mut leadership: Leadership) -> Result<()> {
        loop {
            leadership.gained().await;
            let _term = Term::begin(&*self.observer);
            let (sender, wanted) = mpsc::channel(1);
            let writer = StatusWriter::new(self.client.clone(), self.writer_settings(), leadership.clone());
            let book =
                StatusTranslator::new(self.translation.clone(), self.cluster.clone(), self.controllers)
                    .with_deployments(self.deploys);
            tokio::select! {
                () = writer.run(wanted) => {}
                ended = follow(&self.shared, book, sender) => return ended,
            }
        }
    }
}

/// Term of leadership, reported to the observer until dropped.
struct Term<'a, O: StatusObserver>(&'a O);

impl<'a, O: StatusObserver> Term<'a, O> {
    fn begin(observer: &'a O) -> Self {
        observer.writes_status(true);
        Self(observer)
    }
}

impl<O: StatusObserver> Drop for Term<'_, O> {
    fn drop(&mut self) {
        self.0.writes_status(false);
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
#[must_use]
pub fn touches_namespaces(changes: &ChangeSet) -> bool {
    [Kind::Namespace, Kind::MeshConfig].into_iter().any(|kind| changes.facts.contains(&Fact::Kind(kind)))
}
