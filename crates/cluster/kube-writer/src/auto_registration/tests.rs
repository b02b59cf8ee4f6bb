//! Who may have an entry, what is in it, and its annotations.

use super::admission::admit;
use super::annotations::{self, CleanUp, Connected, ConnectionMark, Seen, Verdict};
use super::entry::{EntryName, RegistrationRequest, make};
use super::stale_tracker::{StaleEntry, StaleTracker};
use super::{AddressRule, PeerIdentity, RegistrationError, RegistrationFeatures};
use k8s_openapi::jiff::Timestamp;
use pilotfish_config::networking::WorkloadGroup;
use pilotfish_config::read_live;
use pilotfish_model::{Kind, Object, Typed, Update, World, WorldWriter};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::new(1_700_000_000 + seconds, 0).unwrap()
}

fn object(kind: Kind, mut json: Value) -> Object {
    json["metadata"]["namespace"] = "vms".into();
    read_live(kind, &"cluster test".into(), json.to_string().as_bytes()).unwrap().object
}

fn group(account: &str) -> Object {
    object(
        Kind::WorkloadGroup,
        json!({
            "metadata": {"name": "machines", "uid": "u-1"},
            "spec": {
                "metadata": {
                    "labels": {"app": "db", "of": "group"},
                    "annotations": {"note": "n", "istio.io/autoRegistrationGroup": "renamed"},
                },
                "template": {
                    "labels": {"app": "template", "of": "template", "istio-locality": "old"},
                    "ports": {"sql": 3306}, "network": "lost", "locality": "r1/z1", "serviceAccount": account,
                },
            },
        }),
    )
}

fn world(objects: Vec<Object>) -> Arc<World> {
    let mut writer = WorldWriter::new();
    objects.into_iter().for_each(|object| writer.apply(Update::Object(object)));
    writer.publish().map(|(world, _)| world).unwrap_or_default()
}

pub(super) fn request() -> RegistrationRequest {
    RegistrationRequest {
        group: "machines".into(),
        namespace: "vms".into(),
        address: "10.0.0.1".into(),
        ..RegistrationRequest::default()
    }
}

pub(super) fn name() -> EntryName {
    request().made_entry().unwrap()
}

const ALL: RegistrationFeatures =
    RegistrationFeatures { registration: true, health_checks: true, address: AddressRule::Claimed };
const PEER: PeerIdentity<'_> = PeerIdentity { namespace: "vms", service_account: "db" };

#[test]
fn names_tell_workloads_of_a_group_apart() {
    let of = |address: &str, network: &str| {
        let request = RegistrationRequest { address: address.into(), network: network.into(), ..request() };
        request.made_entry().map(|entry| entry.to_string())
    };
    assert_eq!(of("10.0.0.1", "").unwrap(), "vms/machines-10.0.0.1");
    assert_eq!(of("10.0.0.1", "n1").unwrap(), "vms/machines-10.0.0.1-n1");
    assert_eq!(of("fd00::1", "").unwrap(), "vms/machines-fd00--1");
    let long = of("10.0.0.1", &"n".repeat(300)).unwrap();
    assert_eq!(long, format!("vms/{}", "n".repeat(253)), "the end stays");
    let cut = of("10.0.0.1", &"n".repeat(252)).unwrap();
    assert_eq!(cut, format!("vms/{}", "n".repeat(252)), "no name begins with a dash");
    for (address, network) in [
        ("", ""),
        ("10.0.0.1", "../secrets/x"),
        ("10.0.0.1", "A"),
        ("10.0.0.1", "n?x=1"),
        ("10.0.0.1", "a..b"),
    ] {
        assert_eq!(of(address, network), None, "{address} {network}");
    }
    assert_eq!(RegistrationRequest { namespace: String::new(), ..request() }.made_entry(), None);
}

