use super::*;
use crate::schema::tests::schema;
use proptest::prelude::*;

/// The services of a keyspace, each instance in one line.
fn lines(keys: &Keyspace) -> Vec<String> {
    let services = keys.services.keys().filter_map(|place| keys.service(place));
    services.flat_map(|service| told(&service)).collect()
}

fn told(service: &CatalogService) -> Vec<String> {
    let instance = |instance: &CatalogInstance| {
        format!("{} {} {}", service.id, instance.id, instance.addresses.join("+"))
    };
    service.instances.iter().map(instance).collect()
}

fn apply(keys: &mut Keyspace, events: &[(&str, Option<&str>)]) -> Difference {
    keys.apply(events.iter().map(|(key, value)| (key.as_bytes(), value.map(str::as_bytes))))
}

fn replace(keys: &mut Keyspace, pairs: &[(&str, &str)]) -> Difference {
    let mut snapshot = Snapshot::default();
    for (key, value) in pairs {
        keys.read(&mut snapshot, key.as_bytes(), value.as_bytes());
    }
    keys.replace(snapshot)
}

fn problems(difference: &Difference) -> Vec<String> {
    let told =
        |(key, problem): &(Key, Option<Arc<str>>)| format!("{key}: {}", problem.as_deref().unwrap_or("good"));
    difference.problems.iter().map(told).collect()
}

#[test]
fn events_change_their_services_only() {
    let mut keys = Keyspace::new(schema("text"));
    let first = replace(&mut keys, &[("/services/a/1", "10.0.0.1:1"), ("/services/b/1", "10.0.0.2:1")]);
    assert_eq!(first.set.iter().flat_map(told).collect::<Vec<_>>(), ["a a/1 10.0.0.1", "b b/1 10.0.0.2"]);
    let more = apply(&mut keys, &[("/services/a/2", Some("10.0.0.3:1"))]);
    assert_eq!(more.set.iter().flat_map(told).collect::<Vec<_>>(), ["a a/1 10.0.0.1", "a a/2 10.0.0.3"]);
    assert!(more.removed.is_empty());
    let less = apply(&mut keys, &[("/services/a/1", None), ("/services/b/1", None), ("/services/c/1", None)]);
    assert_eq!(less.set.iter().flat_map(told).collect::<Vec<_>>(), ["a a/2 10.0.0.3"]);
    assert_eq!(less.removed, ["b".into()]);
    let same = apply(&mut keys, &[("/services/a/2", Some("10.0.0.3:1")), ("/other", Some("x"))]);
    assert_eq!(same, Difference::default());
    let forth_and_back = [("/services/a/2", None), ("/services/a/2", Some("10.0.0.3:1"))];
    assert_eq!(apply(&mut keys, &forth_and_back), Difference::default());
}

#[test]
fn a_bad_value_costs_nothing_that_was_good() {
    let mut keys = Keyspace::new(schema("text"));
    let first = replace(&mut keys, &[("/services/a/1", "10.0.0.1:1"), ("/services/a/2", "nonsense:x")]);
    assert_eq!(lines(&keys), ["a a/1 10.0.0.1"]);
    assert_eq!(problems(&first), ["/services/a/2: the key \"a/2\": \"x\" is no port"]);
    let bad = apply(&mut keys, &[("/services/a/1", Some("!:!"))]);
    assert_eq!(lines(&keys), ["a a/1 10.0.0.1"], "the last good one stays");
    assert!(bad.set.is_empty() && bad.removed.is_empty());
    assert_eq!(problems(&bad), ["/services/a/1: the key \"a/1\": \"!\" is no port"]);
    let again = replace(&mut keys, &[("/services/a/1", "!:!"), ("/services/a/2", "10.0.0.2:1")]);
    assert_eq!(lines(&keys), ["a a/1 10.0.0.1", "a a/2 10.0.0.2"], "after another read too");
    assert_eq!(problems(&again), ["/services/a/2: good"]);
    let gone = apply(&mut keys, &[("/services/a/1", None)]);
    assert_eq!(lines(&keys), ["a a/2 10.0.0.2"]);
    assert_eq!(problems(&gone), ["/services/a/1: good"]);
}

