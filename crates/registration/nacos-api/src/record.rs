//! Instances of Nacos as registrations, and back.
//!
//! The client's instance is kept in the metadata of the registration, with its service, whose name cannot be
//! read from the host.

use crate::NacosSettings;
use crate::service::{ServiceId, check};
use pilotfish_model::Protocol;
use pilotfish_nacos_wire::{CLUSTER_LABEL, DEFAULT_CLUSTER, Host, MAX_WEIGHT, grpc_port, protocol};
use pilotfish_registration::limits::{MAX_LABELS, MAX_TTL, MIN_TTL};
use pilotfish_registration::{
    Health, InstanceView, Record, Registration, RegistrationCheck, RegistrationCheckKind, RegistrationPort,
    is_label,
};
use pilotfish_registration_server::Failure;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Metadata entry of the client's instance.
const DOCUMENT: &str = "nacos";
/// Metadata entry of its service.
const SERVICE: &str = "nacos.service";
/// Lease of ephemeral instances that ask for none, as in Nacos.
const DEFAULT_TTL: Duration = Duration::from_secs(15);
/// The client's metadata entry for the lease, in milliseconds.
const TTL_KEY: &str = "preserved.heart.beat.timeout";
/// Maximum length of a cluster's name in bytes, as in Nacos.
const MAX_CLUSTER: usize = 64;

/// An instance as a client gives it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Given {
    pub(crate) ip: String,
    pub(crate) port: u32,
    pub(crate) cluster: String,
    pub(crate) weight: f64,
    pub(crate) healthy: bool,
    pub(crate) enabled: bool,
    pub(crate) ephemeral: bool,
    pub(crate) metadata: BTreeMap<String, String>,
    /// The connection that keeps it; `None` for one that lives by beats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) connection: Option<Arc<str>>,
}

impl Given {
    /// A healthy ephemeral instance.
    pub(crate) fn new(ip: &str, port: u32, cluster: &str) -> Self {
        Self {
            ip: ip.to_owned(),
            port,
            cluster: cluster.to_owned(),
            weight: 1.0,
            healthy: true,
            enabled: true,
            ephemeral: true,
            metadata: BTreeMap::new(),
            connection: None,
        }
    }

    /// Reads an instance of a gRPC message.
    pub(crate) fn of_host(host: &Host) -> Self {
        let cluster = if host.cluster_name.is_empty() { DEFAULT_CLUSTER } else { &host.cluster_name };
        let metadata = host.metadata.iter().filter_map(|(key, value)| Some((key.clone(), value.clone()?)));
        Self {
            weight: host.weight,
            healthy: host.healthy,
            enabled: host.enabled,
            ephemeral: host.ephemeral,
            metadata: metadata.collect(),
            ..Self::new(&host.ip, host.port, cluster)
        }
    }

    /// Reads the instance of a record that a client of Nacos registered.
    pub(crate) fn of_record(record: &Record) -> Option<Self> {
        serde_json::from_str(record.instance.metadata.get(DOCUMENT)?).ok()
    }

    /// Returns the lease; `None` for a persistent instance. The client's is that of its beats, so it does not
    /// matter for an instance that a connection keeps.
    pub(crate) fn ttl(&self) -> Option<Duration> {
        let given = self.metadata.get(TTL_KEY).filter(|_| self.connection.is_none());
        let given = given.and_then(|text| text.trim().parse().ok());
        let ttl = given.map_or(DEFAULT_TTL, Duration::from_millis);
        self.ephemeral.then_some(ttl.clamp(MIN_TTL, MAX_TTL))
    }

    /// Returns the registration that stands for the instance.
    pub(crate) fn registration(
        &self,
        service: &ServiceId,
        host: &str,
        settings: &NacosSettings,
    ) -> Result<Registration, Failure> {
        if !self.weight.is_finite() || self.weight < 0.0 {
            return Err(Failure::invalid("Param 'weight' is illegal: it is negative or no number"));
        }
        let document = serde_json::to_string(self)
            .map_err(|error| Failure::invalid(format!("the instance has no JSON form: {error}")))?;
        let of = |key: &str| self.metadata.get(key).map_or("", String::as_str);
        for key in ["region", "zone", "subzone"] {
            if of(key).contains('/') {
                return Err(Failure::invalid(format!("Param 'metadata': {key} has a slash")));
            }
        }
        let locality = [of("region"), of("zone"), of("subzone")].join("/");
        // Nacos checks persistent instances itself.
        let check =
            RegistrationCheck { kind: Some(RegistrationCheckKind::Tcp), ..RegistrationCheck::default() };
        Ok(Registration {
            addresses: vec![self.ip.clone()],
            ports: self.ports(settings),
            labels: self.labels(),
            metadata: [(DOCUMENT.to_owned(), document), (SERVICE.to_owned(), service.to_string())].into(),
            locality: locality.trim_end_matches('/').to_owned(),
            weight: weight(self.weight),
            healthy: self.healthy && self.enabled && self.weight > 0.0,
            ttl: self.ttl(),
            checks: if self.ephemeral { Vec::new() } else { vec![check] },
            ..Registration::new(&settings.namespace, host, &id(&self.ip, self.port, &self.cluster)?)
        })
    }

