//! Instances of Eureka as registrations, and back.
//!
//! The client's document is kept in the metadata of the registration, without its status: that and the status
//! of an operator have entries of their own.

use crate::EurekaSettings;
use pilotfish_eureka_wire::{DataCenterInfo, Instance, InstanceInfo, PortInfo, Status};
use pilotfish_registration::limits::{MAX_TTL, MAX_WEIGHT};
use pilotfish_registration::{Health, Record, Registration, RegistrationPort, ServiceKey, is_label};
use pilotfish_registration_server::Failure;
use std::collections::BTreeMap;
use std::time::Duration;

/// Metadata entry of the client's document.
const DOCUMENT: &str = "eureka";
/// Metadata entry of the client's own status.
const OWN: &str = "eureka.status";
/// Metadata entry of an operator's status.
const OVERRIDDEN: &str = "eureka.overriddenStatus";
/// Lease of clients that ask for none, as in Netflix's server.
const DEFAULT_TTL: Duration = Duration::from_secs(90);

/// An instance with its statuses.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Registered {
    /// The client's document without statuses.
    pub(crate) info: InstanceInfo,
    /// Status that the client reports.
    pub(crate) own: Status,
    /// Status that an operator set; [`Status::Unknown`] for none.
    pub(crate) overridden: Status,
}

impl Registered {
    /// Reads a client's document.
    pub(crate) fn new(mut info: InstanceInfo) -> Self {
        let own = if info.status.is_empty() { Status::Up } else { Status::parse(&info.status.0) };
        let overridden = info.overridden();
        for text in
            [&mut info.status, &mut info.overridden_status, &mut info.overriddenstatus, &mut info.action_type]
        {
            text.0.clear();
        }
        Self { info, own, overridden }
    }

    /// Reads a record. One of another protocol gets a document of its key, addresses and ports.
    pub(crate) fn of_record(record: &Record, settings: &EurekaSettings) -> Option<Self> {
        Self::of_client(record, settings).or_else(|| {
            let info = document_of(record, settings)?;
            let own = if record.instance.healthy { Status::Up } else { Status::Down };
            Some(Self { info, own, overridden: Status::Unknown })
        })
    }

    /// Reads a record that a client of Eureka registered; a document of another application is none.
    pub(crate) fn of_client(record: &Record, settings: &EurekaSettings) -> Option<Self> {
        let metadata = &record.instance.metadata;
        let info: InstanceInfo = serde_json::from_str(metadata.get(DOCUMENT)?).ok()?;
        if app_of(&record.instance.key.service_key(), settings)? != info.app.0.to_uppercase() {
            return None;
        }
        let status = |key: &str| metadata.get(key).map(|text| Status::parse(text));
        let own = if record.instance.healthy { Status::Up } else { Status::Down };
        Some(Self {
            info,
            own: status(OWN).unwrap_or(own),
            overridden: status(OVERRIDDEN).unwrap_or_default(),
        })
    }

    /// Returns the status for clients. An operator's status does not start what is down or has not started.
    pub(crate) fn status(&self) -> Status {
        match (self.own, self.overridden) {
            (own @ (Status::Down | Status::Starting), _) | (own, Status::Unknown) => own,
            (_, overridden) => overridden,
        }
    }

    /// Returns the time of the client's last change, in its own milliseconds.
    pub(crate) fn dirty(&self) -> Option<u64> {
        self.info.last_dirty_timestamp.0.parse().ok()
    }

