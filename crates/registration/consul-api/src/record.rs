//! Services as registrations, and back.
//!
//! The client's definition is kept in the metadata of the registration. The status of its check and its
//! maintenance have entries of their own.

use crate::ConsulSettings;
use crate::checks::Status;
use crate::service::{Service, Weights};
use pilotfish_model::Protocol;
use pilotfish_registration::limits::MAX_LABELS;
use pilotfish_registration::{
    Health, InstanceView, Record, Registration, RegistrationPort, ServiceKey, is_label,
};
use pilotfish_registration_server::{Failure, encode_id};
use std::collections::BTreeMap;

/// Metadata entry of the definition.
const DEFINITION: &str = "consul";
/// Metadata entry of the status that the client reports.
const STATUS: &str = "consul.status";
/// Metadata entry of the note to that status.
const OUTPUT: &str = "consul.output";
/// Metadata entry of the reason of maintenance.
const MAINTENANCE: &str = "consul.maintenance";
/// Domain of the hosts: that of Consul's own names.
const DOMAIN: &str = ".service.consul";
/// Separator of key and value in tags that are labels, as in the registry.
const SEPARATOR: char = '|';
/// Maximum number of bytes of a note that is kept.
const MAX_OUTPUT: usize = 512;

/// A service with what was reported of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Registered {
    pub(crate) service: Service,
    /// Status of the check with a TTL.
    pub(crate) status: Status,
    /// Note to that status.
    pub(crate) output: String,
    /// Reason of maintenance; `None` without it.
    pub(crate) maintenance: Option<String>,
    /// False for a service that another protocol registered.
    pub(crate) is_of_client: bool,
}

impl Registered {
    /// A new registration. Keeps the last report of the same check, as Consul does.
    pub(crate) fn new(service: Service, known: Option<&InstanceView>, settings: &ConsulSettings) -> Self {
        let first = service.ttl_check().map_or(Status::Passing, |check| check.first);
        let new =
            Self { service, status: first, output: String::new(), maintenance: None, is_of_client: true };
        let Some(view) = known else { return new };
        let Some(known) = Self::of_client(&view.record, settings) else { return new };
        let id = |service: &Service| service.ttl_check().map(|check| check.id.clone());
        let is_same = id(&known.service).is_some() && id(&known.service) == id(&new.service);
        let (status, output) = match (is_same, view.health) {
            (false, _) => (new.status, new.output),
            (true, Health::Lapsed) => (Status::Critical, known.output),
            (true, _) => (known.status, known.output),
        };
        Self { status, output, maintenance: known.maintenance, ..new }
    }

    /// Reads a record. One of another protocol gets a definition of its key, address and port.
    pub(crate) fn of_record(record: &Record, settings: &ConsulSettings) -> Option<Self> {
        Self::of_client(record, settings).or_else(|| definition_of(record, settings))
    }

    /// Reads a record that a client of Consul registered; a definition of another service is none.
    pub(crate) fn of_client(record: &Record, settings: &ConsulSettings) -> Option<Self> {
        let instance = &record.instance;
        let metadata = &instance.metadata;
        let service: Service = serde_json::from_str(metadata.get(DEFINITION)?).ok()?;
        let is_own = service_of(&service.name) == *instance.key.service
            && instance.key.namespace == settings.namespace
            && id_of(&service.id, &service.node) == *instance.key.id;
        let text = |key: &str| metadata.get(key).map(|text| text.to_string());
        is_own.then(|| Self {
            status: text(STATUS).and_then(|text| Status::parse(&text)).unwrap_or_default(),
            output: text(OUTPUT).unwrap_or_default(),
            maintenance: text(MAINTENANCE),
            service,
            is_of_client: true,
        })
    }

    /// Sets what the client reports.
    pub(crate) fn report(&mut self, status: Status, output: &str) {
        self.status = status;
        self.output = printable(output);
    }

