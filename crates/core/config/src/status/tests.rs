//! What is written to status, and what is left as it is.

use super::*;

const NOW: &str = "2026-01-02T03:04:05Z";
const BEFORE: &str = "2025-01-01T00:00:00Z";

fn accepted(status: bool, message: &str) -> Condition {
    let reason = if status { "Accepted" } else { "NotAllowedByListeners" };
    Condition { r#type: "Accepted", status, reason, message: message.to_owned() }
}

fn route(parents: Vec<ParentStatus>) -> Status {
    Status::Route { ours: Controllers::Both, parents }
}

fn analysed(messages: Vec<Message>) -> Status {
    Status::Istio { messages: Some(messages), addresses: None }
}

fn given(addresses: &[(&str, &str)]) -> Status {
    let of = |(host, value): &(&str, &str)| HostAddress { host: (*host).into(), value: (*value).into() };
    Status::Istio { messages: None, addresses: Some(addresses.iter().map(of).collect()) }
}

fn stored(status: &str, reason: &str, message: &str, generation: i64) -> Value {
    json!({"type": "Accepted", "status": status, "reason": reason, "message": message,
        "observedGeneration": generation, "lastTransitionTime": BEFORE})
}

fn class(condition: Condition) -> Status {
    Status::Class { conditions: vec![condition], features: &[] }
}

#[test]
fn features_of_a_class_replace_the_stored_ones() {
    let wanted = Status::Class { conditions: Vec::new(), features: &["Gateway", "HTTPRoute"] };
    let merged = wanted.merged(&json!({"supportedFeatures": [{"name": "Mesh"}]}), 1, NOW);
    let features = merged.map(|status| status["supportedFeatures"].clone());
    assert_eq!(features, Some(json!([{"name": "Gateway"}, {"name": "HTTPRoute"}])));
}

#[test]
fn a_condition_keeps_its_time_while_its_status_is_the_same() {
    let wanted = class(accepted(true, "fine"));
    let good = stored("True", "Accepted", "fine", 2);
    let foreign = json!({"type": "SupportedVersion", "status": "True"});
    let time = |value: Option<Value>| value.map(|value| value["conditions"][0]["lastTransitionTime"].clone());
    for (conditions, expected) in [
        (json!([good, foreign]), None),
        (json!([stored("True", "Accepted", "fine", 1)]), Some(json!(BEFORE))),
        (json!([stored("True", "Accepted", "other words", 2)]), Some(json!(BEFORE))),
        (json!([stored("False", "Accepted", "fine", 2)]), Some(json!(NOW))),
        (json!([]), Some(json!(NOW))),
        (Value::Null, Some(json!(NOW))),
    ] {
        let merged = wanted.merged(&json!({"conditions": conditions}), 2, NOW);
        assert_eq!(time(merged), expected, "{conditions}");
    }
}

#[test]
fn what_was_merged_is_not_merged_again() {
    let parent =
        ParentReference { name: "gw".into(), section_name: Some("http".into()), ..Default::default() };
    let listener = ListenerStatus {
        name: "http".into(),
        attached_routes: 3,
        supported_kinds: vec![RouteGroupKind { kind: "HTTPRoute".into(), ..Default::default() }],
        conditions: vec![accepted(false, "no")],
    };
    let address = GatewayAddress { value: "1.2.3.4".into(), ..Default::default() };
    let point = LoadBalancerIngress { ip: "1.2.3.4".into(), ..Default::default() };
    for status in [
        class(accepted(true, "fine")),
        Status::Class { conditions: Vec::new(), features: &["Gateway", "HTTPRoute"] },
        Status::Gateway {
            conditions: vec![accepted(true, "fine")],
            addresses: Some(vec![address]),
            listeners: vec![listener.clone()],
            attached_sets: Some(2),
        },
        Status::ListenerSet { conditions: vec![accepted(true, "fine")], listeners: vec![listener] },
        route(vec![ParentStatus {
            parent,
            controller: CONTROLLERS[1],
            conditions: vec![accepted(true, "fine")],
        }]),
        Status::Ingress(vec![point]),
        analysed(vec![Message { error: true, text: "bad".into() }]),
        given(&[("a.com", "240.240.0.1"), ("a.com", "2001:2::1")]),
    ] {
        let once = status.merged(&Value::Null, 4, NOW).expect("something is new");
        assert_eq!(status.merged(&once, 4, "later"), None, "{once}");
    }
}

#[test]
fn a_patch_has_only_what_differs() {
    let old = json!({"a": 1, "b": {"c": [1], "d": 2}, "e": {"f": 1}});
    let new = json!({"a": 1, "b": {"c": [1, 2]}, "e": {"f": 1}, "g": {}});
    assert_eq!(merge_patch(&old, &new), json!({"b": {"c": [1, 2], "d": null}, "g": {}}));
    assert_eq!(merge_patch(&Value::Null, &new), new);
}

#[test]
fn an_empty_status_is_not_written() {
    for status in [route(Vec::new()), Status::Ingress(Vec::new()), analysed(Vec::new()), given(&[])] {
        for stored in [Value::Null, json!({}), json!({"parents": []}), json!({"loadBalancer": {}})] {
            assert_eq!(status.merged(&stored, 1, NOW), None, "{stored}");
        }
    }
}

#[test]
fn a_fixed_object_gets_a_good_status() {
    let bad = analysed(vec![Message { error: false, text: "spec.hosts[0]: odd".into() }]);
    let stored = bad.merged(&Value::Null, 1, NOW).expect("something is wrong");
    assert_eq!(stored["conditions"][0]["reason"], "Warnings");
    assert_eq!(stored["conditions"][0]["message"], "spec.hosts[0]: odd");
    let mended = analysed(Vec::new()).merged(&stored, 2, "later").expect("nothing is wrong any more");
    assert_eq!(mended["conditions"][0]["status"], "True");
    assert_eq!(mended["conditions"][0]["lastTransitionTime"], "later");
}

#[test]
fn entries_of_others_stay_where_they_are() {
    let theirs = |name: &str| json!({"parentRef": {"name": name}, "controllerName": "example.com/other", "conditions": []});
    let ours = |name: &str| {
        json!({"parentRef": {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": name},
            "controllerName": CONTROLLERS[0], "conditions": [stored("True", "Accepted", "fine", 1)]})
    };
    let wanted = |names: &[&str]| {
        let of = |name: &&str| ParentStatus {
            parent: ParentReference { name: (*name).to_owned(), ..Default::default() },
            controller: CONTROLLERS[0],
            conditions: vec![accepted(true, "fine")],
        };
        route(names.iter().map(of).collect())
    };
    let before = json!({"parents": [ours("a"), theirs("x"), ours("b"), theirs("y")]});
    assert_eq!(wanted(&["b", "a"]).merged(&before, 1, NOW), None, "the order of others' wishes is no change");
    let names = |status: &Status| {
        let merged = status.merged(&before, 1, NOW).expect("it differs");
        let parents = merged["parents"].as_array().expect("a list").clone();
        parents
            .iter()
            .map(|parent| parent["parentRef"]["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&wanted(&["b"])), ["x", "b", "y"]);
    assert_eq!(names(&wanted(&["b", "c"])), ["x", "b", "y", "c"]);
    assert_eq!(names(&wanted(&[])), ["x", "y"]);
}

#[test]
fn entries_of_a_controller_that_runs_beside_us_are_its_own() {
    let entry = |controller: &str| json!({"parentRef": {"name": "a"}, "controllerName": controller, "conditions": []});
    let stored = json!({"parents": CONTROLLERS.map(entry)});
    for (names, left) in
        [(&CONTROLLERS[..1], &CONTROLLERS[1..]), (&CONTROLLERS[1..], &CONTROLLERS[..1]), (&CONTROLLERS, &[])]
    {
        let ours = Controllers::of(names.iter().copied()).expect("they are known");
        assert_eq!(ours.names(), names);
        let merged = Status::Route { ours, parents: Vec::new() }.merged(&stored, 1, NOW).expect("it differs");
        let kept: Vec<&str> =
            list(&merged["parents"]).iter().filter_map(|entry| entry["controllerName"].as_str()).collect();
        assert_eq!(kept, left);
    }
    assert_eq!(Controllers::of(["example.com/other"]), None);
    assert_eq!(Controllers::of([]), None);
}

#[test]
fn the_number_of_sets_goes_with_the_field_that_allows_them() {
    let of = |attached_sets| Status::Gateway {
        conditions: Vec::new(),
        addresses: None,
        listeners: Vec::new(),
        attached_sets,
    };
    let stored = json!({"attachedListenerSets": 1});
    for (count, expected) in [(Some(1), None), (Some(0), Some(json!(0))), (None, Some(Value::Null))] {
        let merged = of(count).merged(&stored, 1, NOW);
        assert_eq!(merged.map(|status| status["attachedListenerSets"].clone()), expected, "{count:?}");
    }
}

#[test]
fn addresses_stay_when_nothing_is_known() {
    let wanted = Status::Gateway {
        conditions: Vec::new(),
        addresses: None,
        listeners: Vec::new(),
        attached_sets: None,
    };
    let stored =
        json!({"addresses": [{"type": "IPAddress", "value": "1.2.3.4"}], "listeners": [{"name": "gone"}]});
    let merged = wanted.merged(&stored, 1, NOW).expect("a listener is gone");
    assert_eq!(merged["addresses"], stored["addresses"]);
    assert_eq!(merged["listeners"], json!([]));
}

#[test]
fn what_is_known_beside_an_address_stays() {
    let wanted = Status::Ingress(vec![LoadBalancerIngress { ip: "1.2.3.4".into(), ..Default::default() }]);
    let stored = json!({"loadBalancer": {"ingress": [{"ip": "1.2.3.4", "ipMode": "VIP"}]}});
    assert_eq!(wanted.merged(&stored, 1, NOW), None);
}

#[test]
fn addresses_of_hosts_are_written_when_others_are_wanted() {
    let wanted = given(&[("a.com", "240.240.0.1"), ("a.com", "2001:2::1")]);
    let other_order = json!({"conditions": [{"type": "Reconciled"}], "addresses": [
        {"host": "a.com", "value": "2001:2::1"}, {"host": "a.com", "value": "240.240.0.1"}]});
    assert_eq!(wanted.merged(&other_order, 1, NOW), None);
    let merged = given(&[]).merged(&other_order, 1, NOW).expect("there are some");
    assert_eq!(merged, json!({"conditions": [{"type": "Reconciled"}], "addresses": []}));
    let other = json!({"addresses": [{"host": "a.com", "value": "240.240.0.9"}]});
    let merged = wanted.merged(&other, 1, NOW).expect("they differ");
    assert_eq!(merged["addresses"][0], json!({"host": "a.com", "value": "240.240.0.1"}));
    let odd = json!({"addresses": [7, {"host": 1}, {"host": "a.com"}, {"value": "1.2.3.4", "more": true}]});
    assert_eq!(HostAddress::stored(&odd).len(), 2, "what is no address is none");
}

#[test]
fn a_message_is_no_longer_than_kubernetes_takes() {
    let wanted = class(accepted(true, &"ä".repeat(40_000)));
    let once = wanted.merged(&Value::Null, 1, NOW).expect("it is new");
    assert_eq!(once["conditions"][0]["message"].as_str().map(|text| text.chars().count()), Some(4096));
    assert_eq!(wanted.merged(&once, 1, "later"), None);
}

#[test]
fn conditions_of_others_on_a_listener_stay() {
    let listener = ListenerStatus {
        name: "http".into(),
        attached_routes: 1,
        supported_kinds: Vec::new(),
        conditions: vec![accepted(true, "fine")],
    };
    let wanted = Status::ListenerSet { conditions: Vec::new(), listeners: vec![listener] };
    let stored = json!({"listeners": [{"name": "http", "attachedSets": 2,
        "conditions": [{"type": "Cached", "status": "True"}]}]});
    let merged = wanted.merged(&stored, 1, NOW).expect("a condition is new");
    assert_eq!(merged["listeners"][0]["attachedSets"], 2);
    assert_eq!(merged["listeners"][0]["conditions"][0]["type"], "Cached");
    assert_eq!(merged["listeners"][0]["conditions"][1]["type"], "Accepted");
}

#[test]
fn entries_of_a_policy_keep_those_of_others_and_stay_within_the_limit() {
    let entry = |name: &str, controller: &str| {
        json!({"ancestorRef": {"group": "", "kind": "Service", "name": name}, "controllerName": controller,
            "conditions": []})
    };
    let wanted = |name: String| ParentStatus {
        parent: ParentReference { group: String::new(), kind: "Service".into(), name, ..Default::default() },
        controller: Controllers::Both.of_mesh(),
        conditions: vec![accepted(true, "in force")],
    };
    let stored = json!({"ancestors": [entry("a", "example.com/other"), entry("gone", MESH_CONTROLLER)]});
    for (count, expected) in [(1, 2), (15, 16), (20, 16)] {
        let ancestors = (0..count).map(|index| wanted(format!("s{index}"))).collect();
        let status = Status::Policy { ours: Controllers::Both, ancestors };
        let merged = status.merged(&stored, 1, NOW).expect("it differs");
        let list = merged["ancestors"].as_array().unwrap();
        assert_eq!(list.len(), expected, "{count}");
        assert_eq!((&list[0], &list[1]["ancestorRef"]["name"]), (&stored["ancestors"][0], &json!("s0")));
        assert_eq!(status.merged(&merged, 1, NOW), None, "what is written is wanted");
    }
}
