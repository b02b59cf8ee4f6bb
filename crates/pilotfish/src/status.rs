//! Writing status back to the cluster that is read: by the one replica that leads.
//!
//! ```text
//! control loop ── worlds ─▶ StatusTranslator (pure: which statuses differ) ── Wanted ─▶ StatusWriter ─▶ API server
//!                                                                                   ▲
//!                                                    Elector ── Leadership ─────────┘
//! ```

use crate::election::Elections;
use crate::recorder::Counted;
use crate::settings::{Settings, WriteStatus};
use crate::shared::{Follower, Shared};
use anyhow::{Context, Result};
use pilotfish_admin::Metrics;
use pilotfish_config::status::Controllers;
use pilotfish_kube::Silent;
use pilotfish_kube::client::{self, Client};
use pilotfish_kube::lease::{Leadership, LeaseSettings, STATUS_LEASE};
use pilotfish_kube::status::{AddressRanges, StatusSettings, StatusWriter, Wanted};
use pilotfish_model::{ChangeSet, ClusterDomain, ClusterId, Fact, Kind};
use pilotfish_translate::{StatusTranslator, kinds};
use std::sync::Arc;
use tokio::sync::mpsc;

/// What is needed to write status.
pub struct StatusWriting {
    client: Client,
    lease: LeaseSettings,
    cluster: ClusterId,
    domain: Arc<str>,
    mode: WriteStatus,
    controllers: Controllers,
    addresses: Option<AddressRanges>,
}

impl StatusWriting {
    /// What is needed, where a cluster is read and status shall be written.
    ///
    /// # Errors
    /// When there is no such cluster.
    pub async fn open(settings: &Settings) -> Result<Option<Self>> {
        let Some(wanted) = settings.kubernetes.as_ref().filter(|_| settings.write_status != WriteStatus::Off)
        else {
            return Ok(None);
        };
        Ok(Some(Self {
            client: client::connect(wanted).await.context("--kubernetes")?,
            lease: LeaseSettings::new(settings.root_namespace.as_str(), STATUS_LEASE),
            cluster: settings.registry.cluster.clone(),
            domain: settings.registry.domain.clone(),
            mode: settings.write_status,
            controllers: settings.status_controllers,
            addresses: settings.allocation_ranges,
        }))
    }

    /// Takes part in the election, and writes while it leads.
    pub(crate) fn stand(self, elections: &mut Elections, shared: Arc<Shared>, metrics: Arc<Metrics>) {
        let (client, lease) = (self.client.clone(), self.lease.clone());
        elections.stand("writing status", client, lease, |leadership| async move {
            self.write(&shared, &metrics, leadership).await
        });
    }

    fn settings(&self, metrics: &Arc<Metrics>) -> StatusSettings {
        StatusSettings {
            cluster: self.cluster.to_string().into(),
            wanted: kinds(),
            analysed: match self.mode {
                WriteStatus::Off | WriteStatus::GatewayApi => Vec::new(),
                WriteStatus::All => istio_kinds(),
            },
            addresses: self.addresses,
            observer: Arc::new(Silent),
            written: Arc::new(Counted(metrics.clone())),
        }
    }

    /// Writes, term by term.
    async fn write(&self, shared: &Shared, metrics: &Arc<Metrics>, mut leadership: Leadership) -> Result<()> {
        loop {
            leadership.gained().await;
            let _leads = Leads::new(metrics);
            let (say, wanted) = mpsc::channel(1);
            let settings = self.settings(metrics);
            let writer = StatusWriter::new(self.client.clone(), settings, leadership.clone());
            let book = StatusTranslator::new(
                ClusterDomain::new(&self.domain),
                self.cluster.clone(),
                self.controllers,
            );
            tokio::select! {
                () = writer.run(wanted) => {}
                ended = follow(shared.follow(), book, say) => return ended,
            }
        }
    }
}

/// Says in the metrics that this replica leads, until it is dropped.
struct Leads<'a>(&'a Metrics);

impl<'a> Leads<'a> {
    fn new(metrics: &'a Metrics) -> Self {
        metrics.kube.status_leader.set(1);
        Self(metrics)
    }
}

impl Drop for Leads<'_> {
    fn drop(&mut self) {
        self.0.kube.status_leader.set(0);
    }
}

/// Istio's kinds that are objects of a cluster.
fn istio_kinds() -> Vec<Kind> {
    let of_istio =
        |kind: &Kind| kind.group().ends_with(".istio.io") && pilotfish_config::served(*kind).is_some();
    Kind::ALL.iter().copied().filter(of_istio).collect()
}

/// Says of each world which statuses differ, for as long as somebody listens.
async fn follow(mut follower: Follower, mut book: StatusTranslator, say: mpsc::Sender<Wanted>) -> Result<()> {
    let mut is_first = true;
    loop {
        let (world, changes) = follower.next().await;
        // The first world differs from nothing, and is all news all the same.
        let namespaces = std::mem::take(&mut is_first) || touches_namespaces(&changes);
        // Many routes take their time, which must not be taken from streams.
        let work = tokio::task::spawn_blocking(move || {
            let changes = book.advance(world.clone(), &changes);
            (book, Wanted { world, changes, namespaces })
        });
        let (after, wanted) = work.await.context("computing statuses")?;
        book = after;
        if say.send(wanted).await.is_err() {
            // The term is over, and with it this future.
            std::future::pending::<()>().await;
        }
    }
}

/// Whether other namespaces may take part in the mesh than before.
fn touches_namespaces(changes: &ChangeSet) -> bool {
    [Kind::Namespace, Kind::MeshConfig].into_iter().any(|kind| changes.facts.contains(&Fact::Kind(kind)))
}