    /// Begins maintenance for a reason, or ends it.
    pub(crate) fn maintain(&mut self, reason: Option<&str>) {
        self.maintenance = reason.map(|reason| match reason {
            "" => "Maintenance mode is enabled for this service, but no reason was provided.".to_owned(),
            reason => printable(reason),
        });
    }

    /// Returns the registration that stands for the service.
    pub(crate) fn registration(&self, settings: &ConsulSettings) -> Result<Registration, Failure> {
        let service = &self.service;
        let definition = serde_json::to_string(service)
            .map_err(|error| Failure::invalid(format!("the service has no JSON form: {error}")))?;
        let mut metadata = BTreeMap::from([(DEFINITION.to_owned(), definition)]);
        let ttl = service.ttl_check().and_then(crate::checks::CheckDefinition::ttl);
        if ttl.is_some() {
            metadata.insert(STATUS.to_owned(), self.status.name().to_owned());
        }
        if !self.output.is_empty() {
            metadata.insert(OUTPUT.to_owned(), self.output.clone());
        }
        if let Some(reason) = &self.maintenance {
            metadata.insert(MAINTENANCE.to_owned(), reason.clone());
        }
        let Weights { passing, warning } = service.weights;
        let weight = if self.status == Status::Warning { warning } else { passing };
        let locality = service.locality.as_ref().map(|own| format!("{}/{}", own.region, own.zone));
        let (name, id) = (service_of(&service.name), id_of(&service.id, &service.node));
        Ok(Registration {
            addresses: vec![service.place().to_owned()],
            ports: vec![port(service, settings)],
            labels: labels(service),
            metadata,
            locality: locality.map(|text| text.trim_end_matches('/').to_owned()).unwrap_or_default(),
            weight: if weight == 1 { 0 } else { weight },
            healthy: self.status != Status::Critical && self.maintenance.is_none() && weight > 0,
            ttl,
            remove_after: ttl.map(|_| service.remove_after()),
            checks: service.checks.iter().filter_map(|check| check.registration()).collect(),
            ..Registration::new(&settings.namespace, &name, &id)
        })
    }
}

/// Returns the name of a service in the registrar.
pub(crate) fn service_of(name: &str) -> String {
    format!("{}{DOMAIN}", name.to_lowercase())
}

/// Returns the name in Consul of a service; `None` for a service that has none.
pub(crate) fn name_of<'a>(key: &'a ServiceKey, settings: &ConsulSettings) -> Option<&'a str> {
    let name = key.service.strip_suffix(DOMAIN).filter(|name| !name.is_empty())?;
    (key.namespace == settings.namespace).then_some(name)
}

/// Returns the id of a registration: ids are unique among the services of an agent.
pub(crate) fn id_of(id: &str, node: &str) -> String {
    format!("{}@{node}", encode_id(id))
}

fn port(service: &Service, settings: &ConsulSettings) -> RegistrationPort {
    let known = service.meta.get("protocol").filter(|text| !Protocol::parse(text).is_unsupported());
    let named = known.map_or(Protocol::Tcp, |text| Protocol::parse(text));
    RegistrationPort {
        number: service.port,
        service_port: settings.service_port.map_or(0, |port| port.get().into()),
        name: named.as_str().to_ascii_lowercase(),
        protocol: known.cloned().unwrap_or_default(),
    }
}

/// Returns metadata, and tags `KEY|VALUE`, that can be labels: as many as there may be, by key.
fn labels(service: &Service) -> BTreeMap<String, String> {
    let tags = service.tags.iter().filter_map(|tag| tag.split_once(SEPARATOR));
    let tags = tags.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let meta = service.meta.iter().map(|(key, value)| (key.clone(), value.clone()));
    let all: BTreeMap<_, _> = meta.chain(tags).filter(|(key, value)| is_label(key, value)).collect();
    all.into_iter().take(MAX_LABELS).collect()
}

