//! Encoding of records. The numbers of fields are never reused; new fields get new numbers.

use crate::interner::Interner;
use pilotfish_model::Locality;
use pilotfish_registration::{Check, CheckKind, Instance, InstanceKey, Port, Record, RecordState, TextMap};
use prost::Message;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

/// Separator of the names in a key. Names cannot contain it.
const SEPARATOR: u8 = 0;

#[derive(Clone, PartialEq, Message)]
struct Stored {
    #[prost(uint64, tag = "1")]
    revision: u64,
    #[prost(uint64, tag = "2")]
    created: u64,
    #[prost(string, tag = "3")]
    owner: String,
    #[prost(bool, tag = "4")]
    is_draining: bool,
    #[prost(bytes = "vec", repeated, tag = "5")]
    addresses: Vec<Vec<u8>>,
    #[prost(message, repeated, tag = "6")]
    ports: Vec<StoredPort>,
    #[prost(btree_map = "string, string", tag = "7")]
    labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "8")]
    metadata: BTreeMap<String, String>,
    #[prost(string, tag = "9")]
    region: String,
    #[prost(string, tag = "10")]
    zone: String,
    #[prost(string, tag = "11")]
    sub_zone: String,
    #[prost(string, tag = "12")]
    network: String,
    #[prost(uint32, tag = "13")]
    weight: u32,
    #[prost(bool, tag = "14")]
    is_unhealthy: bool,
    #[prost(string, tag = "15")]
    service_account: String,
    #[prost(uint64, optional, tag = "16")]
    ttl_nanos: Option<u64>,
    #[prost(uint64, tag = "17")]
    drain_nanos: u64,
    #[prost(message, repeated, tag = "18")]
    checks: Vec<StoredCheck>,
    #[prost(uint64, optional, tag = "19")]
    remove_after_nanos: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct StoredPort {
    #[prost(uint32, tag = "1")]
    number: u32,
    #[prost(uint32, tag = "2")]
    service_port: u32,
    #[prost(string, tag = "3")]
    name: String,
    #[prost(string, tag = "4")]
    protocol: String,
}

#[derive(Clone, PartialEq, Message)]
struct StoredCheck {
    /// 1: HTTP, 2: TCP, 3: gRPC.
    #[prost(uint32, tag = "1")]
    kind: u32,
    /// Path for HTTP, service for gRPC.
    #[prost(string, tag = "2")]
    target: String,
    #[prost(string, tag = "3")]
    host: String,
    #[prost(uint32, tag = "4")]
    port: u32,
    #[prost(uint64, tag = "5")]
    interval_nanos: u64,
    #[prost(uint64, tag = "6")]
    timeout_nanos: u64,
    #[prost(uint32, tag = "7")]
    healthy_threshold: u32,
    #[prost(uint32, tag = "8")]
    unhealthy_threshold: u32,
}

/// Encodes the key of a record. Instances of a service are adjacent.
pub(crate) fn encode_key(key: &InstanceKey) -> Vec<u8> {
    let InstanceKey { namespace, service, id } = key;
    let mut bytes = Vec::with_capacity(namespace.len() + service.len() + id.len() + 2);
    bytes.extend_from_slice(namespace.as_bytes());
    bytes.push(SEPARATOR);
    bytes.extend_from_slice(service.as_bytes());
    bytes.push(SEPARATOR);
    bytes.extend_from_slice(id.as_bytes());
    bytes
}

pub(crate) fn decode_key(bytes: &[u8], interner: &mut Interner) -> Result<InstanceKey, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| format!("a key is no text: {error}"))?;
    let mut parts = text.split(char::from(SEPARATOR));
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(namespace), Some(service), Some(id), None) => Ok(InstanceKey {
            namespace: interner.text(namespace),
            service: interner.text(service),
            id: id.into(),
        }),
        _ => Err(format!("{text:?} is no key")),
    }
}

pub(crate) fn encode(record: &Record) -> Vec<u8> {
    let instance = &*record.instance;
    let text = |text: &Arc<str>| text.as_ref().to_owned();
    let texts = |map: &TextMap| {
        map.iter().map(|(key, value)| (key.as_ref().to_owned(), value.as_ref().to_owned())).collect()
    };
    let stored = Stored {
        revision: record.revision,
        created: record.created,
        owner: text(&record.owner),
        is_draining: record.state == RecordState::Draining,
        addresses: instance.addresses.iter().map(|address| encode_address(*address)).collect(),
        ports: instance.ports.iter().map(encode_port).collect(),
        labels: texts(&instance.labels),
        metadata: texts(&instance.metadata),
        region: text(&instance.locality.region),
        zone: text(&instance.locality.zone),
        sub_zone: text(&instance.locality.sub_zone),
        network: text(&instance.network),
        weight: instance.weight,
        is_unhealthy: !instance.healthy,
        service_account: text(&instance.service_account),
        ttl_nanos: instance.ttl.map(nanos),
        drain_nanos: nanos(instance.drain),
        checks: instance.checks.iter().map(encode_check).collect(),
        remove_after_nanos: instance.remove_after.map(nanos),
    };
    stored.encode_to_vec()
}

