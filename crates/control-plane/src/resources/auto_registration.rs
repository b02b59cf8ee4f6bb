//! Auto-registration of workloads that connect: the adapter between proxies and
//! `pilotfish_kube_writer::auto_registration`.

use super::hooks::{ClientState, ConnectHook, ConnectingClient};
use crate::mesh::with_mesh;
use pilotfish_kube_writer::auto_registration::{
    PeerIdentity, Registrar, Registration, RegistrationError, RegistrationRequest, WorldNow,
};
use pilotfish_model::{ChangeSet, Fact, Kind, World};
use pilotfish_translate::Proxy;
use pilotfish_xds::{ConnectError, PeerInfo};
use std::sync::Arc;

/// Registrar of proxies that have, or request, a WorkloadEntry.
pub struct ProxyRegistrar {
    registrar: Registrar,
    world: WorldNow,
}

impl ProxyRegistrar {
    /// Returns a registrar that reads groups and entries from `world`.
    #[must_use]
    pub fn new(registrar: Registrar, world: WorldNow) -> Self {
        Self { registrar, world }
    }

    /// Registers a proxy; `None` for a proxy that requests no entry.
    ///
    /// # Errors
    /// When the proxy claims an entry that it may not have.
    fn register(&self, proxy: &Proxy, peer: &PeerInfo) -> Result<Option<Registration>, ConnectError> {
        // Nearly all proxies are Pods and claim no entry.
        if proxy.meta(GROUP).is_empty() && proxy.meta(ENTRY).is_empty() {
            return Ok(None);
        }
        let world = (self.world)();
        let proof = proof(proxy, &world)?;
        let request = RegistrationRequest { peer: Some(peer.address.ip()), ..applicant(proxy) };
        self.registrar.connect(request, &world, proof).map_err(|refused| match refused {
            RegistrationError::NotYours { .. } | RegistrationError::Address { .. } => {
                ConnectError::PermissionDenied(refused.to_string())
            }
            RegistrationError::NoGroup { .. } | RegistrationError::NoEntry(_) => {
                ConnectError::FailedPrecondition(refused.to_string())
            }
        })
    }

    /// Registers workloads again if their group is new or changed, or if their entry was deleted or released
    /// by others.
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

impl ConnectHook for Arc<ProxyRegistrar> {
    fn connect(
        &self,
        client: &mut ConnectingClient<'_>,
    ) -> Result<Option<Box<dyn ClientState>>, ConnectError> {
        let registration = self.register(client.proxy, client.peer)?;
        Ok(registration.map(|registration| Box::new(Registered(registration)) as Box<dyn ClientState>))
    }
}

/// Client with a WorkloadEntry by auto-registration.
struct Registered(Registration);

impl ClientState for Registered {
    fn reported_health(&self, problem: Option<&str>) {
        self.0.report(problem.map_or(Ok(()), |problem| Err(problem.to_owned())));
    }
}

/// Returns the proven identity of a proxy, which must be one of the mesh.
fn proof<'p>(proxy: &'p Proxy, world: &World) -> Result<Option<PeerIdentity<'p>>, ConnectError> {
    let Some(identity) = &proxy.identity else { return Ok(None) };
    if !with_mesh(world, |mesh| identity.is_of_mesh(mesh)) {
        let domain = &identity.trust_domain;
        return Err(ConnectError::PermissionDenied(format!(
            "the identity is of trust domain {domain:?}, whose namespaces are others: only workloads of the \
             mesh register themselves"
        )));
    }
    Ok(Some(PeerIdentity {
        namespace: identity.namespace.as_str(),
        service_account: &identity.service_account,
    }))
}

const GROUP: &str = "AUTO_REGISTER_GROUP";
const ENTRY: &str = "WORKLOAD_ENTRY";

/// Returns the workload that a proxy claims to be.
fn applicant(proxy: &Proxy) -> RegistrationRequest {
    let place = &proxy.locality;
    let parts = [&place.region, &place.zone, &place.sub_zone];
    let known = parts.iter().take_while(|part| !part.is_empty()).map(|part| part.to_string());
    RegistrationRequest {
        group: proxy.meta(GROUP).to_owned(),
        entry: proxy.meta(ENTRY).to_owned(),
        namespace: proxy.namespace.to_string(),
        address: proxy.ips.first().map(ToString::to_string).unwrap_or_default(),
        peer: None,
        network: proxy.network.to_string(),
        locality: known.collect::<Vec<_>>().join("/"),
        labels: (&*proxy.labels).into(),
        hbone: proxy.meta_flag("ENABLE_HBONE"),
        health_checks: has_probe(&proxy.proxy_config),
    }
}

/// True if the settings of a proxy have a readiness probe.
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
    fn a_workload_of_another_trust_domain_registers_nothing() {
        use pilotfish_config::{MeshFile, mesh::MeshConfig};
        use pilotfish_model::{Object, ObjectMeta, Update, WorldWriter};
        let node = Node { id: "sidecar~10.0.0.1~vm.vms~vms.svc.cluster.local".into(), ..Node::default() };
        let proves = |id: &str, world: &World| {
            let proxy = Proxy::from_node(&node).unwrap().with_identities([id]).unwrap();
            proof(&proxy, world).map(|proof| proof.is_some())
        };
        let (own, old, other) = (
            "spiffe://cluster.local/ns/vms/sa/db",
            "spiffe://old.local/ns/vms/sa/db",
            "spiffe://other.org/ns/vms/sa/db",
        );
        let world = World::default();
        assert_eq!(proves(own, &world), Ok(true));
        for foreign in [old, other] {
            assert!(matches!(proves(foreign, &world), Err(ConnectError::PermissionDenied(_))), "{foreign}");
        }
        let mut writer = WorldWriter::new();
        let config = MeshConfig { trust_domain_aliases: vec!["old.local".into()], ..MeshConfig::default() };
        writer.apply(Update::Object(Object::new(ObjectMeta::of(MeshFile::Config.key()), config)));
        let (world, _) = writer.publish().unwrap();
        assert_eq!((proves(own, &world), proves(old, &world)), (Ok(true), Ok(true)));
        assert!(proves(other, &world).is_err());
    }

    #[test]
    fn a_proxys_metadata_describes_its_workload() {
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
                peer: None,
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
