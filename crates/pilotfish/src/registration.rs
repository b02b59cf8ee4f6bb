//! Workloads that register themselves by connecting: the joint between proxies and `pilotfish_kube_writer::auto_registration`.

use crate::settings::Settings;
use crate::shared::Shared;
use pilotfish_kube::client::Client;
use pilotfish_kube_writer::auto_registration::{
    EntryObserver, PeerIdentity, Registrar, Registration, RegistrationError, RegistrationRequest,
    RegistrationSettings, Registrations, WorldNow, registrations,
};
use pilotfish_kube_writer::lease;
use pilotfish_model::{ChangeSet, Fact, Kind, World};
use pilotfish_translate::Proxy;
use pilotfish_xds::ConnectError;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Lets proxies in that have, or are to have, a WorkloadEntry.
pub struct Gate {
    registrar: Registrar,
    world: WorldNow,
}

/// Makes the gate, and what writes the entries of those that pass. `None` where nobody wants that.
pub(crate) fn gate(
    settings: &Settings,
    client: Client,
    shared: Arc<Shared>,
    observer: Arc<dyn EntryObserver>,
) -> Option<(Gate, Registrations)> {
    let wanted = settings.workload_entries?;
    let world: WorldNow = Arc::new(move || shared.world());
    let grace = settings.workload_entry_grace_period;
    let settings = RegistrationSettings { replica: lease::identity(), features: wanted, grace, observer };
    let (registrar, registrations) = registrations(client, settings, world.clone());
    Some((Gate { registrar, world }, registrations))
}

/// Entries are written for as long as this runs; nothing runs where no cluster is read.
pub(crate) struct Writing {
    finish: watch::Sender<bool>,
    task: Option<JoinHandle<()>>,
}

impl Writing {
    pub(crate) fn start(registrations: Option<Registrations>) -> Self {
        let (finish, mut finished) = watch::channel(false);
        let stop = async move {
            // An error says that the sender is gone, which means the same.
            let _ = finished.wait_for(|finish| *finish).await;
        };
        let task = registrations.map(|registrations| tokio::spawn(registrations.run(stop)));
        Self { finish, task }
    }

    /// Waits until it ends by itself, which it should not.
    pub(crate) async fn ended(&mut self) -> anyhow::Error {
        match &mut self.task {
            Some(task) => anyhow::anyhow!("writing WorkloadEntries ended by itself: {:?}", task.await),
            None => std::future::pending().await,
        }
    }

    /// Writes what is left to be written.
    pub(crate) async fn finish(self) {
        self.finish.send_replace(true);
        let Some(task) = self.task else { return };
        if let Err(error) = task.await {
            tracing::error!(%error, "writing WorkloadEntries broke down");
        }
    }
}

impl Gate {
    /// Admits a proxy; `None` when it is an ordinary one.
    ///
    /// # Errors
    /// When it says that it has an entry, and may not have it.
    pub fn connect(&self, proxy: &Proxy) -> Result<Option<Registration>, ConnectError> {
        // Nearly all proxies are Pods and say nothing of entries.
        if proxy.meta(GROUP).is_empty() && proxy.meta(ENTRY).is_empty() {
            return Ok(None);
        }
        let proof = proxy.identity.as_ref().map(|identity| PeerIdentity {
            namespace: identity.namespace.as_str(),
            service_account: &identity.service_account,
        });
        self.registrar.connect(applicant(proxy), &(self.world)(), proof).map_err(|refused| match refused {
            RegistrationError::NotYours { .. } => ConnectError::PermissionDenied(refused.to_string()),
            RegistrationError::NoGroup { .. } | RegistrationError::NoEntry(_) => {
                ConnectError::FailedPrecondition(refused.to_string())
            }
        })
    }

    /// Registers workloads again whose groups are new or different, and whose entries others took away or gave up.
    pub fn published(&self, world: &World, changes: &ChangeSet) {
        for fact in &changes.facts {
            let Fact::Object(key) = fact else { continue };
            match (key.kind, world.object(key)) {
                (Kind::WorkloadGroup, Some(_)) => {
                    self.registrar.group_added(key.namespace.as_str(), &key.name);
                }
                (Kind::WorkloadEntry, object) => self.registrar.entry_changed(key, object),
                _ => {}
            }
        }
    }
}

const GROUP: &str = "AUTO_REGISTER_GROUP";
const ENTRY: &str = "WORKLOAD_ENTRY";

/// What a proxy says of its workload.
fn applicant(proxy: &Proxy) -> RegistrationRequest {
    let place = &proxy.locality;
    let parts = [&place.region, &place.zone, &place.sub_zone];
    let known = parts.iter().take_while(|part| !part.is_empty()).map(|part| part.to_string());
    RegistrationRequest {
        group: proxy.meta(GROUP).to_owned(),
        entry: proxy.meta(ENTRY).to_owned(),
        namespace: proxy.namespace.to_string(),
        address: proxy.ips.first().map(ToString::to_string).unwrap_or_default(),
        network: proxy.network.to_string(),
        locality: known.collect::<Vec<_>>().join("/"),
        labels: (&*proxy.labels).into(),
        hbone: proxy.meta_flag("ENABLE_HBONE"),
        health_checks: has_probe(&proxy.proxy_config),
    }
}

/// Whether the settings of a proxy have a readiness probe.
fn has_probe(proxy_config: &str) -> bool {
    let config: Option<serde_json::Value> = serde_json::from_str(proxy_config).ok();
    config.is_some_and(|config| config.get("readinessProbe").is_some_and(|probe| !probe.is_null()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_proto::envoy::config::core::v3::{Locality, Node};
    use pilotfish_proto::{Struct, Value, ValueKind};

    #[test]
    fn a_proxy_says_who_it_is() {
        let text = |text: &str| Value { kind: Some(ValueKind::StringValue(text.to_owned())) };
        let of = |fields: &[(&str, Value)]| {
            let fields = fields.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
            Value { kind: Some(ValueKind::StructValue(Struct { fields })) }
        };
        let fields = [
            ("AUTO_REGISTER_GROUP", text("machines")),
            ("NETWORK", text("n1")),
            ("ENABLE_HBONE", text("true")),
            ("INSTANCE_IPS", text("10.0.0.2,fd00::1")),
            ("LABELS", of(&[("app", text("db"))])),
            ("PROXY_CONFIG", of(&[("readinessProbe", of(&[("tcpSocket", of(&[]))]))])),
        ];
        let Some(ValueKind::StructValue(metadata)) = of(&fields).kind else { unreachable!("it is a struct") };
        let node = Node {
            id: "sidecar~10.0.0.1~vm.vms~vms.svc.cluster.local".into(),
            locality: Some(Locality { region: "r".into(), zone: "z".into(), sub_zone: String::new() }),
            metadata: Some(metadata),
            ..Node::default()
        };
        let applicant = applicant(&Proxy::from_node(&node).unwrap());
        assert_eq!(
            applicant,
            RegistrationRequest {
                group: "machines".into(),
                entry: String::new(),
                namespace: "vms".into(),
                address: "10.0.0.2".into(),
                network: "n1".into(),
                locality: "r/z".into(),
                labels: [("app".to_owned(), "db".to_owned())].into(),
                hbone: true,
                health_checks: true,
            }
        );
        assert!(!has_probe(""));
        assert!(!has_probe("{\"concurrency\": 2}"));
    }
}
