//! Conversion between API messages and registration types.

use crate::failure::Failure;
use pilotfish_registration::{
    Check, CheckKind, Expected, Health, Instance, InstanceKey, InstanceView, Port, RecordState, Registration,
    RegistrationCheck, RegistrationCheckKind, RegistrationPort, TextMap, Violations,
};
use pilotfish_registration_api::v1;
use prost_types::Duration as ProtoDuration;
use std::collections::BTreeMap;
use std::time::Duration;

/// Converts and validates an instance of a client: the first step of a registration, before authorization.
///
/// # Errors
/// With all violations.
pub fn read_instance(instance: v1::Instance, domain: &str) -> Result<Instance, Violations> {
    registration(instance)?.validate(domain)
}

/// Converts an instance without validation, except for fields without another form.
fn registration(instance: v1::Instance) -> Result<Registration, Violations> {
    let mut wrong = Violations::default();
    let ttl = instance.ttl.map(|ttl| read_duration("ttl", ttl, &mut wrong));
    let drain = instance.drain.map_or(Duration::ZERO, |drain| read_duration("drain", drain, &mut wrong));
    let ports = instance.ports.into_iter().map(|port| RegistrationPort {
        number: port.number,
        service_port: port.service_port,
        name: port.name,
        protocol: port.protocol,
    });
    let checks =
        instance.checks.into_iter().enumerate().map(|(index, check)| read_check(index, check, &mut wrong));
    let checks = checks.collect();
    check_metadata(&instance.metadata, &mut wrong);
    let registration = Registration {
        namespace: instance.namespace,
        service: instance.service,
        id: instance.id,
        addresses: instance.addresses,
        ports: ports.collect(),
        labels: instance.labels,
        metadata: instance.metadata,
        locality: instance.locality,
        network: instance.network,
        weight: instance.weight,
        healthy: instance.healthy.unwrap_or(true),
        service_account: instance.service_account,
        ttl,
        checks,
        drain,
        remove_after: None,
    };
    if wrong.is_empty() { Ok(registration) } else { Err(wrong) }
}

/// Entries of metadata that only the API for clients of a product writes, alone or before a dot.
const RESERVED: [(&str, &str); 3] = [("consul", "Consul"), ("eureka", "Eureka"), ("nacos", "Nacos")];

/// Refuses entries that only the APIs for clients of other products write: they stand for what such a client
/// said.
fn check_metadata(metadata: &BTreeMap<String, String>, wrong: &mut Violations) {
    let product_of = |key: &str| {
        let name = key.split('.').next().unwrap_or_default();
        RESERVED.iter().find(|(reserved, _)| *reserved == name).map(|(_, product)| product)
    };
    for (key, product) in metadata.keys().filter_map(|key| Some((key, product_of(key)?))) {
        let shown: String = key.chars().take(63).collect();
        let message = format!("only the API for clients of {product} writes this entry");
        wrong.add(format!("metadata[{shown:?}]"), message);
    }
}

fn read_check(index: usize, check: v1::Check, wrong: &mut Violations) -> RegistrationCheck {
    let kind = check.kind.map(|kind| match kind {
        v1::check::Kind::Http(v1::HttpCheck { path, host }) => RegistrationCheckKind::Http { path, host },
        v1::check::Kind::Tcp(v1::TcpCheck {}) => RegistrationCheckKind::Tcp,
        v1::check::Kind::Grpc(v1::GrpcCheck { service }) => RegistrationCheckKind::Grpc { service },
    });
    let mut duration = |field: &str, given: Option<ProtoDuration>| {
        given.map_or(Duration::ZERO, |given| read_duration(&format!("checks[{index}].{field}"), given, wrong))
    };
    RegistrationCheck {
        kind,
        port: check.port,
        interval: duration("interval", check.interval),
        timeout: duration("timeout", check.timeout),
        healthy_threshold: check.healthy_threshold,
        unhealthy_threshold: check.unhealthy_threshold,
    }
}

