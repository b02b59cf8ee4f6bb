//! JSON encoding of records, readable with etcdctl. Earlier versions ignore fields that later versions add.

use pilotfish_model::Locality;
use pilotfish_registration::{
    Check, CheckKind, Instance, InstanceKey, Port, Record, RecordState, TextMap, Value,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

type Texts = BTreeMap<Arc<str>, Arc<str>>;

#[derive(Serialize, Deserialize)]
struct Stored {
    owner: Arc<str>,
    #[serde(default, skip_serializing_if = "is_default")]
    draining: bool,
    addresses: Vec<IpAddr>,
    ports: Vec<StoredPort>,
    #[serde(default, skip_serializing_if = "is_default")]
    labels: Texts,
    #[serde(default, skip_serializing_if = "is_default")]
    metadata: Texts,
    #[serde(default, skip_serializing_if = "is_default")]
    locality: [Arc<str>; 3],
    #[serde(default, skip_serializing_if = "is_empty")]
    network: Arc<str>,
    #[serde(default, skip_serializing_if = "is_default")]
    weight: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    unhealthy: bool,
    #[serde(default, skip_serializing_if = "is_empty")]
    service_account: Arc<str>,
    #[serde(default, skip_serializing_if = "is_default")]
    ttl: Option<Duration>,
    #[serde(default, skip_serializing_if = "is_default")]
    checks: Vec<StoredCheck>,
    #[serde(default, skip_serializing_if = "is_default")]
    drain: Duration,
    #[serde(default, skip_serializing_if = "is_default")]
    remove_after: Option<Duration>,
}

#[derive(Serialize, Deserialize)]
struct StoredPort {
    number: NonZeroU16,
    service_port: NonZeroU16,
    #[serde(default, skip_serializing_if = "is_empty")]
    name: Arc<str>,
    #[serde(default, skip_serializing_if = "is_empty")]
    protocol: Arc<str>,
}

#[derive(Serialize, Deserialize, PartialEq)]
struct StoredCheck {
    kind: StoredKind,
    #[serde(default, skip_serializing_if = "is_default")]
    port: Option<NonZeroU16>,
    interval: Duration,
    timeout: Duration,
    healthy_threshold: u32,
    unhealthy_threshold: u32,
}

#[derive(Serialize, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum StoredKind {
    Http { path: Arc<str>, host: Arc<str> },
    Tcp,
    Grpc { service: Arc<str> },
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn is_empty(text: &Arc<str>) -> bool {
    text.is_empty()
}

/// Encodes a value as JSON.
pub(crate) fn encode(value: &Value) -> Result<Vec<u8>, serde_json::Error> {
    let Value { instance, owner, state } = value;
    let Locality { region, zone, sub_zone } = instance.locality.clone();
    serde_json::to_vec(&Stored {
        owner: owner.clone(),
        draining: *state == RecordState::Draining,
        addresses: instance.addresses.clone(),
        ports: instance.ports.iter().map(StoredPort::from).collect(),
        labels: texts(&instance.labels),
        metadata: texts(&instance.metadata),
        locality: [region, zone, sub_zone],
        network: instance.network.clone(),
        weight: instance.weight,
        unhealthy: !instance.healthy,
        service_account: instance.service_account.clone(),
        ttl: instance.ttl,
        checks: instance.checks.iter().map(StoredCheck::from).collect(),
        drain: instance.drain,
        remove_after: instance.remove_after,
    })
}

/// Decodes the record of a key's value.
pub(crate) fn decode(key: InstanceKey, json: &[u8], revision: u64, created: u64) -> Result<Record, String> {
    let stored: Stored = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    if stored.addresses.is_empty() || stored.ports.is_empty() {
        return Err("it has no address or no port".to_owned());
    }
    let [region, zone, sub_zone] = stored.locality;
    let instance = Instance {
        key,
        addresses: stored.addresses,
        ports: stored.ports.into_iter().map(Port::from).collect(),
        labels: stored.labels.into_iter().collect(),
        metadata: stored.metadata.into_iter().collect(),
        locality: Locality { region, zone, sub_zone },
        network: stored.network,
        weight: stored.weight,
        healthy: !stored.unhealthy,
        service_account: stored.service_account,
        ttl: stored.ttl,
        checks: stored.checks.into_iter().map(Check::from).collect(),
        drain: stored.drain,
        remove_after: stored.remove_after,
    };
    let state = if stored.draining { RecordState::Draining } else { RecordState::Serving };
    Ok(Record { instance: Arc::new(instance), owner: stored.owner, revision, created, state })
}

fn texts(map: &TextMap) -> Texts {
    map.iter().map(|(key, value)| (Arc::clone(key), Arc::clone(value))).collect()
}

impl From<&Port> for StoredPort {
    fn from(port: &Port) -> Self {
        let Port { number, service_port, name, protocol } = port.clone();
        Self { number, service_port, name, protocol }
    }
}

impl From<StoredPort> for Port {
    fn from(port: StoredPort) -> Self {
        let StoredPort { number, service_port, name, protocol } = port;
        Self { number, service_port, name, protocol }
    }
}

impl From<&Check> for StoredCheck {
    fn from(check: &Check) -> Self {
        let Check { kind, port, interval, timeout, healthy_threshold, unhealthy_threshold } = check.clone();
        let kind = match kind {
            CheckKind::Http { path, host } => StoredKind::Http { path, host },
            CheckKind::Tcp => StoredKind::Tcp,
            CheckKind::Grpc { service } => StoredKind::Grpc { service },
        };
        Self { kind, port, interval, timeout, healthy_threshold, unhealthy_threshold }
    }
}

impl From<StoredCheck> for Check {
    fn from(check: StoredCheck) -> Self {
        let StoredCheck { kind, port, interval, timeout, healthy_threshold, unhealthy_threshold } = check;
        let kind = match kind {
            StoredKind::Http { path, host } => CheckKind::Http { path, host },
            StoredKind::Tcp => CheckKind::Tcp,
            StoredKind::Grpc { service } => CheckKind::Grpc { service },
        };
        Self { kind, port, interval, timeout, healthy_threshold, unhealthy_threshold }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_registration::testing;

    fn through(instance: Instance, state: RecordState) {
        let key = instance.key.clone();
        let value = Value { instance: Arc::new(instance), owner: "me".into(), state };
        let json = encode(&value).unwrap();
        let record = decode(key, &json, 7, 3).unwrap();
        assert!(value.equals(&record), "{}", String::from_utf8_lossy(&json));
        assert_eq!((record.revision, record.created), (7, 3));
    }

    #[test]
    fn records_come_back_as_they_were() {
        through(testing::instance("a"), RecordState::Serving);
        let check = |kind| Check {
            kind,
            port: NonZeroU16::new(9),
            interval: Duration::from_millis(1_500),
            timeout: Duration::from_nanos(1),
            healthy_threshold: 1,
            unhealthy_threshold: 2,
        };
        let full = Instance {
            addresses: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
            labels: [("a/b".into(), "c".into())].into(),
            metadata: [("x".into(), "\u{1F41F}".into())].into(),
            locality: Locality { region: "eu".into(), zone: "a".into(), sub_zone: "r1".into() },
            network: "n".into(),
            weight: 7,
            healthy: false,
            service_account: "sa".into(),
            ttl: Some(Duration::from_nanos(1_234_567_891)),
            checks: vec![
                check(CheckKind::Tcp),
                check(CheckKind::Grpc { service: "s".into() }),
                check(CheckKind::Http { path: "/".into(), host: "h".into() }),
            ],
            drain: Duration::from_secs(5),
            remove_after: Some(Duration::from_secs(60)),
            ..testing::instance("a")
        };
        through(full, RecordState::Draining);
        through(Instance { ttl: None, ..testing::instance("a") }, RecordState::Serving);
    }

    #[test]
    fn what_is_no_record_is_told() {
        for (json, wanted) in [
            ("", "EOF"),
            ("[]", "invalid length"),
            (r#"{"owner":"me","addresses":[],"ports":[]}"#, "it has no address or no port"),
            (r#"{"owner":"me","addresses":["x"],"ports":[]}"#, "invalid IP address"),
            (r#"{"owner":"me","addresses":["::1"],"ports":[{"number":0,"service_port":1}]}"#, "nonzero"),
        ] {
            let error = decode(testing::key("a"), json.as_bytes(), 1, 1).unwrap_err();
            assert!(error.contains(wanted), "{json}: {error}");
        }
        let later = r#"{"owner":"me","addresses":["::1"],"ports":[{"number":1,"service_port":1}],"new":1}"#;
        assert!(decode(testing::key("a"), later.as_bytes(), 1, 1).is_ok());
    }
}
