//! What is wrong with an instance is said field by field, by gRPC and JSON alike.

use crate::harness::{Harness, instance};
use pilotfish_registration_api::v1;
use tonic::Code;
use tonic_types::StatusExt;

fn seconds(seconds: i64) -> Option<prost_types::Duration> {
    Some(prost_types::Duration { seconds, nanos: 0 })
}

fn port(number: u32) -> v1::Port {
    v1::Port { number, ..v1::Port::default() }
}

/// What is wrong, and the fields that must be named.
fn cases() -> Vec<(&'static str, v1::Instance, Vec<&'static str>)> {
    let with = |change: &dyn Fn(&mut v1::Instance)| {
        let mut instance = instance("a");
        change(&mut instance);
        instance
    };
    let text = |name: &str, value: &str| [(name.to_owned(), value.to_owned())].into();
    vec![
        ("a lease that is too short", with(&|i| i.ttl = seconds(0)), vec!["instance.ttl"]),
        ("a lease that is too long", with(&|i| i.ttl = seconds(1_000_000)), vec!["instance.ttl"]),
        ("a negative lease", with(&|i| i.ttl = seconds(-5)), vec!["instance.ttl"]),
        ("a lease beyond all clocks", with(&|i| i.ttl = seconds(i64::MAX)), vec!["instance.ttl"]),
        ("no addresses", with(&|i| i.addresses.clear()), vec!["instance.addresses"]),
        (
            "a name as address",
            with(&|i| i.addresses = vec!["web.example".into()]),
            vec!["instance.addresses[0]"],
        ),
        (
            "an address twice",
            with(&|i| i.addresses = vec!["10.0.0.1".into(), "10.0.0.1".into()]),
            vec!["instance.addresses[1]"],
        ),
        ("no ports", with(&|i| i.ports.clear()), vec!["instance.ports"]),
        (
            "port 0 and port 65536",
            with(&|i| i.ports = vec![port(0), port(65_536)]),
            vec!["instance.ports[0].number", "instance.ports[1].number"],
        ),
        ("a port twice", with(&|i| i.ports = vec![port(80), port(80)]), vec!["instance.ports[1]"]),
        ("no id", with(&|i| i.id.clear()), vec!["instance.id"]),
        ("an id with a slash", with(&|i| i.id = "a/b".into()), vec!["instance.id"]),
        ("a service in capitals", with(&|i| i.service = "Web".into()), vec!["instance.service"]),
        ("a service that would collide", with(&|i| i.service = "web_1".into()), vec!["instance.service"]),
        ("a namespace that is none", with(&|i| i.namespace = "a.b".into()), vec!["instance.namespace"]),
        (
            "a label that no header can carry",
            with(&|i| i.labels = text("a", "x\r\ny")),
            vec!["instance.labels"],
        ),
        ("a label name with spaces", with(&|i| i.labels = text("a b", "x")), vec!["instance.labels"]),
        (
            "too much metadata",
            with(&|i| i.metadata = text("a", &"x".repeat(100_000))),
            vec!["instance.metadata"],
        ),
        ("a check of nothing", with(&|i| i.checks = vec![v1::Check::default()]), vec!["instance.checks[0]"]),
        ("a drain time of a day", with(&|i| i.drain = seconds(86_400)), vec!["instance.drain"]),
    ]
}

#[tokio::test]
async fn every_field_that_is_wrong_is_named() {
    let harness = Harness::start().await;
    let mut client = harness.grpc().await;
    for (what, instance, expected) in cases() {
        let request = v1::RegisterRequest { instance: Some(instance), expected_revision: None };
        let json = pilotfish_registration_api::to_json(&request).map(|json| String::from_utf8(json).unwrap());
        let status = client.register(request).await.map(drop).expect_err(what);
        assert_eq!(status.code(), Code::InvalidArgument, "{what}: {status:?}");
        let details = status.get_error_details();
        let violations =
            &details.bad_request().unwrap_or_else(|| unreachable!("{what}: {status:?}")).field_violations;
        let named: Vec<&str> = violations.iter().map(|violation| violation.field.as_str()).collect();
        for field in &expected {
            assert!(named.iter().any(|named| named.starts_with(field)), "{what}: {named:?}");
        }
        assert!(violations.iter().all(|violation| violation.description.len() < 1_000), "{what}");
        // JSON has no form for some durations.
        let Ok(json) = json else { continue };
        let (http, answer) = harness.json("POST", "/v1/instances", &json).await;
        assert_eq!(http, 400, "{what}: {json}: {answer}");
        let fields: Vec<&str> = answer["error"]["fields"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|f| f["field"].as_str())
            .collect();
        for field in &expected {
            assert!(fields.iter().any(|named| named.starts_with(field)), "{what}: {answer}");
        }
    }
    assert_eq!(harness.registrar.stats().counts.instances(), 0);
}