fn read_duration(field: &str, given: ProtoDuration, wrong: &mut Violations) -> Duration {
    Duration::try_from(given).unwrap_or_else(|_| {
        wrong.add(field, "it is negative or no duration");
        Duration::ZERO
    })
}

/// Converts a drain time.
pub(crate) fn drain(given: Option<ProtoDuration>) -> Result<Option<Duration>, Failure> {
    let mut wrong = Violations::default();
    let drain = given.map(|drain| read_duration("drain", drain, &mut wrong));
    if wrong.is_empty() { Ok(drain) } else { Err(wrong.into()) }
}

/// Converts an expected revision: 0 means absent.
pub(crate) fn expected(revision: Option<u64>) -> Expected {
    match revision {
        None => Expected::Any,
        Some(0) => Expected::Absent,
        Some(revision) => Expected::Revision(revision),
    }
}

/// Converts a duration; none of ours exceeds the API's type.
pub(crate) fn duration(duration: Duration) -> ProtoDuration {
    ProtoDuration {
        seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(duration.subsec_nanos()).unwrap_or(0),
    }
}

pub(crate) fn key(key: &InstanceKey) -> v1::InstanceKey {
    v1::InstanceKey {
        namespace: key.namespace.to_string(),
        service: key.service.to_string(),
        id: key.id.to_string(),
    }
}

pub(crate) fn record(view: &InstanceView) -> v1::Record {
    let state = match view.record.state {
        RecordState::Serving => v1::record::State::Serving,
        RecordState::Draining => v1::record::State::Draining,
    };
    v1::Record {
        instance: Some(instance(&view.record.instance)),
        owner: view.record.owner.to_string(),
        revision: view.record.revision,
        created_revision: view.record.created,
        state: state.into(),
        health: health(view.health).into(),
    }
}

fn health(health: Health) -> v1::Health {
    match health {
        Health::Healthy => v1::Health::Healthy,
        Health::Preserved => v1::Health::Preserved,
        Health::Reported => v1::Health::Reported,
        Health::Lapsed => v1::Health::Lapsed,
        Health::CheckFailed => v1::Health::CheckFailed,
        Health::Draining => v1::Health::Leaving,
    }
}

fn instance(instance: &Instance) -> v1::Instance {
    let key = key(&instance.key);
    v1::Instance {
        namespace: key.namespace,
        service: key.service,
        id: key.id,
        addresses: instance.addresses.iter().map(ToString::to_string).collect(),
        ports: instance.ports.iter().map(port).collect(),
        labels: texts(&instance.labels),
        metadata: texts(&instance.metadata),
        locality: locality([&instance.locality.region, &instance.locality.zone, &instance.locality.sub_zone]),
        network: instance.network.to_string(),
        weight: instance.weight,
        healthy: Some(instance.healthy),
        service_account: instance.service_account.to_string(),
        ttl: instance.ttl.map(duration),
        checks: instance.checks.iter().map(check).collect(),
        drain: (!instance.drain.is_zero()).then(|| duration(instance.drain)),
    }
}

/// Formats `region/zone/sub_zone`, without empty parts at the end.
fn locality(parts: [&str; 3]) -> String {
    parts.join("/").trim_end_matches('/').to_owned()
}

fn port(port: &Port) -> v1::Port {
    v1::Port {
        number: port.number.get().into(),
        service_port: port.service_port.get().into(),
        name: port.name.to_string(),
        protocol: port.protocol.to_string(),
    }
}

fn check(check: &Check) -> v1::Check {
    let kind = match &check.kind {
        CheckKind::Http { path, host } => {
            v1::check::Kind::Http(v1::HttpCheck { path: path.to_string(), host: host.to_string() })
        }
        CheckKind::Tcp => v1::check::Kind::Tcp(v1::TcpCheck {}),
        CheckKind::Grpc { service } => v1::check::Kind::Grpc(v1::GrpcCheck { service: service.to_string() }),
    };
    v1::Check {
        kind: Some(kind),
        port: check.port.map_or(0, |port| port.get().into()),
        interval: Some(duration(check.interval)),
        timeout: Some(duration(check.timeout)),
        healthy_threshold: check.healthy_threshold,
        unhealthy_threshold: check.unhealthy_threshold,
    }
}

