//! `pilotfish serve`: bind, report, run, drain.
//!
//! Everything that runs is a [`Subsystem`]: [`Bound::bind`] opens and binds each, and lists it;
//! [`Bound::run`] knows only the list.

mod admin;
pub(crate) mod auto_registration;
pub(crate) mod ca;
mod configuration;
mod control_loop;
mod descriptors;
mod elections;
mod exports;
mod gateways;
mod history;
mod jwt;
mod lookups;
mod polled_files;
pub(crate) mod registration;
mod registries;
mod revision_tags;
mod revocation;
pub(crate) mod secret_access;
mod sources;
mod status;
mod subsystem;
mod tls;
mod traces;
pub(crate) mod webhooks;
mod xds;

use crate::settings::{RegistriesSettings, Settings};
use admin::AdminListeners;
use anyhow::Result;
use auto_registration::AutoRegistration;
use ca::{Ca, CaService, WorkloadSecrets, WorkloadSecretsHook};
use parking_lot::Mutex;
use pilotfish_admin::{Feed, Metrics, Permissions};
use pilotfish_admin_state::PrometheusRecorder;
use pilotfish_admin_state::istioctl::{self, Answerer, Budget, Questions};
use pilotfish_admin_state::{AdminState, AuthorityOperations, LastNode, Refusals, send_events};
use pilotfish_control_plane::control::{Control, Outputs, RemoteRegistries, Shared};
use pilotfish_control_plane::followers::Analysis;
use pilotfish_control_plane::likely_causes::{self, Refused};
use pilotfish_control_plane::resources::{
    Configuration, ConfigurationClients, ConnectHook, NodeClaims, Resources, SecretRights,
};
use pilotfish_model::{ClusterDomain, Revision};
use pilotfish_registry::MultiClusterServices;
use pilotfish_translate::{Analyzer, Known, TranslationSettings, Translator};
use pilotfish_xds::{Fanout, StreamLimits};
use registration::Registration;
use registries::Registries;
use sources::Sources;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use subsystem::{StopOrder, Subsystem, Subsystems};
use tokio::sync::{mpsc, watch};
use webhooks::Webhooks;

/// Version of this program.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Capacity of the queue of batches for the control loop. Sources wait while it is full.
const WAITING_BATCHES: usize = 64;
/// Limit on the resources of a refusal for which the log line names the objects.
const REFUSED: usize = 100;

/// Control plane with bound addresses that does not serve yet.
pub(crate) struct Bound {
    addresses: Addresses,
    admin_state: Arc<AdminState>,
    subsystems: Subsystems,
    drain_deadline: Duration,
}

/// Bound addresses; `None` for disabled listeners.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    pub(crate) xds: SocketAddr,
    pub(crate) secure_xds: Option<SocketAddr>,
    pub(crate) admin: SocketAddr,
    pub(crate) secure_admin: Option<SocketAddr>,
    pub(crate) webhooks: Option<SocketAddr>,
    pub(crate) registration: Option<SocketAddr>,
    pub(crate) consul: Option<SocketAddr>,
    pub(crate) eureka: Option<SocketAddr>,
    pub(crate) nacos: Option<SocketAddr>,
}