    /// Returns the registration.
    pub(crate) fn registration(
        &self,
        service: &str,
        id: &str,
        settings: &EurekaSettings,
    ) -> Result<Registration, Failure> {
        let document = serde_json::to_string(&self.info)
            .map_err(|error| Failure::invalid(format!("the instance has no JSON form: {error}")))?;
        let instance = Instance::read(self.info.clone())
            .ok_or_else(|| Failure::invalid("instance: it has no app, or neither instanceId nor hostName"))?;
        let mut metadata =
            BTreeMap::from([(DOCUMENT.to_owned(), document), (OWN.to_owned(), self.own.name().to_owned())]);
        if self.overridden != Status::Unknown {
            metadata.insert(OVERRIDDEN.to_owned(), self.overridden.name().to_owned());
        }
        Ok(Registration {
            addresses: vec![instance.ip.clone()],
            ports: ports(&instance, settings)?,
            labels: labels(&instance),
            metadata,
            locality: locality(&instance)?,
            weight: instance.metadata.get("weight").map_or(0, |weight| weight_of(weight)),
            healthy: self.status() == Status::Up,
            ttl: Some(ttl(&self.info)),
            ..Registration::new(&settings.namespace, service, id)
        })
    }
}

/// Returns the name of an application's service.
pub(crate) fn service_of(app: &str, settings: &EurekaSettings) -> String {
    format!("{}.{}", app.to_lowercase(), settings.domain)
}

/// Returns the application of a service; `None` for a service that is none.
pub(crate) fn app_of(key: &ServiceKey, settings: &EurekaSettings) -> Option<String> {
    if key.namespace != settings.namespace {
        return None;
    }
    let name = key.service.strip_suffix(&*settings.domain)?.strip_suffix('.')?;
    Some(name.to_uppercase())
}

/// True if clients of Eureka see an instance of this health: lapsed and leaving ones are gone for them.
pub(crate) fn is_visible(health: Health) -> bool {
    !matches!(health, Health::Lapsed | Health::Draining)
}

fn document_of(record: &Record, settings: &EurekaSettings) -> Option<InstanceInfo> {
    let instance = &record.instance;
    let app = app_of(&instance.key.service_key(), settings)?;
    let address = instance.addresses.first()?.to_string();
    let is_secure = |protocol: &str| protocol.eq_ignore_ascii_case("https");
    let port = |secure: bool| {
        let found = instance.ports.iter().find(|port| is_secure(&port.protocol) == secure);
        Some(match found {
            Some(port) => PortInfo { number: port.number.get().into(), enabled: true },
            None => PortInfo { number: if secure { 443 } else { 7001 }, enabled: false },
        })
    };
    let entries = instance.labels.iter().map(|(key, value)| (key.to_string(), value.to_string()));
    Some(InstanceInfo {
        instance_id: (&*instance.key.id).into(),
        host_name: address.as_str().into(),
        ip_addr: address.as_str().into(),
        vip_address: app.to_lowercase().as_str().into(),
        secure_vip_address: app.to_lowercase().as_str().into(),
        app: app.as_str().into(),
        port: port(false),
        secure_port: port(true),
        country_id: "1".into(),
        data_center_info: DataCenterInfo {
            class: "com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo".into(),
            name: "MyOwn".into(),
            ..DataCenterInfo::default()
        },
        metadata: pilotfish_eureka_wire::Metadata(entries.collect()),
        ..InstanceInfo::default()
    })
}

fn ports(instance: &Instance, settings: &EurekaSettings) -> Result<Vec<RegistrationPort>, Failure> {
    let plain = instance.port.map(|number| (number, "http"));
    let secure = instance.secure_port.filter(|secure| Some(*secure) != instance.port);
    let secure = secure.map(|number| (number, "https"));
    let mut ports: Vec<RegistrationPort> = plain
        .into_iter()
        .chain(secure)
        .map(|(number, protocol)| RegistrationPort {
            number,
            protocol: protocol.to_owned(),
            ..RegistrationPort::default()
        })
        .collect();
    let Some(first) = ports.first_mut() else {
        return Err(Failure::invalid("instance: neither port nor securePort is enabled"));
    };
    first.service_port = settings.service_port.map_or(0, |port| port.get().into());
    Ok(ports)
}

/// Returns the metadata that can be labels, and the application.
fn labels(instance: &Instance) -> BTreeMap<String, String> {
    let app = ("app".to_owned(), instance.key.app.to_lowercase());
    let own = instance.metadata.iter().map(|(key, value)| (key.clone(), value.clone()));
    [app].into_iter().chain(own).filter(|(key, value)| is_label(key, value)).collect()
}