/// Decodes the record of a key. An undecodable record means damage, since only validated instances are
/// written.
pub(crate) fn decode(key: InstanceKey, bytes: &[u8], interner: &mut Interner) -> Result<Record, String> {
    let stored =
        Stored::decode(bytes).map_err(|error| format!("the record of {key} cannot be read: {error}"))?;
    let broken = |what: &str| format!("the record of {key} has {what}");
    let addresses =
        stored.addresses.iter().map(|bytes| decode_address(bytes).ok_or_else(|| broken("a bad address")));
    let addresses = addresses.collect::<Result<Vec<_>, _>>()?;
    let ports =
        stored.ports.iter().map(|port| decode_port(port, interner).ok_or_else(|| broken("a bad port")));
    let ports = ports.collect::<Result<Vec<_>, _>>()?;
    let checks = stored.checks.iter().map(|check| decode_check(check).ok_or_else(|| broken("a bad check")));
    let checks = checks.collect::<Result<Vec<_>, _>>()?;
    let mut texts = |map: &BTreeMap<String, String>| {
        map.iter().map(|(key, value)| (interner.text(key), interner.text(value))).collect()
    };
    let (labels, metadata) = (texts(&stored.labels), texts(&stored.metadata));
    let locality = Locality {
        region: interner.text(&stored.region),
        zone: interner.text(&stored.zone),
        sub_zone: interner.text(&stored.sub_zone),
    };
    let instance = Instance {
        key,
        addresses,
        ports,
        labels,
        metadata,
        locality,
        network: interner.text(&stored.network),
        weight: stored.weight,
        healthy: !stored.is_unhealthy,
        service_account: interner.text(&stored.service_account),
        ttl: stored.ttl_nanos.map(Duration::from_nanos),
        checks,
        drain: Duration::from_nanos(stored.drain_nanos),
        remove_after: stored.remove_after_nanos.map(Duration::from_nanos),
    };
    Ok(Record {
        instance: Arc::new(instance),
        owner: interner.text(&stored.owner),
        revision: stored.revision,
        created: stored.created,
        state: if stored.is_draining { RecordState::Draining } else { RecordState::Serving },
    })
}

fn encode_address(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn decode_address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        _ => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
    }
}

fn encode_port(port: &Port) -> StoredPort {
    StoredPort {
        number: port.number.get().into(),
        service_port: port.service_port.get().into(),
        name: port.name.as_ref().to_owned(),
        protocol: port.protocol.as_ref().to_owned(),
    }
}

fn decode_port(stored: &StoredPort, interner: &mut Interner) -> Option<Port> {
    Some(Port {
        number: port_number(stored.number)?,
        service_port: port_number(stored.service_port)?,
        name: interner.text(&stored.name),
        protocol: interner.text(&stored.protocol),
    })
}

fn port_number(number: u32) -> Option<NonZeroU16> {
    u16::try_from(number).ok().and_then(NonZeroU16::new)
}

fn encode_check(check: &Check) -> StoredCheck {
    let (kind, target, host) = match &check.kind {
        CheckKind::Http { path, host } => (1, &**path, &**host),
        CheckKind::Tcp => (2, "", ""),
        CheckKind::Grpc { service } => (3, &**service, ""),
    };
    StoredCheck {
        kind,
        target: target.to_owned(),
        host: host.to_owned(),
        port: check.port.map_or(0, |port| port.get().into()),
        interval_nanos: nanos(check.interval),
        timeout_nanos: nanos(check.timeout),
        healthy_threshold: check.healthy_threshold,
        unhealthy_threshold: check.unhealthy_threshold,
    }
}

fn decode_check(stored: &StoredCheck) -> Option<Check> {
    let (target, host) = (stored.target.as_str().into(), stored.host.as_str().into());
    let kind = match stored.kind {
        1 => CheckKind::Http { path: target, host },
        2 => CheckKind::Tcp,
        3 => CheckKind::Grpc { service: target },
        _ => return None,
    };
    Some(Check {
        kind,
        port: if stored.port == 0 { None } else { Some(port_number(stored.port)?) },
        interval: Duration::from_nanos(stored.interval_nanos),
        timeout: Duration::from_nanos(stored.timeout_nanos),
        healthy_threshold: stored.healthy_threshold,
        unhealthy_threshold: stored.unhealthy_threshold,
    })
}

/// Converts a duration; durations of instances are at most hours, so it fits.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Bytes of a damaged file are an error or a record, and nothing else.
        #[test]
        fn any_bytes_are_an_error_or_a_record(
            key in proptest::collection::vec(any::<u8>(), 0..40),
            value in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut interner = Interner::default();
            if let Ok(key) = decode_key(&key, &mut interner) {
                prop_assert_eq!(&decode_key(&encode_key(&key), &mut interner), &Ok(key.clone()));
                if let Ok(record) = decode(key.clone(), &value, &mut interner) {
                    prop_assert_eq!(decode(key, &encode(&record), &mut interner), Ok(record));
                }
            }
        }
    }

    #[test]
    fn what_is_no_record_is_named() {
        let key = || InstanceKey::new("default", "web", "a");
        let mut interner = Interner::default();
        let error = |stored: &Stored, interner: &mut Interner| {
            decode(key(), &stored.encode_to_vec(), interner).expect_err("broken")
        };
        let stored = Stored { addresses: vec![vec![1, 2, 3]], ..Stored::default() };
        assert_eq!(error(&stored, &mut interner), "the record of default/web/a has a bad address");
        let stored = Stored {
            ports: vec![StoredPort { number: 65_536, ..StoredPort::default() }],
            ..Stored::default()
        };
        assert_eq!(error(&stored, &mut interner), "the record of default/web/a has a bad port");
        let stored =
            Stored { checks: vec![StoredCheck { kind: 9, ..StoredCheck::default() }], ..Stored::default() };
        assert_eq!(error(&stored, &mut interner), "the record of default/web/a has a bad check");
        assert!(
            decode(key(), &[0xFF], &mut interner)
                .is_err_and(|error| error.contains("default/web/a cannot be read"))
        );
        for bad in [&b"a\0b"[..], b"a\0b\0c\0d", b"\xFF\0b\0c"] {
            assert!(decode_key(bad, &mut interner).is_err());
        }
    }
}