#[test]
fn who_may_have_an_entry() {
    let all = world(vec![group("db")]);
    assert_eq!(admit(ALL, &request(), &all, Some(PEER)), Ok(Some(name())));
    assert_eq!(admit(ALL, &RegistrationRequest::default(), &all, None), Ok(None), "an ordinary proxy");
    let nowhere = RegistrationRequest { address: String::new(), ..request() };
    assert_eq!(admit(ALL, &nowhere, &all, Some(PEER)), Ok(None), "goes on without an entry");
    let unknown = RegistrationRequest { group: "other".into(), ..request() };
    assert!(matches!(admit(ALL, &unknown, &all, Some(PEER)), Err(RegistrationError::NoGroup { .. })));
    let reasons = [
        (None, "the connection proves no identity"),
        (Some(PeerIdentity { namespace: "else", ..PEER }), "the identity is of namespace \"else\""),
        (
            Some(PeerIdentity { service_account: "web", ..PEER }),
            "the identity is of service account \"web\", not \"db\"",
        ),
    ];
    for (peer, why) in reasons {
        let error = admit(ALL, &request(), &all, peer).unwrap_err();
        assert_eq!(error.to_string(), format!("not for WorkloadEntry vms/machines-10.0.0.1: {why}"));
    }
    let any = world(vec![group("")]);
    let web = PeerIdentity { service_account: "web", ..PEER };
    assert_eq!(
        admit(ALL, &request(), &any, Some(web)),
        Ok(Some(name())),
        "a group without account takes any"
    );
}

#[test]
fn an_address_is_registered_that_can_be_the_workloads() {
    let all = world(vec![group("db")]);
    let metadata = RegistrationRequest { address: "169.254.169.254".into(), ..request() };
    let error = admit(ALL, &metadata, &all, Some(PEER)).unwrap_err();
    assert_eq!(error.to_string(), "169.254.169.254 is registered for nobody: it is a link-local address");
    let peer = RegistrationFeatures { address: AddressRule::Peer, ..ALL };
    let connected = |from: &str| RegistrationRequest { peer: Some(from.parse().unwrap()), ..request() };
    assert_eq!(admit(peer, &connected("10.0.0.1"), &all, Some(PEER)), Ok(Some(name())));
    assert!(matches!(
        admit(peer, &connected("10.0.0.2"), &all, Some(PEER)),
        Err(RegistrationError::Address { .. })
    ));
    // Who proves nothing learns nothing of the cluster.
    assert!(matches!(admit(ALL, &metadata, &all, None), Err(RegistrationError::NotYours { .. })));
}

#[test]
fn an_entry_made_by_hand_needs_its_annotation() {
    let named = RegistrationRequest { entry: "vm".into(), group: String::new(), ..request() };
    let with = |annotations: Value| {
        world(vec![object(
            Kind::WorkloadEntry,
            json!({"metadata": {"name": "vm", "annotations": annotations}, "spec": {"address": "10.0.0.1"}}),
        )])
    };
    assert!(matches!(admit(ALL, &named, &world(vec![]), Some(PEER)), Err(RegistrationError::NoEntry(_))));
    assert_eq!(admit(ALL, &named, &with(json!({})), None), Ok(None));
    for value in ["", "false", "true"] {
        let all = with(json!({"proxy.istio.io/health-checks-enabled": value}));
        assert_eq!(admit(ALL, &named, &all, Some(PEER)).unwrap().unwrap().to_string(), "vms/vm", "{value:?}");
        assert!(admit(ALL, &named, &all, None).is_err());
    }
}

#[test]
fn what_is_switched_off_is_ignored() {
    let all = world(vec![object(
        Kind::WorkloadEntry,
        json!({
            "metadata": {"name": "vm", "annotations": {"proxy.istio.io/health-checks-enabled": "true"}},
            "spec": {"address": "10.0.0.1"},
        }),
    )]);
    let named = RegistrationRequest { entry: "vm".into(), group: String::new(), ..request() };
    let only = |registration, health_checks| RegistrationFeatures { registration, health_checks, ..ALL };
    assert!(admit(only(true, false), &named, &all, None).unwrap().is_none());
    assert!(admit(only(false, true), &named, &all, Some(PEER)).unwrap().is_some());
    let grouped = RegistrationRequest { group: "unknown".into(), ..named };
    assert!(admit(only(false, false), &grouped, &all, None).unwrap().is_none());
    assert!(
        admit(only(false, true), &grouped, &all, Some(PEER)).unwrap().is_some(),
        "it has an entry anyhow"
    );
}

#[test]
fn a_group_out_of_a_file_owns_nothing() {
    let mut group = group("db");
    std::sync::Arc::make_mut(&mut group.meta).uid = "".into();
    let entry = make(&name(), &group.typed().unwrap(), &request(), "replica-a", at(0));
    assert_eq!(entry["metadata"]["ownerReferences"], json!([]));
}

pub(super) fn made(request: &RegistrationRequest) -> Value {
    let group: Typed<WorkloadGroup> = group("db").typed().unwrap();
    make(&name(), &group, request, "replica-a", at(0))
}

