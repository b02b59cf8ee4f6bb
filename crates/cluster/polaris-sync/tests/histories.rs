//! Properties of plans over random worlds: one pass converges, a second one makes no call, instances of
//! others are never touched, and a pass that is interrupted anywhere is finished by the next one.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use pilotfish_polaris_sync::reconcile::{
    Actual, ActualAlias, ActualInstance, ActualService, AliasKey, Call, Capabilities, Desired,
    DesiredService, Instance, Metadata, Place, Plan, ServiceKey, Target, Text, plan,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Owns by the key `owner`, marks by the key `mark`.
struct Plain;

const BATCH: usize = 3;

impl Target for Plain {
    fn capabilities(&self) -> Capabilities {
        Capabilities { namespaces: true, services: true, aliases: true, batch: BATCH }
    }

    fn check_service(&self, _: &ServiceKey) -> Result<(), String> {
        Ok(())
    }

    fn fit_service(&self, _: &mut DesiredService) -> Vec<String> {
        Vec::new()
    }

    fn fit_instance(&self, _: &Place, instance: &mut Instance) -> Result<Vec<String>, String> {
        instance.metadata.insert("owner".into(), "us".into());
        Ok(Vec::new())
    }

    fn owns(&self, metadata: &Metadata) -> bool {
        metadata.get("owner").is_some_and(|owner| &**owner == "us")
    }

    fn isolated_by_us(&self, metadata: &Metadata) -> bool {
        metadata.contains_key("mark")
    }

    fn mark_isolated(&self, metadata: &mut Metadata, isolated: bool) {
        if isolated {
            metadata.insert("mark".into(), "x".into());
        } else {
            metadata.remove("mark");
        }
    }

    fn retired(&self, known: &Metadata) -> Metadata {
        let mut metadata = known.clone();
        metadata.insert("mark".into(), "retired".into());
        metadata
    }
}

fn key() -> impl Strategy<Value = ServiceKey> {
    ("[ab]", "[x-z]").prop_map(|(namespace, name)| ServiceKey::new(namespace, name))
}

fn place() -> impl Strategy<Value = Place> {
    ("10[.]0[.]0[.][1-4]", 80..82u16).prop_map(|(host, port)| Place::new(host, port))
}

fn metadata(owner: &'static str) -> impl Strategy<Value = Metadata> {
    prop::collection::btree_map("[km]", "[12]", 0..2).prop_map(move |map| {
        let own = (Text::from("owner"), Text::from(owner));
        map.into_iter().map(|(key, value)| (key.into(), value.into())).chain([own]).collect()
    })
}

fn text(pattern: &'static str) -> impl Strategy<Value = Text> {
    pattern.prop_map(Text::from)
}

fn instance() -> impl Strategy<Value = Instance> {
    (
        text("(http|grpc)/TCP"),
        text("(v1)?"),
        99..101u32,
        any::<bool>(),
        prop::option::of(5..7u8),
        metadata("us"),
    )
        .prop_map(|(protocol, version, weight, ready, ttl, metadata)| Instance {
            protocol,
            version,
            weight,
            ready,
            ttl,
            metadata,
        })
}

fn desired() -> impl Strategy<Value = Desired> {
    let service = (
        prop::collection::btree_map(text("[lm]"), text("[12]"), 0..2),
        prop::collection::btree_set(80..83u16, 0..2),
        prop::collection::btree_set(key().prop_map(AliasKey), 0..2),
        prop::collection::btree_map(place(), instance(), 0..6),
    )
        .prop_map(|(metadata, ports, aliases, instances)| DesiredService {
            metadata,
            ports,
            aliases,
            instances,
        });
    (prop::collection::btree_set(text("[ab]"), 0..2), prop::collection::btree_map(key(), service, 0..5))
        .prop_map(|(namespaces, services)| Desired { namespaces, services })
}

fn actual_instance() -> impl Strategy<Value = ActualInstance> {
    let metadata = prop_oneof![
        metadata("us"),
        metadata("them"),
        metadata("us").prop_map(|mut metadata| {
            metadata.insert("mark".into(), "x".into());
            metadata
        })
    ];
    (text("(http|grpc)/TCP"), 99..101u32, any::<bool>(), any::<bool>(), prop::option::of(5..7u8), metadata)
        .prop_map(|(protocol, weight, healthy, isolated, ttl, metadata)| ActualInstance {
            protocol,
            version: Text::default(),
            weight,
            healthy,
            isolated,
            ttl,
            metadata,
            revision: Text::default(),
        })
}

fn actual() -> impl Strategy<Value = Actual> {
    let service = (prop::collection::btree_map(text("[lm]"), text("[12]"), 0..2), text("(me)?"))
        .prop_map(|(metadata, owners)| ActualService { metadata, ports: BTreeSet::new(), owners });
    let alias = (key(), any::<bool>(), any::<bool>()).prop_map(|(service, is_ours, other)| ActualAlias {
        service,
        is_ours,
        is_adoptable: is_ours || other,
    });
    (
        prop::collection::btree_set(text("[ab]"), 0..2),
        prop::collection::btree_map(key(), service, 0..4),
        prop::collection::btree_map(key().prop_map(AliasKey), alias, 0..3),
        prop::collection::btree_map(
            key(),
            prop::collection::btree_map(place(), actual_instance(), 1..6),
            0..5,
        ),
    )
        .prop_map(|(namespaces, services, aliases, instances)| Actual {
            namespaces,
            services,
            aliases,
            instances,
        })
}

