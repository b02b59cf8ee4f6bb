//! The running control plane, as the admin API and `istioctl` ask for it.
//!
//! ```text
//! admin API ─▶ ControlPlane, Operations ─▶ AdminState ─▶ Shared, Translator, Fanout, Registrar
//! istioctl over xDS ─▶ Questions ─ queue ─▶ Answerer ─▶ debug pages, Fanout
//! ```

mod changes;
mod config_dump;
mod config_page;
mod history;
pub mod istioctl;
mod live;
mod memory;
mod operations;
mod overview;
mod plan;
mod proxies;
mod recorder;
mod refusals;
mod registration;
mod standing;
mod unconnected;
mod verdict;
mod waiting;
mod webhooks;

pub use live::send_events;
pub use operations::object_key;
pub use plan::read as read_plan;
pub use recorder::PrometheusRecorder;
pub use refusals::Refusals;
pub use unconnected::LastNode;
pub use webhooks::WebhookView;

pub(crate) use config_dump::resources_of;

use config_dump::config_dump;
use parking_lot::Mutex;
use pilotfish_admin::{ControlPlane, ProblemLines};
use pilotfish_api as api;
use pilotfish_api::v1::{CaRotation, CertificateAuthority};
use pilotfish_config::{Effective, ProblemReport, Severity};
use pilotfish_control_plane::control::ControlMessage;
use pilotfish_control_plane::control::{self, Shared};
use pilotfish_control_plane::resources::Resources;
use pilotfish_model::{Object, World};
use pilotfish_proto::envoy::config::core::v3::Node;
use pilotfish_proto::{ResourceType, ValueKind, to_json};
use pilotfish_registration::Registrar;
use pilotfish_translate::{Finding, Refusal, Translator};
use pilotfish_xds::{ConnectionStatus, Fanout, Names, Protocol, SubscribedNames, TypeStatus};
use prost::Message;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Version of the program: its crates share one.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Future of the beginning of a rotation; the error is its reason.
pub type Rotating<'a> = Pin<Box<dyn Future<Output = Result<CaRotation, String>> + Send + 'a>>;

/// The certificate authority, for operators.
pub trait AuthorityOperations: Send + Sync {
    /// Returns the present state of the authority.
    fn view(&self) -> CertificateAuthority;

    /// Begins a rotation of its root. `overlap` is the longest validity of workload certificates.
    fn rotate(&self, overlap: Duration) -> Rotating<'_>;
}

/// Running control plane, as the admin API sees it.
pub struct AdminState {
    /// Newest state of the control loop.
    pub shared: Arc<Shared>,
    /// Source of the streams, which knows whether proxies are served.
    pub resources: Arc<Resources>,
    /// Connected proxies and their streams.
    pub fanout: Arc<Fanout<Resources>>,
    pub translator: Arc<Translator>,
    /// Webhooks, if they are enabled.
    pub webhooks: Option<WebhookView>,
    /// Registrar of self-registering services, if registration is enabled.
    pub registrar: Option<Registrar>,
    /// The certificate authority, if there is one.
    pub ca: Option<Arc<dyn AuthorityOperations>>,
    /// Sender to the control loop, for as long as it runs.
    pub control: mpsc::WeakSender<ControlMessage>,
    /// Cached refusals of proxies.
    pub refusals: Refusals,
    /// Resources of a node that is read page by page.
    pub last_node: LastNode,
    /// Lock that serializes plans.
    pub plans: Mutex<()>,
}

/// Limit on the names that `/debug/adsz` lists for each type; further ones are counted.
const MOST_NAMES: usize = 100;

impl ControlPlane for AdminState {
    fn silent_for(&self) -> Duration {
        self.shared.pulse().silent_for(Instant::now())
    }

    fn readiness(&self) -> api::Readiness {
        let mut waiting_for = self.shared.waiting_for().to_vec();
        if self.shared.is_draining() {
            waiting_for.push("the process is stopping".into());
        }
        let starting = self.webhooks.as_ref().is_some_and(WebhookView::is_starting);
        if starting {
            waiting_for.push("a certificate for webhooks".into());
        }
        let ready = self.resources.is_ready() && !self.shared.is_draining() && !starting;
        api::Readiness { ready, waiting_for, ..api::Readiness::default() }
    }