#[test]
fn an_instance_moves_from_one_service_to_another() {
    let mut keys = Keyspace::new(Schema {
        key: crate::schema::KeyPattern::parse("{instance}").unwrap(),
        ..schema("json")
    });
    let value = |service: &str| format!(r#"{{"service": "{service}", "address": "10.0.0.1:1"}}"#);
    replace(&mut keys, &[("/services/1", &value("a"))]);
    let moved = apply(&mut keys, &[("/services/1", Some(&value("b")))]);
    assert_eq!(moved.set.iter().flat_map(told).collect::<Vec<_>>(), ["b 1 10.0.0.1"]);
    assert_eq!(moved.removed, ["a".into()]);
}

/// What may happen to a key: a good value, one that is none, or its end.
fn event() -> impl Strategy<Value = (String, Option<String>)> {
    let value = prop_oneof![
        3 => (1..4_u8).prop_map(|n| Some(format!("10.0.0.{n}:80"))),
        1 => Just(Some("no:port".to_owned())),
        2 => Just(None),
    ];
    ("[ab]/[12]".prop_map(|key| format!("/services/{key}")), value)
}

proptest! {
    /// What events made of services is what a read of the same keys makes, and what was told of them adds up
    /// to it.
    #[test]
    fn events_add_up_to_a_read(batches in prop::collection::vec(prop::collection::vec(event(), 1..6), 0..8)) {
        let mut keys = Keyspace::new(schema("text"));
        let mut store: BTreeMap<String, String> = BTreeMap::new();
        let mut good: BTreeMap<String, String> = BTreeMap::new();
        let mut seen: BTreeMap<Arc<str>, Vec<String>> = BTreeMap::new();
        let mut bad: BTreeMap<Key, Arc<str>> = BTreeMap::new();
        for batch in &batches {
            for (key, value) in batch {
                match value {
                    Some(value) => {
                        store.insert(key.clone(), value.clone());
                        if value != "no:port" {
                            good.insert(key.clone(), value.clone());
                        }
                    }
                    None => {
                        store.remove(key);
                        good.remove(key);
                    }
                }
            }
            let pairs: Vec<_> = batch.iter().map(|(key, value)| (&**key, value.as_deref())).collect();
            let difference = apply(&mut keys, &pairs);
            for service in &difference.set {
                prop_assert!(seen.insert(service.id.clone(), told(service)).as_ref() != Some(&told(service)), "nothing new");
            }
            for id in &difference.removed {
                prop_assert!(seen.remove(id).is_some());
            }
            for (key, problem) in difference.problems {
                match problem {
                    Some(problem) => drop(bad.insert(key, problem)),
                    None => prop_assert!(bad.remove(&key).is_some()),
                }
            }
        }
        let mut fresh = Keyspace::new(schema("text"));
        let pairs: Vec<_> = good.iter().map(|(key, value)| (&**key, &**value)).collect();
        replace(&mut fresh, &pairs);
        prop_assert_eq!(lines(&keys), lines(&fresh), "events and a read agree");
        prop_assert_eq!(seen.into_values().flatten().collect::<Vec<_>>(), lines(&fresh), "what was told adds up");
        let wanted: Vec<&str> = store.iter().filter(|(_, value)| *value == "no:port").map(|(key, _)| &**key).collect();
        prop_assert_eq!(bad.keys().map(|key| &**key).collect::<Vec<_>>(), wanted);
        let pairs: Vec<_> = store.iter().map(|(key, value)| (&**key, &**value)).collect();
        let again = replace(&mut keys, &pairs);
        prop_assert!(again.problems.is_empty());
        prop_assert_eq!(lines(&keys), lines(&fresh), "a read of the same changes nothing");
    }
}