impl Bound {
    /// Opens the sources and binds the addresses.
    ///
    /// # Errors
    /// When a path or a mesh file is wrong, or an address is taken.
    pub(crate) async fn bind(settings: Settings) -> Result<Self> {
        let admin = AdminListeners::bind(&settings.admin).await?;
        let recorder = Arc::new(PrometheusRecorder::new(Arc::new(Metrics::new(VERSION)?)));
        let (shared, mut subsystems) = (Arc::new(Shared::default()), Subsystems::default());
        let revision = watch::Sender::new(settings.sources.revision.clone());
        let mut registries = Registries::open(&settings)?;
        let sources = Sources::open(&settings, &mut registries, &recorder, &shared).await?;
        let (jwt, keys) = jwt::open(&settings, &shared, recorder.metrics())?;
        let registration = Registration::open(&settings, &mut registries, &shared, &recorder, &jwt).await?;
        let auto_registration = AutoRegistration::open(&settings, &sources, &shared, recorder.clone());
        let translator = Arc::new(Translator::with_settings(translation(&settings)));
        let (ca, ca_reload) = Ca::open(&settings, &sources, recorder.metrics()).await?.unzip();
        let (certificates, secrets) = certificate_services(ca.as_ref(), &shared, &recorder).unzip();
        let (rights, reviews) = secret_access::open(&settings, &sources).unzip();
        let (questions, asked) = Questions::new(settings.admin.allow_remote_debug);
        let configuration = configuration(&settings);
        let hooks = hooks(rights, secrets.clone(), auto_registration.as_ref(), questions, &configuration);
        let resources = Arc::new(Resources::new(translator.clone(), settings.xds.trust_nodes, hooks));
        let fanout = Fanout::new(resources.clone(), recorder.clone(), stream_limits(&settings));
        name_suspects(&recorder, &translator, &shared);
        let (outputs, names) = outputs(&translator, &resources, &fanout, &shared);
        let (messages, inbox) = mpsc::channel(WAITING_BATCHES);
        let (controller, feed, live) = registries.into_parts(&messages, &shared);
        let remote = remote_registries(feed, &settings.registries)?;
        let control = Control::new(controller, remote, settings.xds.windows, outputs, recorder.clone());
        let analysis = analysis(&settings, &shared);
        let webhooks = Webhooks::bind(&settings, &recorder, &analysis, &revision, ca.as_ref()).await?;
        let methods = (certificates, webhooks.as_ref());
        let (secure, reload) = tls::open(&settings, &sources, methods, &shared, &recorder, &jwt)?.unzip();
        let xds = xds::bind(&settings.xds, fanout.clone(), secure, settings.registration.is_some())?;
        let admin_state = Arc::new(AdminState {
            shared: shared.clone(),
            resources,
            fanout: fanout.clone(),
            translator,
            webhooks: webhooks.as_ref().map(Webhooks::view),
            registrar: registration.as_ref().map(Registration::registrar),
            ca: ca.clone().map(|ca| ca as Arc<dyn AuthorityOperations>),
            control: messages.downgrade(),
            refusals: Refusals::default(),
            last_node: LastNode::default(),
            plans: Mutex::default(),
        });
        let addresses = addresses(&xds, &admin, webhooks.as_ref(), registration.as_ref());
        let permissions = admin::permissions(&settings, &sources, &shared, recorder.metrics(), jwt)?;
        let pages = Pages { permissions, asked, ca: ca.clone() };
        subsystems.add(control_loop::subsystem(control, inbox));
        subsystems.extend(reviews.map(|reviews| secret_access::subsystem(reviews, messages.clone())));
        subsystems.add(lookups::subsystem(names, messages.clone()));
        subsystems.extend(of_leader(&settings, &sources, &shared, &recorder, &revision, ca.as_ref()));
        subsystems.extend(gateways::subsystem(&settings, &sources, &shared, webhooks.as_ref())?);
        subsystems.extend(followers(&settings, &sources, &fanout, &shared, &configuration, &analysis));
        subsystems.extend(sources.subsystems(messages, &shared, revision));
        subsystems.extend(live.into_iter().chain(keys).chain(webhooks.map(Webhooks::subsystem)));
        subsystems.extend(pages.subsystems(admin, &admin_state, &recorder, &settings)?);
        subsystems.extend(reloads(reload, (ca, ca_reload), secrets, &shared).chain([xds::subsystem(xds)]));
        subsystems.extend(auto_registration.map(|registration| registration.subsystem(&shared)));
        subsystems.extend(registration.into_iter().flat_map(Registration::subsystems));
        Ok(Self { addresses, admin_state, subsystems, drain_deadline: settings.xds.drain_deadline })
    }

    /// Returns the bound addresses.
    pub(crate) fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Returns the state behind the admin API, for the demo.
    pub(crate) fn admin_state(&self) -> Arc<AdminState> {
        self.admin_state.clone()
    }

    /// Serves until `stop` resolves, then drains: not ready, no new connections, streams ended, at the latest
    /// after the deadline.
    ///
    /// # Errors
    /// When a subsystem ends without being stopped, because serving stale data would be worse.
    pub(crate) async fn run(self, stop: impl Future<Output = ()> + Send) -> Result<()> {
        let mut running = self.subsystems.start();
        tokio::select! {
            () = stop => {}
            error = running.ended() => return Err(error),
        }
        tracing::info!(
            deadline = ?self.drain_deadline,
            "stopping: streams are ended, proxies keep what they have"
        );
        self.admin_state.shared.drain();
        // The xDS server cuts streams at the deadline itself; this one is for everything else that might
        // hang.
        running.stop(self.drain_deadline + Duration::from_secs(1)).await;
        Ok(())
    }
}

/// Pages for operators.
struct Pages {
    /// Permissions of clients, with the subsystem that reloads them.
    permissions: (Permissions, Option<Subsystem>),
    /// Questions of `istioctl`.
    asked: istioctl::Queue,
    ca: Option<Arc<Ca>>,
}