#[test]
fn an_entry_is_made_of_template_group_and_workload() {
    let entry = made(&RegistrationRequest {
        network: "n1".into(),
        labels: [
            ("of", "workload"),
            ("app", "payments"),
            ("role", "payments"),
            ("topology.istio.io/subzone", "rack-7"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into(),
        hbone: true,
        health_checks: true,
        ..request()
    });
    // A label that a Service may select by is none that a workload gives itself.
    let labels = json!({
        "app": "db", "of": "group", "topology.istio.io/subzone": "rack-7", "networking.istio.io/tunnel": "http",
    });
    assert_eq!(entry["metadata"]["labels"], labels);
    assert_eq!(
        entry["spec"],
        json!({
            "address": "10.0.0.1", "labels": labels, "ports": {"sql": 3306}, "network": "n1", "locality": "r1/z1",
            "serviceAccount": "db",
        })
    );
    assert_eq!(
        entry["metadata"]["annotations"],
        json!({
            "istio.io/autoRegistrationGroup": "renamed", "note": "n", "proxy.istio.io/health-checks-enabled": "true",
            "istio.io/workloadController": "replica-a", "istio.io/connectedAt": "2023-11-14T22:13:20Z",
        })
    );
    let owner = &entry["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["name"], &owner["uid"]),
        (&json!("WorkloadGroup"), &json!("machines"), &json!("u-1"))
    );
    assert_eq!(owner["controller"], true);
    let plain = made(&request());
    assert!(plain["metadata"]["annotations"].get("proxy.istio.io/health-checks-enabled").is_none());
    let read = read_live(Kind::WorkloadEntry, &"made".into(), plain.to_string().as_bytes()).unwrap();
    assert!(read.warnings.is_empty(), "{:?}", read.warnings);
}

pub(super) fn annotations_of(entry: &Value) -> [Option<&str>; 3] {
    ["istio.io/workloadController", "istio.io/connectedAt", "istio.io/disconnectedAt"]
        .map(|mark| entry["metadata"]["annotations"].get(mark).and_then(Value::as_str))
}

const WRITTEN: Connected = Connected::Here(Verdict::Write);
const SAID: Connected = Connected::Here(Verdict::Skip);

#[test]
fn the_last_one_to_connect_keeps_the_entry() {
    let mut entry = made(&request());
    assert_eq!(annotations::connect(&mut entry, "replica-a", at(0)), SAID);
    assert_eq!(annotations::connect(&mut entry, "replica-b", at(5)), WRITTEN);
    assert_eq!(
        annotations::connect(&mut entry, "replica-a", at(3)),
        Connected::Elsewhere,
        "it was later elsewhere"
    );
    assert_eq!(annotations::disconnect(&mut entry, "replica-a", at(6)), Verdict::Skip, "another one has it");
    assert_eq!(annotations::disconnect(&mut entry, "replica-b", at(8)), Verdict::Write);
    let left = at(8).to_string();
    assert_eq!(annotations_of(&entry), [Some("replica-b"), None, Some(&*left)]);
    assert_eq!(annotations::disconnect(&mut entry, "replica-b", at(9)), Verdict::Skip, "written already");
    assert_eq!(annotations::connect(&mut entry, "replica-a", at(7)), WRITTEN, "it came before it left");
    let back = "2023-11-14T22:13:28.000000001Z";
    assert_eq!(annotations_of(&entry), [Some("replica-a"), Some(back), None], "and its mark is the latest");
}

#[test]
fn a_clock_that_is_turned_back_prevents_no_disconnection() {
    let mut entry = made(&request());
    annotations::connect(&mut entry, "replica-b", at(3600));
    assert_eq!(annotations::connect(&mut entry, "replica-b", at(5)), SAID, "connected is connected");
    assert_eq!(annotations::disconnect(&mut entry, "replica-b", at(8)), Verdict::Write);
    assert_eq!(annotations::connect(&mut entry, "replica-b", at(9)), WRITTEN);
    let mark = mark(&entry).unwrap();
    assert!(!mark.has_left() && mark.latest() > Some(at(3600)), "{mark:?}");
}

pub(super) fn mark(entry: &Value) -> Option<ConnectionMark> {
    ConnectionMark::of(|name| entry["metadata"]["annotations"].get(name)?.as_str())
}

#[test]
fn an_entry_is_deleted_only_when_unchanged() {
    let mut entry = made(&request());
    let connected = Seen::ConnectionMark(mark(&entry).unwrap());
    assert_eq!(
        annotations::clean_up(&mut entry, "replica-b", &connected),
        CleanUp::Delete,
        "the mark of a dead replica"
    );
    assert_eq!(annotations::clean_up(&mut entry, "replica-a", &Seen::LeftHere), CleanUp::Leave, "it is back");
    annotations::disconnect(&mut entry, "replica-a", at(100));
    assert_eq!(annotations::clean_up(&mut entry, "replica-b", &connected), CleanUp::Leave, "it was alive");
    assert_eq!(
        annotations::clean_up(&mut entry, "replica-b", &Seen::LeftHere),
        CleanUp::Leave,
        "it left elsewhere"
    );
    assert_eq!(annotations::clean_up(&mut entry, "replica-a", &Seen::LeftHere), CleanUp::Delete);
    let left = Seen::ConnectionMark(mark(&entry).unwrap());
    assert_eq!(annotations::clean_up(&mut entry, "replica-b", &left), CleanUp::Delete);
    let mut foreign = json!({"metadata": {"name": "x"}});
    assert_eq!(mark(&foreign), None);
    assert_eq!(annotations::clean_up(&mut foreign, "replica-a", &Seen::LeftHere), CleanUp::Leave);
}

#[test]
fn the_age_of_a_mark_is_how_long_it_was_watched() {
    let grace = Duration::from_secs(10);
    let mut stale_tracker = StaleTracker::default();
    let start = Instant::now();
    let minutes = |n: u64| start + Duration::from_secs(60 * n);
    let mut update = |entry: &Value, now: Instant| {
        let annotations = mark(entry).map(|mark| (name(), mark));
        let stale_entries = stale_tracker.update(annotations.into_iter(), ("replica-b", grace), now);
        stale_entries
            .into_iter()
            .map(|StaleEntry { at, is_sure, .. }| (at.duration_since(now), is_sure))
            .next()
    };
    // Made by a clock that is years behind.
    let mut entry = made(&request());
    assert_eq!(update(&entry, minutes(0)), None);
    assert_eq!(update(&entry, minutes(45)), None);
    annotations::connect(&mut entry, "replica-a", at(1));
    assert_eq!(update(&entry, minutes(46)), None, "it was renewed");
    assert_eq!(update(&entry, minutes(91)), None);
    assert_eq!(update(&entry, minutes(92)), Some((Duration::ZERO, false)), "no replica renews it");
    annotations::disconnect(&mut entry, "replica-a", at(2));
    assert_eq!(update(&entry, minutes(93)), Some((grace, true)), "the grace time begins when it is seen");
    annotations::connect(&mut entry, "replica-b", at(3));
    assert_eq!(
        update(&entry, minutes(94)),
        Some((Duration::ZERO, false)),
        "ours, and nothing is connected here"
    );
}

#[test]
fn health_is_written_by_the_connected_replica_and_removed_with_the_workload() {
    let mut entry = json!({"metadata": {"name": "vm"}});
    assert_eq!(annotations::report(&mut entry, "a", at(1), &Ok(())), Verdict::Skip, "not in charge");
    annotations::connect(&mut entry, "a", at(0));
    assert_eq!(annotations::report(&mut entry, "a", at(2), &Err("down".into())), Verdict::Write);
    let probed = at(2).to_string();
    let want = json!([{
        "type": "Healthy", "status": "False", "message": "down", "lastProbeTime": probed, "lastTransitionTime": probed,
    }]);
    assert_eq!(entry["status"]["conditions"], want);
    assert_eq!(
        annotations::report(&mut entry, "a", at(3), &Err("down".into())),
        Verdict::Skip,
        "written already"
    );
    assert_eq!(
        annotations::report(&mut entry, "a", at(1), &Ok(())),
        Verdict::Write,
        "by a clock that is behind"
    );
    assert_eq!(entry["status"]["conditions"][0]["status"], "True");
    assert!(entry["status"]["conditions"][0].get("message").is_none());
    entry["status"]["conditions"].as_array_mut().unwrap().push(json!({"type": "Other", "status": "True"}));
    annotations::disconnect(&mut entry, "a", at(4));
    assert_eq!(annotations::clean_up(&mut entry, "a", &Seen::LeftHere), CleanUp::ForgetHealth);
    assert_eq!(entry["status"]["conditions"], json!([{"type": "Other", "status": "True"}]));
    assert_eq!(annotations::clean_up(&mut entry, "a", &Seen::LeftHere), CleanUp::Leave);
}