    fn ports(&self, settings: &NacosSettings) -> Vec<RegistrationPort> {
        let named = protocol(&self.metadata).filter(|name| !Protocol::of_registry(name).is_unsupported());
        let own = RegistrationPort {
            number: self.port,
            service_port: settings.service_port.map_or(0, |port| port.get().into()),
            protocol: named.unwrap_or_default().to_owned(),
            ..RegistrationPort::default()
        };
        let grpc = grpc_port(self.port, &self.metadata).map(|number| RegistrationPort {
            number,
            protocol: "grpc".to_owned(),
            ..RegistrationPort::default()
        });
        // A port of the service is there once.
        let is_free = |port: &RegistrationPort| {
            settings.service_port.is_none_or(|own| u32::from(own.get()) != port.number)
        };
        [own].into_iter().chain(grpc.filter(is_free)).collect()
    }

    /// Returns the metadata that can be labels, and the cluster.
    fn labels(&self) -> BTreeMap<String, String> {
        let own = self.metadata.iter().map(|(key, value)| (key.clone(), value.clone()));
        let cluster = (CLUSTER_LABEL.to_owned(), self.cluster.clone());
        let all = [cluster].into_iter().chain(own).filter(|(key, value)| is_label(key, value));
        all.take(MAX_LABELS).collect()
    }
}

/// Returns the id of an instance.
pub(crate) fn id(ip: &str, port: u32, cluster: &str) -> Result<String, Failure> {
    check("clusterName", cluster, MAX_CLUSTER, "-_.")?;
    let shown: String = ip.chars().take(63).collect();
    let wrong = |_| {
        Failure::invalid(format!("Param 'ip' is illegal: {shown:?} is no IP address: names are not resolved"))
    };
    let address: IpAddr = ip.parse().map_err(wrong)?;
    Ok(format!("{address}:{port}@{cluster}"))
}

/// Returns the service of a record; `None` for a record of another protocol.
pub(crate) fn service_of(record: &Record) -> Option<&Arc<str>> {
    record.instance.metadata.get(SERVICE)
}

/// Returns an instance for clients; `None` if it is leaving.
pub(crate) fn host(view: &InstanceView, service: &ServiceId) -> Option<Host> {
    if view.health == Health::Draining {
        return None;
    }
    let given = Given::of_record(&view.record).or_else(|| of_another_protocol(&view.record))?;
    let healthy = match view.health {
        // It may be healthy for its client, and taken out by an operator.
        Health::Reported => given.healthy,
        health => health.is_usable(),
    };
    let service_name = service.grouped();
    Some(Host {
        instance_id: format!("{}#{}#{}#{service_name}", given.ip, given.port, given.cluster),
        ip: given.ip,
        port: given.port,
        weight: given.weight,
        healthy,
        enabled: given.enabled,
        cluster_name: given.cluster,
        metadata: given.metadata.into_iter().map(|(key, value)| (key, Some(value))).collect(),
        ephemeral: given.ephemeral,
        service_name,
    })
}

fn of_another_protocol(record: &Record) -> Option<Given> {
    let instance = &record.instance;
    let labels = instance.labels.iter().map(|(key, value)| (key.to_string(), value.to_string()));
    let metadata: BTreeMap<String, String> = labels.collect();
    let cluster = metadata.get(CLUSTER_LABEL).map_or(DEFAULT_CLUSTER, String::as_str).to_owned();
    let (ip, port) = (instance.addresses.first()?.to_string(), instance.ports.first()?.number.get());
    Some(Given {
        weight: if instance.weight == 0 { 1.0 } else { f64::from(instance.weight) },
        healthy: instance.healthy,
        ephemeral: instance.ttl.is_some(),
        metadata,
        ..Given::new(&ip, port.into(), &cluster)
    })
}