    fn readiness_problems(&self) -> ProblemLines {
        let mut lines = ProblemLines::default();
        lines.add(self.shared.registry_problems().iter());
        lines.add(refusals::refused(self).lines().iter());
        lines.add(self.shared.findings().summary().iter());
        let sources = self.shared.source_problems();
        let reports = sources.iter().flat_map(|source| &source.reports);
        lines.add(reports.filter(|report| report.severity == Severity::Error));
        lines.with_verdict(verdict::verdict(self))
    }

    fn source_silence(&self) -> Vec<(String, Duration)> {
        self.shared.source_silence(Instant::now()).into_iter().collect()
    }

    fn registries(&self) -> Vec<api::Registry> {
        self.shared.registries()
    }

    fn dropped_log_lines(&self) -> u64 {
        pilotfish_log::dropped_lines()
    }

    fn registration(&self) -> Option<api::Registration> {
        self.registrar.as_ref().map(registration::view)
    }

    fn world(&self) -> Arc<World> {
        self.shared.world()
    }

    fn spec(&self, object: &Object) -> serde_json::Value {
        pilotfish_config::spec_json(object)
    }

    fn problems(&self) -> Vec<api::Problem> {
        let mut problems = verdict::problems(self);
        problems.extend(self.shared.problems().iter().map(problem));
        let snapshot = self.translator.snapshot();
        problems.extend(snapshot.refusals().iter().map(|refusal| left_out(refusal, snapshot.world())));
        let found = self.shared.findings();
        problems.extend(found.list.iter().map(|placed| finding(&placed.finding, placed.place.to_string())));
        problems
    }

    fn injection_templates(&self) -> Option<BTreeMap<String, String>> {
        let view = self.webhooks.as_ref()?;
        Some(BTreeMap::from([("sidecar".to_owned(), view.template().to_owned())]))
    }

    fn ads(&self, proxy_id: Option<&str>) -> api::Ads {
        let connections = self.fanout.connections();
        let clients: Vec<_> = match proxy_id {
            None => connections.iter().map(client).collect(),
            Some(id) => {
                let with_metadata = |connection: &ConnectionStatus| api::AdsClient {
                    metadata: metadata(&connection.node),
                    ..client(connection)
                };
                let meant = connections.iter().filter(|connection| is_named(connection, id));
                meant.map(with_metadata).collect()
            }
        };
        api::Ads { total_clients: clients.len(), clients }
    }

    fn sync_status(&self) -> Vec<api::SyncStatus> {
        self.fanout.connections().iter().filter(|connection| is_proxy(connection)).map(sync_status).collect()
    }

    fn config_dump(&self, proxy_id: &str, include_eds: bool) -> Option<serde_json::Value> {
        let connections = self.fanout.connections();
        let found = connections.iter().find(|connection| is_named(connection, proxy_id))?;
        config_dump(&self.translator, found, include_eds)
    }
}

/// True for a connection with subscriptions to types of proxies, which `istioctl` does not have.
pub(crate) fn is_proxy(connection: &ConnectionStatus) -> bool {
    !connection.types.is_empty()
}

/// True if the text names the proxy: the id of its connection, the id of its node, or the name and namespace
/// in the latter (`web-0.shop`), as istioctl sends it.
pub(crate) fn is_named(connection: &ConnectionStatus, proxy_id: &str) -> bool {
    let node = connection.node.id.as_str();
    connection.id == proxy_id || node == proxy_id || node.split('~').nth(2) == Some(proxy_id)
}

pub fn problem(report: &ProblemReport) -> api::Problem {
    api::Problem {
        severity: match report.severity {
            Severity::Error => "error".into(),
            Severity::Warning => "warning".into(),
        },
        code: String::new(),
        place: if report.line > 0 {
            format!("{}:{}", report.file, report.line)
        } else {
            report.file.to_string()
        },
        object: report.object.as_ref().map(ToString::to_string).unwrap_or_default(),
        path: report.path.clone(),
        message: report.counted_message().into_owned(),
        hint: report.hint.clone().unwrap_or_default(),
        in_force: control::effective(report.effective).to_owned(),
    }
}

/// Converts a finding of the analysis about an object, with its place.
pub fn finding(finding: &Finding, place: String) -> api::Problem {
    api::Problem {
        severity: finding.code.level().as_str().to_owned(),
        code: finding.code.id().to_owned(),
        place,
        object: finding.object.to_string(),
        path: finding.path.clone(),
        message: finding.message.clone(),
        hint: finding.hint.clone().unwrap_or_default(),
        in_force: control::effective(Effective::Written).to_owned(),
    }
}