fn locality(instance: &Instance) -> Result<String, Failure> {
    for (name, text) in [("region", &instance.region), ("zone", &instance.zone)] {
        if text.contains('/') {
            return Err(Failure::invalid(format!("instance.metadata.{name}: {text:?} has a slash")));
        }
    }
    match (&*instance.region, &*instance.zone) {
        ("", "") => Ok(String::new()),
        (region, zone) => Ok(format!("{region}/{zone}")),
    }
}

fn weight_of(text: &str) -> u32 {
    text.parse().ok().filter(|weight| *weight <= MAX_WEIGHT).unwrap_or(0)
}

fn ttl(info: &InstanceInfo) -> Duration {
    let given = info.lease_info.as_ref().and_then(|lease| lease.duration_in_secs.0.parse().ok());
    match given {
        None | Some(0) => DEFAULT_TTL,
        Some(seconds) => Duration::from_secs(seconds).min(MAX_TTL),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use pilotfish_registration::testing::DOMAIN;
    use pilotfish_registration::{Instance as RegisteredInstance, RecordState};
    use pilotfish_registration_server::encode_id;
    use std::sync::Arc;

    fn info(json: &str) -> InstanceInfo {
        serde_json::from_str(json).unwrap()
    }

    pub(crate) fn record(instance: RegisteredInstance) -> Record {
        let instance = Arc::new(instance);
        Record { instance, owner: "o".into(), revision: 1, created: 1, state: RecordState::Serving }
    }

    fn instance(json: &str, settings: &EurekaSettings) -> Result<RegisteredInstance, String> {
        let registered = Registered::new(info(json));
        let service = service_of(&registered.info.app.0, settings);
        let id = encode_id(registered.info.id().unwrap_or_default());
        let registration = registered.registration(&service, &id, settings);
        let registration = registration.map_err(|failure| failure.message().to_owned())?;
        registration.validate(DOMAIN).map_err(|wrong| wrong.to_string())
    }

    const ORDERS: &str = r#"{"instanceId":"host:orders:8080","app":"Orders","ipAddr":"10.0.0.1","hostName":"h",
        "status":"UP","port":{"$":8080,"@enabled":"true"},"securePort":{"$":8443,"@enabled":"true"},
        "leaseInfo":{"durationInSecs":9},"vipAddress":"orders",
        "metadata":{"zone":"z1","region":"r1","version":"v2","weight":"7","free text":"a b c"}}"#;

    #[test]
    fn an_application_is_the_service_that_the_registry_makes_of_it() {
        let instance = instance(ORDERS, &EurekaSettings::default()).unwrap();
        assert_eq!(instance.key.to_string(), "default/orders.eureka/host:orders:8080");
        assert_eq!(instance.key.service_key().host(DOMAIN), "orders.eureka");
        let labels: Vec<_> = instance.labels.iter().map(|(key, value)| (&**key, &**value)).collect();
        assert_eq!(
            labels,
            [("app", "orders"), ("region", "r1"), ("version", "v2"), ("weight", "7"), ("zone", "z1")]
        );
        assert_eq!((&*instance.locality.region, &*instance.locality.zone), ("r1", "z1"));
        assert_eq!((instance.weight, instance.healthy), (7, true));
        assert_eq!(instance.ttl, Some(Duration::from_secs(9)));
        let ports: Vec<_> = instance
            .ports
            .iter()
            .map(|port| (port.number.get(), port.service_port.get(), &*port.protocol))
            .collect();
        assert_eq!(ports, [(8080, 8080, "http"), (8443, 8443, "https")]);
    }

    #[test]
    fn the_service_port_is_that_of_the_first_port() {
        let settings = EurekaSettings { service_port: std::num::NonZeroU16::new(80), ..Default::default() };
        let instance = instance(ORDERS, &settings).unwrap();
        let ports: Vec<_> = instance.ports.iter().map(|port| port.service_port.get()).collect();
        assert_eq!(ports, [80, 8443]);
    }

    #[test]
    fn a_record_gives_the_document_back() {
        let settings = EurekaSettings::default();
        let given = Registered::new(info(ORDERS));
        let back = Registered::of_record(&record(instance(ORDERS, &settings).unwrap()), &settings).unwrap();
        assert_eq!(back, given);
    }

    #[test]
    fn instances_that_cannot_be_served_are_refused() {
        for (json, part) in [
            (r#"{"app":"A","ipAddr":"10.0.0.1","port":{"$":80}}"#, "neither instanceId nor hostName"),
            (r#"{"hostName":"h","ipAddr":"10.0.0.1","port":{"$":80}}"#, "no app"),
            (r#"{"app":"A","hostName":"h","ipAddr":"10.0.0.1"}"#, "neither port nor securePort"),
            (r#"{"app":"A","hostName":"h","ipAddr":"name","port":{"$":80}}"#, "addresses[0]"),
            (r#"{"app":"A b","hostName":"h","ipAddr":"10.0.0.1","port":{"$":80}}"#, "service"),
            (
                r#"{"app":"A","hostName":"h","ipAddr":"10.0.0.1","port":{"$":80},"metadata":{"zone":"a/b"}}"#,
                "instance.metadata.zone",
            ),
        ] {
            let error = instance(json, &EurekaSettings::default()).unwrap_err();
            assert!(error.contains(part), "{json}: {error}");
        }
    }

    #[test]
    fn an_operators_status_counts_unless_the_instance_is_down_or_starting() {
        use Status::{Down, OutOfService, Starting, Unknown, Up};
        for (own, overridden, expected) in [
            (Up, Unknown, Up),
            (Up, OutOfService, OutOfService),
            (OutOfService, Up, Up),
            (Down, Up, Down),
            (Starting, OutOfService, Starting),
        ] {
            let registered = Registered { info: InstanceInfo::default(), own, overridden };
            assert_eq!(registered.status(), expected, "{own} {overridden}");
        }
    }

    #[test]
    fn leases_last_as_long_as_clients_ask() {
        for (lease, seconds) in [
            ("null", 90),
            ("{}", 90),
            (r#"{"durationInSecs":0}"#, 90),
            (r#"{"durationInSecs":-1}"#, 90),
            (r#"{"durationInSecs":"5"}"#, 5),
            (r#"{"durationInSecs":999999999}"#, 24 * 60 * 60),
        ] {
            let info = info(&format!(r#"{{"leaseInfo":{lease}}}"#));
            assert_eq!(ttl(&info), Duration::from_secs(seconds), "{lease}");
        }
    }

    #[test]
    fn instances_of_other_protocols_get_a_document() {
        let settings = EurekaSettings::default();
        let other = pilotfish_registration::Registration {
            service: "web.eureka".to_owned(),
            ..pilotfish_registration::testing::registration("web-1")
        };
        let found = Registered::of_record(&record(other.validate(DOMAIN).unwrap()), &settings).unwrap();
        assert_eq!((&*found.info.app.0, &*found.info.instance_id.0), ("WEB", "web-1"));
        assert_eq!(found.info.port, Some(PortInfo { number: 8080, enabled: true }));
        assert_eq!(found.status(), Status::Up);
        let mut foreign = pilotfish_registration::Registration {
            service: "web.eureka".to_owned(),
            ..pilotfish_registration::testing::registration("web-1")
        };
        foreign.metadata.insert(DOCUMENT.to_owned(), ORDERS.replace('\n', ""));
        let foreign = record(foreign.validate(DOMAIN).unwrap());
        assert_eq!(Registered::of_client(&foreign, &settings), None, "a document of another application");
        assert_eq!(&*Registered::of_record(&foreign, &settings).unwrap().info.app.0, "WEB");
        let elsewhere = pilotfish_registration::testing::instance("a");
        assert_eq!(Registered::of_record(&record(elsewhere), &settings), None);
    }
}