/// Returns the weight as a whole number, never 0: that would mean "not set".
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is from 1 to 10,000")]
fn weight(weight: f64) -> u32 {
    weight.min(MAX_WEIGHT).round().max(1.0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_registration::testing::DOMAIN;
    use pilotfish_registration::{Instance, RecordState};
    use std::num::NonZeroU16;

    fn service() -> ServiceId {
        ServiceId::read("", "", "Web").unwrap()
    }

    fn given(metadata: &[(&str, &str)]) -> Given {
        let metadata = metadata.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Given { metadata: metadata.collect(), ..Given::new("10.0.0.1", 8080, "hz") }
    }

    fn instance(given: &Given, settings: &NacosSettings) -> Result<Instance, String> {
        let host = service().key(settings).unwrap();
        let registration = given.registration(&service(), &host.service, settings);
        let registration = registration.map_err(|failure| failure.message().to_owned())?;
        registration.validate(DOMAIN).map_err(|wrong| wrong.to_string())
    }

    fn view(given: &Given, health: Health) -> InstanceView {
        let instance = Arc::new(instance(given, &NacosSettings::default()).unwrap());
        let record =
            Record { instance, owner: "o".into(), revision: 1, created: 1, state: RecordState::Serving };
        InstanceView { record: Arc::new(record), health }
    }

    #[test]
    fn an_instance_is_that_which_the_registry_makes_of_it() {
        let metadata = [
            ("region", "r"),
            ("zone", "z"),
            ("gRPC_port", "9090"),
            ("preserved.register.source", "SPRING_CLOUD"),
            ("free text", "a b"),
        ];
        let instance =
            instance(&Given { weight: 2.6, ..given(&metadata) }, &NacosSettings::default()).unwrap();
        assert_eq!(instance.key.to_string(), "default/web.default-group.public.nacos/10.0.0.1:8080@hz");
        let ports =
            instance.ports.iter().map(|port| (port.number.get(), port.service_port.get(), &*port.protocol));
        assert_eq!(ports.collect::<Vec<_>>(), [(8080, 8080, "http"), (9090, 9090, "grpc")]);
        assert_eq!((&*instance.locality.region, &*instance.locality.zone), ("r", "z"));
        assert_eq!((instance.weight, instance.healthy), (3, true));
        assert_eq!(instance.labels.get(CLUSTER_LABEL).map(|text| &**text), Some("hz"));
        assert_eq!(instance.labels.get("free text"), None);
        assert_eq!(instance.ttl, Some(DEFAULT_TTL));
    }

    #[test]
    fn leases_follow_the_metadata_and_persistent_instances_are_checked() {
        let ttl = |given: &Given| instance(given, &NacosSettings::default()).unwrap().ttl;
        for (text, seconds) in [("6000", 6), ("0", 1), ("x", 15), ("999999999999", 86_400)] {
            assert_eq!(ttl(&given(&[(TTL_KEY, text)])), Some(Duration::from_secs(seconds)), "{text}");
        }
        let kept = Given { connection: Some("1-1".into()), ..given(&[(TTL_KEY, "1000")]) };
        assert_eq!(ttl(&kept), Some(DEFAULT_TTL), "it has no beats");
        let persistent = Given { ephemeral: false, ..given(&[]) };
        let instance = instance(&persistent, &NacosSettings::default()).unwrap();
        assert_eq!((instance.ttl, instance.checks.len()), (None, 1));
    }

    #[test]
    fn the_service_port_is_that_of_the_first_port() {
        let settings = NacosSettings { service_port: NonZeroU16::new(9090), ..NacosSettings::default() };
        let instance = instance(&given(&[("gRPC_port", "9090")]), &settings).unwrap();
        let ports: Vec<_> = instance.ports.iter().map(|port| port.service_port.get()).collect();
        assert_eq!(ports, [9090], "the port of the service is there once");
    }

    #[test]
    fn clients_see_what_they_registered_and_its_health() {
        let registered = Given { weight: 0.5, ..given(&[("a", "b c")]) };
        for (health, expected) in [
            (Health::Healthy, Some(true)),
            (Health::Preserved, Some(true)),
            (Health::Lapsed, Some(false)),
            (Health::CheckFailed, Some(false)),
            (Health::Draining, None),
        ] {
            let found = host(&view(&registered, health), &service());
            assert_eq!(found.as_ref().map(|host| host.healthy), expected, "{health:?}");
        }
        let found = host(&view(&registered, Health::Healthy), &service()).unwrap();
        assert_eq!(found.instance_id, "10.0.0.1#8080#hz#DEFAULT_GROUP@@Web");
        assert_eq!((found.weight, found.metadata.get("a")), (0.5, Some(&Some("b c".to_owned()))));
        assert_eq!(Given::of_host(&found), registered);
        let disabled = Given { enabled: false, ..given(&[]) };
        let found = host(&view(&disabled, Health::Reported), &service()).unwrap();
        assert!(found.healthy && !found.enabled, "{found:?}");
        let unhealthy = Given { healthy: false, ..given(&[]) };
        assert!(!host(&view(&unhealthy, Health::Reported), &service()).unwrap().healthy);
    }

    #[test]
    fn wrong_instances_are_refused() {
        for (wrong, message) in [
            (Given { weight: -1.0, ..given(&[]) }, "Param 'weight'"),
            (Given { weight: f64::NAN, ..given(&[]) }, "Param 'weight'"),
            (Given { ip: "web".into(), ..given(&[]) }, "Param 'ip'"),
            (Given { cluster: "a,b".into(), ..given(&[]) }, "Param 'clusterName'"),
            (Given { port: 0, ..given(&[]) }, "ports[0].number"),
            (given(&[("zone", "a/b")]), "Param 'metadata': zone"),
        ] {
            let error = instance(&wrong, &NacosSettings::default()).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
    }
}