impl Pages {
    /// Returns the subsystems for operators: admin servers, answers to `istioctl`, log of changes and their
    /// traces.
    ///
    /// # Errors
    /// When the address of the collector is not a URI, or the certificates of the admin server cannot be
    /// used.
    fn subsystems(
        self,
        admin: AdminListeners,
        state: &Arc<AdminState>,
        recorder: &Arc<PrometheusRecorder>,
        settings: &Settings,
    ) -> Result<Vec<Subsystem>> {
        let metrics = recorder.metrics();
        let feed = Arc::new(Feed::default());
        let (permissions, reload) = self.permissions;
        let router =
            pilotfish_admin::router(state.clone(), metrics.clone(), feed.clone(), VERSION, permissions);
        state.shared.history().set_budget(settings.admin.history_bytes);
        let (traces, exporter) = traces::open(settings.telemetry.as_ref(), recorder)?.unzip();
        let servers = admin.subsystems(&settings.admin, self.ca.as_ref(), metrics, &router)?;
        let others = [
            history::subsystem(&state.shared, &state.fanout, recorder, traces),
            answers(self.asked, state, router),
            dashboard(state, metrics, feed),
        ];
        Ok(exporter.into_iter().chain(reload).chain(others).chain(servers).collect())
    }
}

/// Returns the subsystems that follow published worlds in each replica.
fn followers(
    settings: &Settings,
    sources: &Sources,
    fanout: &Arc<Fanout<Resources>>,
    shared: &Arc<Shared>,
    configuration: &Arc<Configuration>,
    analysis: &Arc<Analysis>,
) -> impl Iterator<Item = Subsystem> {
    let revocation = revocation::subsystem(settings, sources, fanout);
    let configuration = configuration::subsystem(configuration, fanout, shared);
    revocation.into_iter().chain(configuration).chain([analyses(analysis)])
}

/// Returns the subsystems of which one replica does the work: writing status, exports and roots.
fn of_leader(
    settings: &Settings,
    sources: &Sources,
    shared: &Arc<Shared>,
    recorder: &Arc<PrometheusRecorder>,
    revision: &watch::Sender<Revision>,
    ca: Option<&Arc<Ca>>,
) -> impl Iterator<Item = Subsystem> {
    let roots = ca.and_then(|ca| ca::roots::subsystem(settings, sources, ca, shared, recorder));
    let status = status::subsystem(settings, sources, shared, recorder, revision);
    [status, exports::subsystem(settings, sources, shared), roots].into_iter().flatten()
}

/// Returns the subsystems that read certificates again, and that make those of workloads.
fn reloads(
    tls: Option<tls::Reload>,
    (ca, ca_reload): (Option<Arc<Ca>>, Option<ca::CaReload>),
    secrets: Option<Arc<WorkloadSecrets>>,
    shared: &Shared,
) -> impl Iterator<Item = Subsystem> {
    let bundles = ca.map(|ca| ca.bundles().clone().subsystem(shared));
    let read = tls.map(tls::Reload::subsystem).into_iter().chain(ca_reload.map(ca::CaReload::subsystem));
    read.chain(bundles).chain(secrets.map(WorkloadSecrets::subsystem))
}

/// Returns the subsystem that answers tools over xDS.
fn answers(asked: istioctl::Queue, state: &AdminState, pages: axum::Router) -> Subsystem {
    let (fanout, translator) = (state.fanout.clone(), state.translator.clone());
    let answerer = Arc::new(Answerer { pages, fanout, translator, budget: Budget::default() });
    Subsystem::new("answers to istioctl", StopOrder::Abort).task(|_| async {
        answerer.run(asked).await;
        Ok(())
    })
}

/// Returns the subsystem that samples the dashboard's metrics and sends its events.
fn dashboard(state: &Arc<AdminState>, metrics: &Arc<Metrics>, feed: Arc<Feed>) -> Subsystem {
    let (state, metrics) = (state.clone(), metrics.clone());
    Subsystem::new("events of the dashboard", StopOrder::First).task(|stop| async {
        send_events(state, metrics, feed, stop.requested()).await;
        Ok(())
    })
}

/// Returns the addresses of the listeners that always exist, and of webhooks.
fn addresses(
    xds: &pilotfish_xds::Bound<Resources>,
    admin: &AdminListeners,
    webhooks: Option<&Webhooks>,
    registration: Option<&Registration>,
) -> Addresses {
    let (admin, secure_admin) = admin.addresses();
    Addresses {
        xds: xds.local_addr(),
        secure_xds: xds.secure_addr(),
        admin,
        secure_admin,
        webhooks: webhooks.map(Webhooks::address),
        registration: registration.map(Registration::address),
        consul: registration.and_then(Registration::consul_address),
        eureka: registration.and_then(Registration::eureka_address),
        nacos: registration.and_then(Registration::nacos_address),
    }
}

/// Returns the limits of a stream.
fn stream_limits(settings: &Settings) -> StreamLimits {
    StreamLimits { subscriptions: settings.xds.max_subscriptions, ..StreamLimits::default() }
        .with_all_subscription_bytes(settings.xds.max_all_subscription_bytes)
        .with_all_node_bytes(settings.xds.max_all_node_bytes)
}