type Foreign = (Vec<(ServiceKey, Place, ActualInstance)>, Vec<(AliasKey, ActualAlias)>);

/// What belongs to others.
fn foreign(actual: &Actual) -> Foreign {
    let all = actual.instances.iter().flat_map(|(service, places)| {
        places.iter().map(|(place, instance)| (service.clone(), place.clone(), instance.clone()))
    });
    let aliases = actual.aliases.iter().filter(|(_, alias)| !alias.is_adoptable);
    (
        all.filter(|(_, _, instance)| !Plain.owns(&instance.metadata)).collect(),
        aliases.map(|(key, alias)| (key.clone(), alias.clone())).collect(),
    )
}

/// Instances that somebody else took out of rotation, and that are still ours and wanted.
fn isolated_by_people(actual: &Actual, desired: &Desired) -> BTreeSet<(ServiceKey, Place)> {
    let mut found = BTreeSet::new();
    for (service, places) in &actual.instances {
        let wanted = desired.services.get(service).map(|service| &service.instances);
        for (place, instance) in places {
            let is_wanted = wanted.is_some_and(|wanted| wanted.contains_key(place));
            if is_wanted && instance.isolated && !Plain.isolated_by_us(&instance.metadata) {
                found.insert((service.clone(), place.clone()));
            }
        }
    }
    found
}

fn run(plan: &Plan, actual: &mut Actual, calls: usize) {
    plan.calls().take(calls).for_each(|call| actual.apply(call));
}

fn has_what_is_wanted(desired: &Desired, actual: &Actual) {
    assert!(desired.namespaces.is_subset(&actual.namespaces));
    for (key, wanted) in &desired.services {
        let service = &actual.services[key];
        assert!(wanted.metadata.iter().all(|(name, value)| service.metadata.get(name) == Some(value)));
        let none = BTreeMap::new();
        let places = actual.instances.get(key).unwrap_or(&none);
        for (place, instance) in &wanted.instances {
            let there = &places[place];
            if Plain.owns(&there.metadata) {
                assert_eq!(
                    (&there.protocol, there.weight, there.ttl),
                    (&instance.protocol, instance.weight, instance.ttl)
                );
                assert!(instance.ready || there.isolated);
            }
        }
    }
    for (key, places) in &actual.instances {
        for (place, instance) in places.iter().filter(|(_, instance)| Plain.owns(&instance.metadata)) {
            let wanted = desired.services.get(key).and_then(|wanted| wanted.instances.get(place));
            assert!(wanted.is_some(), "{key} {place} is an orphan: {instance:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn one_pass_converges_and_others_are_not_touched(desired in desired(), start in actual()) {
        let mut actual = start.clone();
        let first = plan(&Plain, &desired, &actual, None);
        run(&first, &mut actual, usize::MAX);
        has_what_is_wanted(&desired, &actual);
        let second = plan(&Plain, &desired, &actual, None);
        prop_assert!(second.is_empty(), "{second:?}");
        prop_assert_eq!(foreign(&start), foreign(&actual));
        let people = isolated_by_people(&start, &desired);
        let still = people.iter().all(|(service, place)| actual.instances[service][place].isolated);
        prop_assert!(still, "a person's isolation was lifted");
        prop_assert!(first.calls().all(|call| !call.is_empty() && call.len() <= BATCH));
    }

    #[test]
    fn what_was_interrupted_is_finished_by_the_next_pass(desired in desired(), start in actual(), stop in 0..12usize) {
        let mut interrupted = start.clone();
        run(&plan(&Plain, &desired, &interrupted, None), &mut interrupted, stop);
        run(&plan(&Plain, &desired, &interrupted, None), &mut interrupted, usize::MAX);
        let mut whole = start.clone();
        run(&plan(&Plain, &desired, &whole, None), &mut whole, usize::MAX);
        prop_assert_eq!(interrupted, whole);
    }

    #[test]
    fn a_world_that_changes_converges_each_time(worlds in prop::collection::vec(desired(), 1..5), start in actual()) {
        let mut actual = start.clone();
        for desired in &worlds {
            run(&plan(&Plain, desired, &actual, None), &mut actual, usize::MAX);
            prop_assert!(plan(&Plain, desired, &actual, None).is_empty());
            has_what_is_wanted(desired, &actual);
        }
        prop_assert_eq!(foreign(&start), foreign(&actual));
    }

    #[test]
    fn scopes_add_up_to_everything(desired in desired(), start in actual()) {
        let keys: BTreeSet<ServiceKey> = desired.services.keys().chain(start.instances.keys()).cloned().collect();
        let mut parts = start.clone();
        for key in keys {
            let scope = BTreeSet::from([key.clone()]);
            let part = plan(&Plain, &desired, &parts, Some(&scope));
            let of_scope = |call: &Call| match call {
                Call::CreateInstances(all) | Call::UpdateInstances(all) => all.iter().all(|one| one.key.service == key),
                Call::RetireInstances(all) => all.iter().all(|one| one.key.service == key),
                Call::DeleteInstances(all) => all.iter().all(|one| one.service == key),
                _ => true,
            };
            prop_assert!(part.calls().all(of_scope));
            run(&part, &mut parts, usize::MAX);
        }
        let mut whole = start.clone();
        run(&plan(&Plain, &desired, &whole, None), &mut whole, usize::MAX);
        prop_assert_eq!(parts.instances, whole.instances);
    }
}
