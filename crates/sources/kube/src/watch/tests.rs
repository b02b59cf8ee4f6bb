//! Sequences of answers, and what differs after each.

use super::reflector::{Change, Failure, LineContent, NextRequest, Reader, Reflector};
use pilotfish_model::Kind;
use pilotfish_runtime::GuardSettings;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

fn reflector() -> Reflector {
    Reflector::new(Reader::Object(Kind::Service), "cluster test".into())
}

fn service(name: &str, version: u64, port: u16) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"shop","resourceVersion":"{version}"}},
            "spec":{{"ports":[{{"port":{port}}}]}}}}"#
    )
    .replace('\n', "")
}

fn event(kind: &str, object: &str) -> String {
    format!(r#"{{"type":"{kind}","object":{object}}}"#)
}

fn bookmark(version: u64, ends: bool) -> String {
    let annotations = if ends { r#","annotations":{"k8s.io/initial-events-end":"true"}"# } else { "" };
    event(
        "BOOKMARK",
        &format!(r#"{{"kind":"Service","metadata":{{"resourceVersion":"{version}"{annotations}}}}}"#),
    )
}

/// A change in short: `+a`, `-a`, `!a`.
fn short(changes: &[Change]) -> Vec<String> {
    let name = |change: &Change| match change {
        Change::Apply { object, .. } => format!("+{}", object.key().name),
        Change::Stored { key, stored, .. } => format!("={}@{}", key.name, stored.version),
        Change::Json { key, json } => format!("={} {json}", key.name),
        Change::Delete(key) => format!("-{}", key.name),
        Change::Rejected { key, last_good, .. } => {
            format!("!{}{}", key.name, if *last_good { " (last good)" } else { "" })
        }
    };
    changes.iter().map(name).collect()
}

fn handle_line(reflector: &mut Reflector, line: &str) -> (Vec<String>, bool) {
    match reflector.line(line, Instant::now()).unwrap() {
        LineContent::Changes { changes, listed } => (short(&changes), listed),
        LineContent::Error { code, .. } => panic!("error {code}"),
    }
}

#[test]
fn a_stream_lists_and_goes_on() {
    let mut reflector = reflector();
    assert_eq!(reflector.next_request(), NextRequest::StreamList);
    reflector.list_started();
    assert_eq!(
        handle_line(&mut reflector, &event("ADDED", &service("a", 1, 80))),
        (vec!["+a".into()], false)
    );
    assert_eq!(
        reflector.next_request(),
        NextRequest::StreamList,
        "an incomplete list is no place to resume from"
    );
    assert_eq!(handle_line(&mut reflector, &bookmark(5, true)), (vec![], true));
    assert_eq!(reflector.next_request(), NextRequest::Watch { from: "5".into() });
    assert_eq!(handle_line(&mut reflector, &event("MODIFIED", &service("a", 6, 81))).0, ["+a"]);
    assert_eq!(handle_line(&mut reflector, &event("DELETED", &service("a", 7, 81))).0, ["-a"]);
    assert_eq!(handle_line(&mut reflector, &bookmark(9, false)), (vec![], false));
    assert_eq!(reflector.next_request(), NextRequest::Watch { from: "9".into() });
}

#[test]
fn an_expired_version_lists_again_and_reports_only_what_differs() {
    let mut reflector = reflector();
    reflector.list_started();
    for name in ["a", "b", "c"] {
        handle_line(&mut reflector, &event("ADDED", &service(name, 1, 80)));
    }
    handle_line(&mut reflector, &bookmark(5, true));
    reflector.failed(&Failure::Gone);
    assert_eq!(reflector.next_request(), NextRequest::StreamList);

    reflector.list_started();
    assert_eq!(handle_line(&mut reflector, &event("ADDED", &service("a", 1, 80))).0, Vec::<String>::new());
    assert_eq!(handle_line(&mut reflector, &event("ADDED", &service("b", 8, 90))).0, ["+b"]);
    assert_eq!(handle_line(&mut reflector, &bookmark(9, true)), (vec!["-c".into()], true));
}

#[test]
fn a_broken_list_takes_nothing_away() {
    let mut reflector = reflector();
    reflector.list_started();
    handle_line(&mut reflector, &event("ADDED", &service("a", 1, 80)));
    handle_line(&mut reflector, &bookmark(5, true));
    reflector.failed(&Failure::Gone);
    reflector.list_started();
    // The stream ends here; the next list begins from the start.
    reflector.failed(&Failure::Other);
    assert_eq!(reflector.next_request(), NextRequest::StreamList);
    assert_eq!(reflector.len(), 1);
}

#[test]
fn pages_are_read_to_the_end_where_streams_are_not_known() {
    let mut reflector = reflector();
    reflector.failed(&Failure::NoStreams);
    assert_eq!(reflector.next_request(), NextRequest::List { next: None });
    reflector.list_started();
    let page = |items: &[String], next: &str| {
        format!(
            r#"{{"metadata":{{"resourceVersion":"7","continue":"{next}"}},"items":[{}]}}"#,
            items.join(",")
        )
    };
    let (changes, complete) = reflector.page(&page(&[service("a", 1, 80)], "token"), Instant::now()).unwrap();
    assert_eq!((short(&changes), complete), (vec!["+a".into()], false));
    assert_eq!(reflector.next_request(), NextRequest::List { next: Some("token".into()) });
    let (changes, complete) = reflector.page(&page(&[service("b", 2, 80)], ""), Instant::now()).unwrap();
    assert_eq!((short(&changes), complete), (vec!["+b".into()], true));
    assert_eq!(reflector.next_request(), NextRequest::Watch { from: "7".into() });

    // The token of a page expires: from the start, and nothing is lost.
    reflector.failed(&Failure::Gone);
    assert_eq!(reflector.next_request(), NextRequest::List { next: None });
    reflector.list_started();
    let (changes, _) =
        reflector.page(r#"{"metadata":{"resourceVersion":"9"},"items":null}"#, Instant::now()).unwrap();
    assert_eq!(short(&changes), ["-a", "-b"]);
}

#[test]
fn objects_in_json_are_passed_as_they_are() {
    let mut reflector = Reflector::new(Reader::Json(Kind::ConfigMap), "cluster test".into());
    reflector.list_started();
    let map = r#"{"metadata":{"name":"a","namespace":"shop","resourceVersion":"1"},"data":{"any":"text"}}"#;
    assert_eq!(handle_line(&mut reflector, &event("ADDED", map)).0, [format!("=a {map}")]);
    assert!(handle_line(&mut reflector, &event("MODIFIED", map)).0.is_empty(), "the version is known");
    assert_eq!(handle_line(&mut reflector, &event("DELETED", map)).0, ["-a"]);
}

#[test]
fn a_refused_object_keeps_its_last_good_version() {
    let mut reflector = reflector();
    reflector.list_started();
    let broken = |version| {
        format!(
            r#"{{"metadata":{{"name":"a","namespace":"shop","resourceVersion":"{version}"}},"spec":{{"ports":7}}}}"#
        )
    };
    assert_eq!(handle_line(&mut reflector, &event("ADDED", &broken(1))).0, ["!a"]);
    assert_eq!(handle_line(&mut reflector, &event("MODIFIED", &service("a", 2, 80))).0, ["+a"]);
    assert_eq!(handle_line(&mut reflector, &event("MODIFIED", &broken(3))).0, ["!a (last good)"]);
    assert_eq!(handle_line(&mut reflector, &event("DELETED", &broken(3))).0, ["-a"]);
}

#[test]
fn a_refused_policy_is_closed_while_it_was_never_good() {
    let mut reflector = Reflector::new(Reader::Object(Kind::AuthorizationPolicy), "cluster test".into());
    reflector.list_started();
    let mut closed = |version: u64, rules: &str| {
        let metadata = format!(r#"{{"name":"a","namespace":"shop","resourceVersion":"{version}"}}"#);
        let object = format!(r#"{{"metadata":{metadata},"spec":{{"rules":{rules}}}}}"#);
        let line = format!(r#"{{"type":"ADDED","object":{object}}}"#);
        let LineContent::Changes { changes, .. } = reflector.line(&line, Instant::now()).unwrap() else {
            panic!("an error")
        };
        let closed = |change: &Change| match change {
            Change::Rejected { last_good, closed, .. } => (*last_good, closed.is_some()),
            other => panic!("{other:?}"),
        };
        (!short(&changes)[0].starts_with('+')).then(|| closed(&changes[0]))
    };
    assert_eq!(closed(1, "7"), Some((false, true)));
    assert_eq!(closed(2, "[7]"), Some((false, true)), "what stands in for it is no version to keep");
    assert_eq!(closed(3, "[{}]"), None);
    assert_eq!(closed(4, "7"), Some((true, false)));
}

#[test]
fn what_may_not_have_been_sent_is_sent_again() {
    let mut reflector = reflector();
    reflector.list_started();
    handle_line(&mut reflector, &event("ADDED", &service("a", 1, 80)));
    reflector.start_over();
    reflector.list_started();
    assert_eq!(handle_line(&mut reflector, &event("ADDED", &service("a", 1, 80))).0, ["+a"]);
}

#[test]
fn a_kind_that_vanished_takes_its_objects_with_it() {
    let mut reflector = reflector();
    reflector.list_started();
    handle_line(&mut reflector, &event("ADDED", &service("b", 1, 80)));
    handle_line(&mut reflector, &event("ADDED", &service("a", 1, 80)));
    assert_eq!(short(&reflector.kind_removed(Instant::now()).unwrap()), ["-a", "-b"]);
    assert_eq!(reflector.len(), 0);
}

#[test]
fn mesh_config_is_read_out_of_its_config_map() {
    let reader = Reader::ConfigMaps { mesh_namespace: "istio-system".into(), mesh_name: "istio".into() };
    let mut reflector = Reflector::new(reader, "cluster test".into());
    reflector.list_started();
    let map = |version: u64, mesh: &str| {
        serde_json::json!({
            "metadata": {"name": "istio", "namespace": "istio-system", "resourceVersion": version.to_string()},
            "data": {"mesh": mesh},
        })
        .to_string()
    };
    assert_eq!(
        handle_line(&mut reflector, &event("ADDED", &map(1, "trustDomain: td"))).0,
        ["+default", "-default"]
    );
    let broken = handle_line(&mut reflector, &event("MODIFIED", &map(2, "trustDomain: [1]"))).0;
    assert_eq!(broken, ["!default (last good)", "-default"]);
    let other = |namespace: &str| {
        serde_json::json!({
            "metadata": {"name": "istio", "namespace": namespace, "resourceVersion": "3"},
            "data": {"ca.crt": "pem"},
        })
        .to_string()
    };
    assert_eq!(handle_line(&mut reflector, &event("ADDED", &other("shop"))).0, ["+istio"]);
    assert_eq!(handle_line(&mut reflector, &event("DELETED", &other("shop"))).0, ["-istio"]);
    assert_eq!(handle_line(&mut reflector, &event("DELETED", &map(2, ""))).0, ["-default", "-default"]);
}

#[test]
fn a_config_map_that_cannot_be_read_takes_no_mesh_config_away() {
    let reader = Reader::ConfigMaps { mesh_namespace: "istio-system".into(), mesh_name: "istio".into() };
    let mut reflector = Reflector::new(reader, "cluster test".into());
    reflector.list_started();
    let map = |version: u64, data: serde_json::Value| {
        let metadata = serde_json::json!({
            "name": "istio", "namespace": "istio-system", "resourceVersion": version.to_string()});
        event("MODIFIED", &serde_json::json!({"metadata": metadata, "data": data}).to_string())
    };
    let broken = serde_json::json!({"mesh": 7});
    assert_eq!(handle_line(&mut reflector, &map(1, broken.clone())).0, ["!default", "!default"]);
    let good = serde_json::json!({"mesh": "trustDomain: td"});
    assert_eq!(handle_line(&mut reflector, &map(2, good)).0, ["+default", "-default"]);
    let kept = ["!default (last good)", "!default (last good)"];
    assert_eq!(handle_line(&mut reflector, &map(3, broken)).0, kept);
    assert_eq!(handle_line(&mut reflector, &map(4, serde_json::json!("text"))).0, kept);
    assert_eq!(handle_line(&mut reflector, &map(5, serde_json::Value::Null)).0, ["-default", "-default"]);
    assert_eq!(handle_line(&mut reflector, &map(6, serde_json::json!("text"))).0, ["!default", "!default"]);
}

#[test]
fn of_secrets_no_more_is_kept_than_proxies_may_be_served() {
    let reader = Reader::ServedSecrets { root_namespace: "istio-system".into() };
    let mut reflector = Reflector::new(reader, "cluster test".into());
    reflector.list_started();
    let mut kept = |name: &str, r#type: &str| -> Vec<String> {
        let object = serde_json::json!({
            "metadata": {
                "name": name, "namespace": "istio-system", "resourceVersion": "1",
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{password: hunter2}"},
            },
            "type": r#type, "data": {"tls.crt": "Yw==", "tls.key": "aw==", "password": "aHVudGVyMg=="},
        });
        let content = reflector.line(&event("ADDED", &object.to_string()), Instant::now()).unwrap();
        let LineContent::Changes { changes, .. } = content else { panic!("no error") };
        let [Change::Apply { object, .. }] = changes.as_slice() else { panic!("{changes:?}") };
        assert!(object.meta.annotations.is_empty());
        let secret = object.typed::<pilotfish_config::kubernetes::Secret>().unwrap();
        secret.data.keys().cloned().collect()
    };
    assert_eq!(kept("web", "Opaque"), ["tls.crt", "tls.key"]);
    assert!(kept("database", "kubernetes.io/basic-auth").is_empty());
    assert!(kept("pilotfish-webhook-certificate", "Opaque").is_empty());
    assert_eq!(
        handle_line(
            &mut reflector,
            &event("DELETED", r#"{"metadata": {"name": "web", "namespace": "istio-system"}}"#)
        )
        .0,
        ["-web"]
    );
}

#[test]
fn a_refused_object_is_replaced_by_a_closed_one_until_a_version_is_good() {
    let mut reflector = Reflector::new(Reader::Object(Kind::BackendTlsPolicy), "cluster test".into());
    reflector.list_started();
    let policy = |version: u64, hostname: &str| {
        serde_json::json!({
            "metadata": {"name": "a", "namespace": "n", "resourceVersion": version.to_string()},
            "spec": {
                "targetRefs": [{"group": "", "kind": "Service", "name": "web"}],
                "validation": {"hostname": hostname, "wellKnownCACertificates": "System"},
            },
        })
        .to_string()
    };
    let mut closed = |version, hostname| {
        let content = reflector.line(&event("MODIFIED", &policy(version, hostname)), Instant::now()).unwrap();
        let LineContent::Changes { changes, .. } = content else { panic!("no error") };
        match changes.as_slice() {
            [Change::Rejected { last_good, closed, .. }] => Some((*last_good, closed.is_some())),
            _ => None,
        }
    };
    assert_eq!(closed(1, "*.b"), Some((false, true)));
    assert_eq!(closed(2, "a.b"), None, "it is good");
    assert_eq!(closed(3, "*.b"), Some((true, false)), "the last good version holds");
}

/// A guarded reflector after a list of so many services, at version 10.
fn listed(count: usize) -> (Reflector, Instant) {
    let mut reflector = reflector();
    reflector.set_guard(GuardSettings::default());
    let now = Instant::now();
    assert_eq!(list(&mut reflector, 0..count, 10, now).len(), count);
    (reflector, now)
}

/// A whole list in a stream, of services that are at version 1; returns what changes.
fn list(reflector: &mut Reflector, names: std::ops::Range<usize>, version: u64, now: Instant) -> Vec<String> {
    reflector.list_started();
    let mut all = Vec::new();
    let lines = names.map(|n| event("ADDED", &service(&format!("s{n}"), 1, 80)));
    for line in lines.chain([bookmark(version, true)]) {
        let LineContent::Changes { changes, .. } = reflector.line(&line, now).unwrap() else {
            panic!("an error")
        };
        all.extend(short(&changes));
    }
    all
}

#[test]
fn list_after_gone_that_lacks_most_waits_for_a_second_one() {
    // Objects before, objects of the second list, deletions at once.
    for (before, after, at_once) in
        [(21, 0, 0), (21, 5, 0), (21, 10, 0), (21, 11, 10), (2, 0, 2), (3, 0, 0), (4, 2, 2)]
    {
        let (mut reflector, now) = listed(before);
        reflector.failed(&Failure::Gone);
        let lost = list(&mut reflector, 0..after, 20, now + Duration::from_secs(60));
        assert_eq!(lost.len(), at_once, "{before} to {after}");
        if at_once > 0 {
            continue;
        }
        assert_eq!(
            reflector.next_request(),
            NextRequest::Watch { from: "20".into() },
            "changes arrive meanwhile"
        );
        assert_eq!(handle_line(&mut reflector, &event("ADDED", &service("new", 21, 80))).0, ["+new"]);
        let due = reflector.second_list_due().unwrap();
        assert_eq!(due, now + Duration::from_secs(70));
        reflector.second_list(due);
        assert_eq!(reflector.next_request(), NextRequest::StreamList);
        assert_eq!(list(&mut reflector, 0..after, 22, due).len(), before - after + 1, "{before} to {after}");
        assert_eq!((reflector.len(), reflector.held()), (after, None));
    }
}

#[test]
fn second_list_with_everything_ends_the_hold() {
    let (mut reflector, now) = listed(21);
    reflector.failed(&Failure::Gone);
    assert!(list(&mut reflector, 0..0, 20, now).is_empty());
    reflector.second_list(now + Duration::from_secs(10));
    assert!(list(&mut reflector, 0..21, 21, now + Duration::from_secs(10)).is_empty(), "nothing differs");
    assert_eq!((reflector.len(), reflector.held()), (21, None));
}

#[test]
fn list_with_other_objects_in_the_place_of_most_waits_for_a_second_one() {
    // Objects of the second list, and how many of the 20 before it keeps.
    for (names, kept) in [(20..40, 0), (15..35, 5), (11..300, 9), (10..30, 10)] {
        let (mut reflector, now) = listed(20);
        reflector.failed(&Failure::Gone);
        let new = names.len() - kept;
        let gone = if kept < 10 { 0 } else { 20 - kept };
        assert_eq!(list(&mut reflector, names.clone(), 20, now).len(), new + gone, "{names:?}");
        if gone == 0 {
            assert_eq!(reflector.held().map(|held| (held.before, held.after)), Some((20, kept)));
            let due = now + Duration::from_secs(10);
            reflector.second_list(due);
            assert_eq!(list(&mut reflector, names.clone(), 21, due).len(), 20 - kept, "{names:?}");
        }
        assert_eq!((reflector.len(), reflector.held()), (names.len(), None), "{names:?}");
    }
}

#[test]
fn second_mass_loss_waits_as_the_first_did() {
    let (mut reflector, mut now) = listed(21);
    for version in [20, 40, 60] {
        now += Duration::from_secs(3_600);
        reflector.failed(&Failure::Gone);
        assert!(list(&mut reflector, 0..0, version, now).is_empty(), "version {version}");
        now += Duration::from_secs(10);
        reflector.second_list(now);
        assert_eq!(list(&mut reflector, 0..0, version + 1, now).len(), 21);
        // Growth comes by watch.
        for n in 0..21 {
            handle_line(&mut reflector, &event("ADDED", &service(&format!("s{n}"), version + 2, 80)));
        }
        assert_eq!(reflector.len(), 21);
    }
}

#[test]
fn deletions_of_a_watch_take_effect_at_once() {
    let (mut reflector, now) = listed(21);
    for n in 0..20 {
        let deleted = event("DELETED", &service(&format!("s{n}"), 11 + n, 80));
        assert_eq!(handle_line(&mut reflector, &deleted).0, [format!("-s{n}")]);
    }
    reflector.failed(&Failure::Gone);
    assert_eq!(list(&mut reflector, 0..0, 40, now), ["-s20"], "the rest is a loss of one");
}

/// What Kubernetes says of readiness is never held back, not even of all endpoints at once.
#[test]
fn endpoints_that_are_all_unready_take_effect_at_once() {
    let slice = |n: u64, version: u64, ready: bool| {
        format!(
            r#"{{"metadata":{{"name":"s{n}","namespace":"shop","resourceVersion":"{version}"}},"addressType":"IPv4",
            "endpoints":[{{"addresses":["10.0.0.{n}"],"conditions":{{"ready":{ready}}}}}],"ports":[{{"port":80}}]}}"#
        )
        .replace('\n', "")
    };
    let mut reflector = Reflector::new(Reader::Object(Kind::EndpointSlice), "cluster test".into());
    reflector.set_guard(GuardSettings::default());
    let mut list = |version: u64, ready: bool| {
        reflector.list_started();
        let slices = (0..20).map(|n| event("ADDED", &slice(n, version, ready)));
        let applied: Vec<_> = slices
            .chain([bookmark(version, true)])
            .flat_map(|line| handle_line(&mut reflector, &line).0)
            .collect();
        (applied.len(), reflector.held())
    };
    assert_eq!(list(1, true), (20, None));
    assert_eq!(list(2, false), (20, None));
    let (applied, _) = handle_line(&mut reflector, &event("MODIFIED", &slice(0, 3, true)));
    assert_eq!(applied, ["+s0"]);
}

#[test]
fn version_that_goes_back_lists_again_and_reads_every_object() {
    type Step = fn(&mut Reflector, Instant) -> bool;
    let steps: [(&str, Step); 5] = [
        ("a bookmark", |reflector, now| reflector.line(&bookmark(7, false), now).is_ok()),
        ("an event", |reflector, now| reflector.line(&event("MODIFIED", &service("s0", 8, 81)), now).is_ok()),
        ("a look at the version", |reflector, _| {
            reflector.version(r#"{"metadata":{"resourceVersion":"7"},"items":[]}"#).is_ok()
        }),
        ("a list", |reflector, now| {
            reflector.failed(&Failure::Gone);
            list(reflector, 0..0, 7, now).is_empty()
        }),
        ("a page", |reflector, now| {
            reflector.failed(&Failure::Gone);
            reflector.list_started();
            !reflector.page(r#"{"metadata":{"resourceVersion":"7"},"items":[]}"#, now).unwrap().1
        }),
    ];
    for (what, step) in steps {
        let (mut reflector, now) = listed(5);
        assert!(step(&mut reflector, now), "{what}");
        assert!(reflector.went_back().unwrap().contains(", and was at 10"), "{what}");
        assert_eq!(reflector.next_request(), NextRequest::StreamList, "{what}");
        assert_eq!(reflector.len(), 5, "nothing is taken away: {what}");
        // The version of s0 is known, and means something else now.
        let changes = list(&mut reflector, 0..2, 7, now);
        assert!(changes.starts_with(&["+s0".to_owned(), "+s1".to_owned()]), "{what}: {changes:?}");
        assert_eq!((changes.len(), reflector.len()), (2, 5), "three of five are held back: {what}");
        assert_eq!(reflector.next_request(), NextRequest::Watch { from: "7".into() }, "{what}");
        assert_eq!(reflector.went_back(), None, "{what}");
    }
}

#[test]
fn watch_is_resumed_after_a_look_at_the_version() {
    let (mut reflector, now) = listed(3);
    assert_eq!(reflector.next_request(), NextRequest::Watch { from: "10".into() });
    reflector.watch_ended();
    assert_eq!(reflector.next_request(), NextRequest::Version);
    reflector.version(r#"{"metadata":{"resourceVersion":"30"},"items":[]}"#).unwrap();
    assert_eq!(
        reflector.next_request(),
        NextRequest::Watch { from: "10".into() },
        "events up to 30 are still to come"
    );
    reflector.line(&event("MODIFIED", &service("s0", 20, 81)), now).unwrap();
    assert_eq!((reflector.went_back(), reflector.len()), (None, 3));
    let (mut restored, _) = listed(3);
    for version in [30, 29] {
        assert_eq!(restored.went_back(), None);
        restored.version(&format!(r#"{{"metadata":{{"resourceVersion":"{version}"}},"items":[]}}"#)).unwrap();
    }
    assert!(restored.went_back().is_some(), "the store was at 30 already");
    assert_eq!(reflector.next_request(), NextRequest::Watch { from: "20".into() });
    reflector.watch_ended();
    assert!(reflector.version("busy").is_err());
    assert_eq!(
        reflector.next_request(),
        NextRequest::Watch { from: "20".into() },
        "the watch shows what is wrong"
    );
}

#[test]
fn kind_that_vanishes_with_many_objects_waits_for_a_second_look() {
    let (mut reflector, now) = listed(21);
    assert_eq!(reflector.kind_removed(now), None);
    assert_eq!(reflector.len(), 21);
    let due = reflector.second_list_due().unwrap();
    assert_eq!(reflector.kind_removed(due).unwrap().len(), 21);
    assert_eq!(reflector.kind_removed(due), Some(Vec::new()));
}

/// One thing that can happen to a cluster or to the connection to it.
#[derive(Clone, Debug)]
enum Happening {
    Put(u8, u16),
    Delete(u8),
    /// The watch breaks, and so much of what happened since is already compacted when it is back.
    Break {
        compacted: bool,
    },
    /// The list that is being read breaks after so many objects.
    BreakList(usize),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => (0..6u8, 1..5u16).prop_map(|(name, port)| Happening::Put(name, port)),
        2 => (0..6u8).prop_map(Happening::Delete),
        1 => any::<bool>().prop_map(|compacted| Happening::Break { compacted }),
        1 => (0..4usize).prop_map(Happening::BreakList),
    ]
}

/// A cluster as its API server has it, and what a reader of the reflector's changes has.
#[derive(Default)]
struct Both {
    version: u64,
    cluster: BTreeMap<u8, (u64, u16)>,
    reader: BTreeMap<String, u16>,
    /// What happened while no watch was open.
    missed: Vec<String>,
    watching: bool,
}

impl Both {
    fn read(&mut self, changes: Vec<Change>) {
        for change in changes {
            match change {
                Change::Apply { object, .. } => {
                    let port =
                        object.typed::<pilotfish_config::kubernetes::Service>().unwrap().spec.ports[0].port;
                    self.reader.insert(object.key().name.to_string(), port);
                }
                Change::Delete(key) => {
                    self.reader.remove(&*key.name).expect("only what is there is deleted");
                }
                Change::Rejected { .. } | Change::Stored { .. } | Change::Json { .. } => {
                    panic!("all are good, and none is with status")
                }
            }
        }
    }

    fn receive(&mut self, reflector: &mut Reflector, line: String) {
        if !self.watching {
            return self.missed.push(line);
        }
        let LineContent::Changes { changes, .. } = reflector.line(&line, Instant::now()).unwrap() else {
            panic!("an error")
        };
        self.read(changes);
    }

    fn connect(&mut self, reflector: &mut Reflector, break_after: Option<usize>) {
        if reflector.next_request() == NextRequest::Version {
            let version = format!(r#"{{"metadata":{{"resourceVersion":"{}"}},"items":[]}}"#, self.version);
            reflector.version(&version).unwrap();
        }
        if let NextRequest::Watch { .. } = reflector.next_request() {
            self.watching = true;
            for line in std::mem::take(&mut self.missed) {
                self.receive(reflector, line);
            }
            return;
        }
        reflector.list_started();
        self.missed.clear();
        self.watching = true;
        let all = self.cluster.clone();
        for (index, (name, (version, port))) in all.into_iter().enumerate() {
            if break_after == Some(index) {
                self.watching = false;
                return;
            }
            self.receive(reflector, event("ADDED", &service(&format!("s{name}"), version, port)));
        }
        let end = bookmark(self.version, true);
        self.receive(reflector, end);
    }
}

proptest! {
    /// Whatever breaks in between: in the end the reader has what the cluster has, and nothing was taken away
    /// that was there.
    #[test]
    fn a_history_with_breaks_ends_in_the_state_of_the_cluster(history in proptest::collection::vec(happening(), 0..60)) {
        let mut reflector = reflector();
        let mut both = Both::default();
        both.connect(&mut reflector, None);
        for happening in history {
            both.version += 1;
            match happening {
                Happening::Put(name, port) => {
                    let kind = if both.cluster.contains_key(&name) { "MODIFIED" } else { "ADDED" };
                    both.cluster.insert(name, (both.version, port));
                    let line = event(kind, &service(&format!("s{name}"), both.version, port));
                    both.receive(&mut reflector, line);
                }
                Happening::Delete(name) => {
                    if both.cluster.remove(&name).is_some() {
                        let line = event("DELETED", &service(&format!("s{name}"), both.version, 1));
                        both.receive(&mut reflector, line);
                    }
                }
                Happening::Break { compacted } => {
                    if both.watching {
                        both.watching = false;
                        reflector.watch_ended();
                    } else {
                        if compacted {
                            reflector.failed(&Failure::Gone);
                        }
                        both.connect(&mut reflector, None);
                    }
                }
                Happening::BreakList(after) => {
                    both.watching = false;
                    reflector.failed(&Failure::Gone);
                    both.connect(&mut reflector, Some(after));
                }
            }
        }
        both.connect(&mut reflector, None);
        let expected: BTreeMap<String, u16> =
            both.cluster.iter().map(|(name, (_, port))| (format!("s{name}"), *port)).collect();
        prop_assert_eq!(both.reader, expected);
    }
}

/// A VirtualService with that label `istio.io/rev`, good or broken.
fn virtual_service(version: u64, label: Option<&str>, is_good: bool) -> String {
    let labels = label.map(|label| format!(r#","labels":{{"istio.io/rev":"{label}"}}"#)).unwrap_or_default();
    let timeout = if is_good { "1s" } else { "soon" };
    format!(
        r#"{{"metadata":{{"name":"a","namespace":"shop","resourceVersion":"{version}"{labels}}},"spec":{{"hosts":["a"],"http":[{{"timeout":"{timeout}","route":[{{"destination":{{"host":"a"}}}}]}}]}}}}"#
    )
}

#[test]
fn last_good_version_of_another_revision_is_given_up() {
    for (before, after, expected) in [
        (None, None, &["!a (last good)"][..]),
        (Some("canary"), Some("canary"), &["!a (last good)"]),
        (None, Some("canary"), &["-a", "!a"]),
        (Some("canary"), None, &["-a", "!a"]),
        (Some("canary"), Some("stable"), &["-a", "!a"]),
    ] {
        let mut reflector = Reflector::new(Reader::Object(Kind::VirtualService), "cluster test".into());
        let mut line = |kind, object: String| handle_line(&mut reflector, &event(kind, &object)).0;
        assert_eq!(line("ADDED", virtual_service(1, before, true)), ["+a"]);
        assert_eq!(line("MODIFIED", virtual_service(2, after, false)), expected, "{before:?} {after:?}");
        // The next version is judged by what is in force.
        let is_in_force = expected.len() == 1;
        let next = line("MODIFIED", virtual_service(3, after, false));
        assert_eq!(next, if is_in_force { ["!a (last good)"] } else { ["!a"] });
        assert_eq!(line("MODIFIED", virtual_service(4, after, true)), ["+a"]);
    }
}

#[test]
fn policy_broken_under_another_revision_is_closed_in_place_of_its_last_good_version() {
    let policy = |version: u64, label: &str, rules: &str| {
        format!(
            r#"{{"metadata":{{"name":"a","namespace":"shop","resourceVersion":"{version}","labels":{{"istio.io/rev":"{label}"}}}},"spec":{{"rules":{rules}}}}}"#
        )
    };
    let mut reflector = Reflector::new(Reader::Object(Kind::AuthorizationPolicy), "cluster test".into());
    handle_line(&mut reflector, &event("ADDED", &policy(1, "canary", "[{}]")));
    let broken = event("MODIFIED", &policy(2, "stable", r#"[{"from":"everybody"}]"#));
    let LineContent::Changes { changes, .. } = reflector.line(&broken, Instant::now()).unwrap() else {
        panic!("an error");
    };
    let [Change::Rejected { revision, last_good: false, closed: Some(closed), .. }] = &*changes else {
        panic!("{changes:?}");
    };
    assert_eq!((revision.as_deref(), closed.meta.revision()), (Some("stable"), Some("stable")));
}