/// Converts a refusal of the translation to put an object into a resource.
fn left_out(refusal: &Refusal, world: &World) -> api::Problem {
    let object = refusal.object.as_object().and_then(|reference| world.object(&reference.object));
    api::Problem {
        severity: "warning".into(),
        code: String::new(),
        place: object.map(|object| object.meta.origin.to_string()).unwrap_or_default(),
        object: refusal.object.to_string(),
        path: refusal.field.clone(),
        message: refusal.fault.clone(),
        hint: String::new(),
        in_force: control::effective(Effective::Written).to_owned(),
    }
}

fn client(connection: &ConnectionStatus) -> api::AdsClient {
    let watch = |(ty, status): (&ResourceType, &TypeStatus)| (ty.type_url().to_owned(), watch(status));
    api::AdsClient {
        connection_id: connection.id.clone(),
        connected_at: control::time(connection.connected_at),
        address: connection.peer.address.to_string(),
        protocol: match connection.protocol {
            Protocol::Delta => "delta".into(),
            Protocol::Sotw => "sotw".into(),
        },
        metadata: serde_json::Value::Null,
        watches: connection.types.iter().map(watch).collect(),
    }
}

fn metadata(node: &Node) -> serde_json::Value {
    let bytes = node.metadata.as_ref().map(Message::encode_to_vec).unwrap_or_default();
    let mut json = to_json("type.googleapis.com/google.protobuf.Struct", &bytes).unwrap_or_default();
    if let serde_json::Value::Object(fields) = &mut json {
        fields.remove("@type");
    }
    json
}

fn watch(status: &TypeStatus) -> api::Watch {
    let names = match &status.names {
        Names::Wildcard => None,
        Names::Named(names) => Some(names),
    };
    let nonce = |nonce: &Option<String>| nonce.clone().unwrap_or_default();
    let word = match (&status.rejection, &status.sent_nonce) {
        (Some(_), _) => "ERROR",
        (None, None) => "NOT_SENT",
        (None, sent) if *sent == status.acked_nonce => "SYNCED",
        _ => "STALE",
    };
    api::Watch {
        wildcard: status.names == Names::Wildcard,
        subscribed: names.map_or(0, SubscribedNames::len),
        names: names
            .into_iter()
            .flat_map(SubscribedNames::iter)
            .take(MOST_NAMES)
            .map(ToString::to_string)
            .collect(),
        nonce_sent: nonce(&status.sent_nonce),
        nonce_acked: nonce(&status.acked_nonce),
        status: word.to_owned(),
        last_sent: status.sent_at.map(control::time).unwrap_or_default(),
        last_error: status.rejection.as_ref().map(|rejection| rejection.error.clone()).unwrap_or_default(),
    }
}

fn sync_status(connection: &ConnectionStatus) -> api::SyncStatus {
    let mut parts = connection.node.id.split('~');
    let proxy_type = parts.next().unwrap_or_default().to_owned();
    let proxy = parts.nth(1).unwrap_or_default().to_owned();
    let mut nonces = BTreeMap::new();
    for (ty, status) in &connection.types {
        let Some(word) = word(*ty) else { continue };
        nonces.insert(format!("{word}_sent"), status.sent_nonce.clone().unwrap_or_default());
        nonces.insert(format!("{word}_acked"), status.acked_nonce.clone().unwrap_or_default());
    }
    let meta = |key| text(&connection.node, key);
    api::SyncStatus {
        cluster_id: meta("CLUSTER_ID"),
        proxy,
        proxy_type,
        istio_version: meta("ISTIO_VERSION"),
        nonces,
    }
}

/// Returns istiod's name for a type in `/debug/syncz`.
fn word(ty: ResourceType) -> Option<&'static str> {
    match ty {
        ResourceType::Cluster => Some("cluster"),
        ResourceType::Endpoint => Some("endpoint"),
        ResourceType::Listener => Some("listener"),
        ResourceType::Route => Some("route"),
        ResourceType::ExtensionConfig => Some("extensionconfig"),
        ResourceType::Secret | ResourceType::NameTable => None,
    }
}

fn text(node: &Node, key: &str) -> String {
    let value = node.metadata.as_ref().and_then(|metadata| metadata.fields.get(key));
    match value.and_then(|value| value.kind.as_ref()) {
        Some(ValueKind::StringValue(text)) => text.clone(),
        _ => String::new(),
    }
}
