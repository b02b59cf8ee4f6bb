//! Deployments and Services of Gateways, made by the leading replica.
//!
//! ```text
//! control loop ── worlds ─▶ GatewayTranslator (pure) ── ManagedGateways ─▶ GatewayWriter ─▶ API server
//!                                                                              ▲
//!                                               Elector ── Leadership ─────────┘
//! ```

use super::elections::elected;
use super::sources::Sources;
use super::subsystem::Subsystem;
use super::webhooks::Webhooks;
use crate::settings::{GatewaySettings, Settings};
use anyhow::{Context, Result};
use pilotfish_config::status::{CONTROLLERS, Controllers};
use pilotfish_config::{Effective, ProblemReport, Severity, SourceProblems};
use pilotfish_control_plane::control::Shared;
use pilotfish_gateway_deployer::{
    Classes, DEFAULT_TEMPLATE, DesiredGateways, GatewayBootstrap, GatewayTemplate, GatewayWriter,
    ReportProblems,
};
use pilotfish_kube::client::Client;
use pilotfish_kube_writer::lease::{Leadership, LeaseSettings};
use pilotfish_model::ObjectKey;
use pilotfish_translate::{GatewayTranslator, TranslationSettings};
use std::sync::Arc;
use tokio::sync::watch;

/// Lease of the replica that makes Deployments and Services.
const LEASE: &str = "pilotfish-gateway-leader";

/// Source of the problems of Gateways.
const SOURCE: &str = "Deployments of Gateways";

/// Returns the subsystem that makes the objects of Gateways while this replica leads; `None` if that is
/// disabled.
///
/// # Errors
/// When the template cannot be read, or is wrong.
pub(super) fn subsystem(
    settings: &Settings,
    sources: &Sources,
    shared: &Arc<Shared>,
    webhooks: Option<&Webhooks>,
) -> Result<Option<Subsystem>> {
    let (Some(gateways), Some((client, _)), Some(webhooks)) =
        (&settings.gateways, sources.clients(), webhooks)
    else {
        return Ok(None);
    };
    let target = webhooks.target();
    let bootstrap: GatewayBootstrap = Arc::new(move |workload| {
        // Without authorities an Envoy could not verify Pilotfish, ever.
        target.is_ready().then(|| target.gateway_bootstrap(workload))
    });
    let work = GatewayWork {
        client: client.clone(),
        template: Arc::new(template(gateways, bootstrap, settings)?),
        translation: super::translation(settings),
        controllers: settings.status.controllers,
        istio_class: gateways.istio_class,
        shared: shared.clone(),
    };
    let lease = settings.sources.revision.name_of(LEASE);
    let lease = LeaseSettings::new(settings.sources.root_namespace.as_str(), lease);
    Ok(Some(elected("making Deployments of Gateways", client, lease, |leadership| work.run(leadership))))
}

fn template(
    gateways: &GatewaySettings,
    bootstrap: GatewayBootstrap,
    settings: &Settings,
) -> Result<GatewayTemplate> {
    let text = match &gateways.template {
        Some(path) => {
            std::fs::read_to_string(path).with_context(|| format!("--gateway-template {}", path.display()))?
        }
        None => DEFAULT_TEMPLATE.to_owned(),
    };
    let revision = &settings.sources.revision;
    GatewayTemplate::new(&text, gateways.values.clone(), bootstrap, revision).context("--gateway-template")
}

/// Maker of the objects of Gateways, for the leading replica.
struct GatewayWork {
    client: Client,
    template: Arc<GatewayTemplate>,
    translation: TranslationSettings,
    controllers: Controllers,
    istio_class: bool,
    shared: Arc<Shared>,
}

impl GatewayWork {
    /// Makes objects in each term of leadership.
    async fn run(self, mut leadership: Leadership) -> Result<()> {
        loop {
            leadership.gained().await;
            let (sender, desired) = watch::channel(None);
            let mut term = leadership.clone();
            let leads = leadership.clone();
            let pilotfish = self.controllers.names().contains(&CONTROLLERS[1]);
            let writer = GatewayWriter::new(
                self.client.clone(),
                self.template.clone(),
                Arc::new(move || leads.until()),
                Classes { pilotfish, istio: self.istio_class },
                reporter(&self.shared),
            );
            let book = GatewayTranslator::new(self.translation.clone(), self.controllers);
            tokio::select! {
                () = term.lost() => {}
                () = writer.run(desired) => {}
                ended = follow(&self.shared, book, &sender) => return ended,
            }
            // The replica that leads now reports them.
            self.shared.remove_problems(SOURCE);
        }
    }
}

/// Reports Gateways whose objects cannot be made, as warnings: they are served where Pods of theirs run.
fn reporter(shared: &Arc<Shared>) -> ReportProblems {
    let shared = shared.clone();
    Arc::new(move |problems| {
        let report = |(key, reason): (&ObjectKey, &String)| ProblemReport {
            severity: Severity::Warning,
            file: SOURCE.into(),
            document: 0,
            line: 0,
            object: Some(key.clone()),
            revision: None,
            path: String::new(),
            message: format!("its Deployment and Service cannot be made: {reason}"),
            count: None,
            hint: None,
            effective: Effective::Written,
        };
        let reports = problems.iter().map(report).collect();
        shared.set_problems(SOURCE, &Arc::new(SourceProblems { reports, ..SourceProblems::default() }));
    })
}

/// Publishes the Gateways that change with each world. Returns only on a failure.
async fn follow(
    shared: &Shared,
    mut book: GatewayTranslator,
    sender: &watch::Sender<Option<DesiredGateways>>,
) -> Result<()> {
    let mut follower = shared.follow();
    loop {
        let (world, changes) = follower.next().await;
        // Many Gateways take time, and this thread also serves streams.
        let work = tokio::task::spawn_blocking(move || {
            let gateways = book.advance(world, &changes);
            (book, gateways)
        });
        let (after, gateways) = work.await.context("computing the objects of Gateways")?;
        book = after;
        if let Some(gateways) = gateways {
            sender.send_replace(Some(gateways));
        }
    }
}