/// Connects the recorder to the translator and the history, so that log lines about refusals name objects and
/// the history has the clients.
fn name_suspects(recorder: &PrometheusRecorder, translator: &Arc<Translator>, shared: &Arc<Shared>) {
    recorder.note_refusals(shared.history());
    let (translator, shared) = (translator.clone(), shared.clone());
    recorder.name_suspects(move |nack| {
        let mut names = nack.refused();
        names.truncate(REFUSED);
        let view = pilotfish_translate::ViewId(nack.view.0);
        let (after, until, reason) = (nack.after, nack.revision, nack.reason());
        let refused = Refused { view, names: &names, after, until, reason: &reason };
        likely_causes::of(&refused, &translator.snapshot(), &shared)
    });
}

/// Returns the receivers of new worlds, and the names of gateways to look up.
fn outputs(
    translator: &Arc<Translator>,
    resources: &Arc<Resources>,
    fanout: &Arc<Fanout<Resources>>,
    shared: &Arc<Shared>,
) -> (Outputs, mpsc::UnboundedReceiver<Arc<str>>) {
    let (lookups, names) = mpsc::unbounded_channel();
    let outputs = Outputs {
        lookups: Some(lookups),
        translator: translator.clone(),
        resources: resources.clone(),
        fanout: fanout.clone(),
        shared: shared.clone(),
    };
    (outputs, names)
}

/// Returns the registries of remote clusters.
///
/// # Errors
/// When the table lacks Kubernetes or ServiceEntry.
fn remote_registries(feed: Arc<str>, registries: &RegistriesSettings) -> Result<RemoteRegistries> {
    let RegistriesSettings { table, names, settings, .. } = registries;
    Ok(RemoteRegistries::new(feed, table, names, settings)?)
}

/// Returns the configuration for other control planes.
fn configuration(settings: &Settings) -> Arc<Configuration> {
    let clients = settings.xds.serve_configuration.clone();
    let clients =
        clients.unwrap_or_else(|| ConfigurationClients::of_namespace(&settings.sources.root_namespace));
    Arc::new(Configuration::new(clients, settings.registries.settings.cluster.as_str()))
}

/// Returns what signs certificates for workloads: on request of an agent, and over SDS.
fn certificate_services(
    ca: Option<&Arc<Ca>>,
    shared: &Arc<Shared>,
    recorder: &Arc<PrometheusRecorder>,
) -> Option<(Arc<CaService>, Arc<WorkloadSecrets>)> {
    let service = Arc::new(CaService::new(ca?.clone(), shared.clone(), recorder.clone()));
    Some((service.clone(), Arc::new(WorkloadSecrets::new(service))))
}

/// Returns the features that take part when clients connect. Configuration comes last, because it answers
/// every type for clients that request nothing else.
fn hooks(
    rights: Option<SecretRights>,
    secrets: Option<Arc<WorkloadSecrets>>,
    auto_registration: Option<&AutoRegistration>,
    questions: Questions,
    configuration: &Arc<Configuration>,
) -> Vec<Box<dyn ConnectHook>> {
    let mut hooks: Vec<Box<dyn ConnectHook>> = Vec::new();
    hooks.extend(rights.map(|rights| Box::new(rights) as Box<dyn ConnectHook>));
    hooks.extend(secrets.map(|secrets| Box::new(WorkloadSecretsHook(secrets)) as Box<dyn ConnectHook>));
    hooks.push(Box::new(NodeClaims::default()));
    let registrar = auto_registration.map(AutoRegistration::registrar);
    hooks.extend(registrar.map(|registrar| Box::new(registrar) as Box<dyn ConnectHook>));
    hooks.push(Box::new(questions));
    hooks.push(Box::new(configuration.clone()));
    hooks
}

/// Returns the analysis of published worlds.
fn analysis(settings: &Settings, shared: &Arc<Shared>) -> Arc<Analysis> {
    let cluster = settings.registries.settings.cluster.clone();
    let translation = translation(settings);
    let analyzer = Analyzer::new(translation, cluster, settings.status.controllers, Known::default());
    Analysis::new(analyzer, settings.sources.kubernetes.is_some(), shared)
}

/// Returns the subsystem that analyses each new world.
fn analyses(analysis: &Arc<Analysis>) -> Subsystem {
    let run = analysis.run();
    Subsystem::new("the analysis", StopOrder::Abort).task(|_| run)
}

/// Returns the settings of translation.
fn translation(settings: &Settings) -> TranslationSettings {
    TranslationSettings { domain: domain(settings), switches: settings.switches }
}

/// Returns the domain of the host names of Kubernetes Services.
fn domain(settings: &Settings) -> ClusterDomain {
    let settings = &settings.registries.settings;
    let domain = ClusterDomain::new(&settings.domain);
    if settings.multi_cluster_services >= MultiClusterServices::Hosts {
        domain.with_cluster_set()
    } else {
        domain
    }
}