fn texts(map: &TextMap) -> BTreeMap<String, String> {
    map.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_registration::Record;
    use std::sync::Arc;

    fn sent() -> v1::Instance {
        let seconds = |seconds| Some(ProtoDuration { seconds, nanos: 0 });
        let check = |kind| v1::Check {
            kind: Some(kind),
            port: 8080,
            interval: seconds(5),
            timeout: seconds(2),
            healthy_threshold: 2,
            unhealthy_threshold: 3,
        };
        v1::Instance {
            namespace: "shop".into(),
            service: "web".into(),
            id: "a".into(),
            addresses: vec!["10.0.0.1".into(), "2001:db8::1".into()],
            ports: vec![v1::Port {
                number: 8080,
                service_port: 80,
                name: "http".into(),
                protocol: "http".into(),
            }],
            labels: [("app".to_owned(), "web".to_owned())].into(),
            metadata: [("note".to_owned(), "free".to_owned())].into(),
            locality: "eu/a".into(),
            network: "one".into(),
            weight: 5,
            healthy: Some(false),
            service_account: "web".into(),
            ttl: seconds(10),
            checks: vec![
                check(v1::check::Kind::Http(v1::HttpCheck { path: "/healthz".into(), host: "web".into() })),
                check(v1::check::Kind::Tcp(v1::TcpCheck {})),
                check(v1::check::Kind::Grpc(v1::GrpcCheck { service: "s".into() })),
            ],
            drain: seconds(3),
        }
    }

    #[test]
    fn an_instance_comes_back_as_it_was_sent() {
        let instance = registration(sent()).unwrap().validate("cluster.local").unwrap();
        let record = Record {
            instance: Arc::new(instance),
            owner: "token/a".into(),
            revision: 4,
            created: 2,
            state: RecordState::Serving,
        };
        let view = InstanceView { record: Arc::new(record), health: Health::Reported };
        let shown = super::record(&view);
        assert_eq!(shown.instance, Some(sent()));
        assert_eq!((shown.revision, shown.created_revision, &*shown.owner), (4, 2, "token/a"));
        assert_eq!(shown.health(), v1::Health::Reported);
        assert_eq!(shown.state(), v1::record::State::Serving);
    }

    #[test]
    fn durations_that_are_none_are_named() {
        let negative = Some(ProtoDuration { seconds: -1, nanos: 0 });
        let check = v1::Check { timeout: negative, ..v1::Check::default() };
        let sent =
            v1::Instance { ttl: negative, drain: negative, checks: vec![check], ..v1::Instance::default() };
        let wrong = registration(sent).unwrap_err();
        let fields: Vec<_> = wrong.listed().iter().map(|violation| &*violation.field).collect();
        assert_eq!(fields, ["ttl", "drain", "checks[0].timeout"]);
    }

    #[test]
    fn entries_of_the_apis_for_clients_of_other_products_are_refused() {
        let keys = ["consul.status", "eureka", "eureka.status", "eurekas", "my.eureka", "nacos", "nacos.x"];
        let metadata = keys.map(|key| (key.to_owned(), String::new())).into();
        let wrong = registration(v1::Instance { metadata, ..v1::Instance::default() }).unwrap_err();
        let fields: Vec<_> = wrong.listed().iter().map(|violation| &*violation.field).collect();
        let expected = ["consul.status", "eureka", "eureka.status", "nacos", "nacos.x"];
        assert_eq!(fields, expected.map(|key| format!("metadata[{key:?}]")));
    }

    #[test]
    fn nothing_said_is_healthy_and_any_revision() {
        let read = registration(v1::Instance::default()).unwrap();
        assert!(read.healthy && read.ttl.is_none() && read.drain.is_zero());
        assert_eq!(expected(None), Expected::Any);
        assert_eq!(expected(Some(0)), Expected::Absent);
        assert_eq!(expected(Some(3)), Expected::Revision(3));
    }
}