fn definition_of(record: &Record, settings: &ConsulSettings) -> Option<Registered> {
    let instance = &record.instance;
    let name = name_of(&instance.key.service_key(), settings)?.to_owned();
    let address = instance.addresses.first()?.to_string();
    let port = instance.ports.first()?;
    let entries = instance.labels.iter().map(|(key, value)| (key.to_string(), value.to_string()));
    let mut meta: BTreeMap<String, String> = entries.collect();
    if !port.protocol.is_empty() {
        meta.insert("protocol".to_owned(), port.protocol.to_string());
    }
    let weight = instance.weight.max(1);
    let service = Service {
        id: instance.key.id.to_string(),
        name,
        meta,
        address: address.clone(),
        port: port.number.get().into(),
        weights: Weights { passing: weight, warning: weight },
        node: address,
        ..Service::default()
    };
    let status = if instance.healthy { Status::Passing } else { Status::Critical };
    Some(Registered { service, status, output: String::new(), maintenance: None, is_of_client: false })
}

/// Cuts a note, without control characters.
fn printable(text: &str) -> String {
    let mut end = text.len().min(MAX_OUTPUT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use pilotfish_registration::testing::{self, DOMAIN as CLUSTER};
    use pilotfish_registration::{Instance, RecordState};
    use std::sync::Arc;
    use std::time::Duration;

    pub(crate) fn view(instance: Instance, health: Health) -> InstanceView {
        let instance = Arc::new(instance);
        let record =
            Record { instance, owner: "o".into(), revision: 1, created: 1, state: RecordState::Serving };
        InstanceView { record: Arc::new(record), health }
    }

    fn registered(body: &str) -> Registered {
        let service = Service::read(body.as_bytes(), "10.0.0.9").unwrap();
        Registered::new(service, None, &ConsulSettings::default())
    }

    pub(crate) fn instance(body: &str) -> Instance {
        registered(body).registration(&ConsulSettings::default()).unwrap().validate(CLUSTER).unwrap()
    }

    const WEB: &str = r#"{"Name":"Web","ID":"web/1","Address":"10.0.0.1","Port":8080,"Tags":["version|v2","plain"],
        "Meta":{"protocol":"http","version":"v1","free text":"x"},"Weights":{"Passing":7,"Warning":1},
        "Locality":{"Region":"r1","Zone":"z1"},"Check":{"TTL":"9s","Status":"passing"}}"#;

    #[test]
    fn a_service_is_what_the_registry_makes_of_it() {
        let instance = instance(WEB);
        assert_eq!(instance.key.to_string(), "default/web.service.consul/web~2F1@10.0.0.9");
        assert_eq!(instance.key.service_key().host(CLUSTER), "web.service.consul");
        let labels: Vec<_> = instance.labels.iter().map(|(key, value)| (&**key, &**value)).collect();
        assert_eq!(labels, [("protocol", "http"), ("version", "v2")], "a tag comes before metadata");
        assert_eq!((&*instance.locality.region, &*instance.locality.zone), ("r1", "z1"));
        assert_eq!((instance.weight, instance.healthy), (7, true));
        assert_eq!(instance.ttl, Some(Duration::from_secs(9)));
        assert_eq!(instance.remove_after, Some(Duration::from_secs(72 * 60 * 60)));
        let port = &instance.ports[0];
        assert_eq!((port.number.get(), &*port.name, &*port.protocol), (8080, "http", "http"));
    }

    #[test]
    fn what_is_too_much_for_labels_is_left_out() {
        let tags: Vec<String> = (0..=MAX_LABELS).rev().map(|number| format!("t{number:02}|v")).collect();
        let body = serde_json::json!({"Name": "a", "Port": 80, "Tags": tags, "Meta": {"t00": "m"}});
        let labels = instance(&body.to_string()).labels;
        let keys: Vec<_> = labels.iter().map(|(key, value)| format!("{key}|{value}")).collect();
        let expected: Vec<_> = (0..MAX_LABELS).map(|number| format!("t{number:02}|v")).collect();
        assert_eq!(keys, expected);
    }

    #[test]
    fn a_service_without_a_check_has_no_lease() {
        let instance = instance(r#"{"Name":"a","Port":80}"#);
        assert_eq!((instance.ttl, instance.remove_after, instance.healthy), (None, None, true));
        assert_eq!(instance.addresses, ["10.0.0.9".parse::<std::net::IpAddr>().unwrap()]);
        assert_eq!((&*instance.ports[0].name, &*instance.ports[0].protocol), ("tcp", ""));
    }

    #[test]
    fn the_service_port_can_be_another() {
        let settings = ConsulSettings { service_port: std::num::NonZeroU16::new(80), ..Default::default() };
        let instance = registered(WEB).registration(&settings).unwrap().validate(CLUSTER).unwrap();
        assert_eq!(instance.ports[0].service_port.get(), 80);
    }

    #[test]
    fn the_worst_state_decides_health_and_weight() {
        use Status::{Critical, Passing, Warning};
        for (status, maintenance, weights, expected) in [
            (Passing, false, (7, 3), (true, 7)),
            (Warning, false, (7, 3), (true, 3)),
            (Warning, false, (7, 0), (false, 0)),
            (Critical, false, (7, 3), (false, 7)),
            (Passing, true, (7, 3), (false, 7)),
            (Passing, false, (1, 1), (true, 0)),
        ] {
            let mut registered = registered(WEB);
            registered.service.weights = Weights { passing: weights.0, warning: weights.1 };
            registered.report(status, "");
            registered.maintain(maintenance.then_some(""));
            let made = registered.registration(&ConsulSettings::default()).unwrap();
            assert_eq!((made.healthy, made.weight), expected, "{status:?} {maintenance}");
        }
    }

    #[test]
    fn a_record_gives_the_definition_and_reports_back() {
        let settings = ConsulSettings::default();
        let mut given = registered(WEB);
        given.report(Status::Warning, "slow\ndisk");
        given.maintain(Some("update"));
        let instance = given.registration(&settings).unwrap().validate(CLUSTER).unwrap();
        let view = view(instance, Health::Reported);
        let back = Registered::of_client(&view.record, &settings).unwrap();
        assert_eq!(back, given);
        assert_eq!(back.output, "slow disk");

        let again = Registered::new(given.service.clone(), Some(&view), &settings);
        assert_eq!((again.status, again.maintenance.as_deref()), (Status::Warning, Some("update")));
        let lapsed = InstanceView { health: Health::Lapsed, ..view.clone() };
        assert_eq!(Registered::new(given.service.clone(), Some(&lapsed), &settings).status, Status::Critical);
        let other =
            Service::read(br#"{"Name":"Web","Port":1,"Check":{"CheckID":"x","TTL":"1s"}}"#, "n").unwrap();
        assert_eq!(Registered::new(other, Some(&view), &settings).status, Status::Critical, "a new check");
    }

    #[test]
    fn services_of_other_protocols_get_a_definition() {
        let settings = ConsulSettings::default();
        let service = "web.service.consul".to_owned();
        let mut other = Registration { service, ..testing::registration("web-1") };
        let of = |other: &Registration| {
            let view = view(other.clone().validate(CLUSTER).unwrap(), Health::Healthy);
            Registered::of_record(&view.record, &settings).unwrap()
        };
        let found = of(&other);
        assert_eq!((&*found.service.name, &*found.service.id, found.service.port), ("web", "web-1", 8080));
        assert!(!found.is_of_client);
        other
            .metadata
            .insert(DEFINITION.to_owned(), serde_json::to_string(&registered(WEB).service).unwrap());
        assert!(!of(&other).is_of_client, "a definition of another id");
        let elsewhere = view(testing::instance("a"), Health::Healthy);
        assert_eq!(Registered::of_record(&elsewhere.record, &settings), None);
    }
}
