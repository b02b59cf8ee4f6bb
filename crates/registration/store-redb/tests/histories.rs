//! Random histories: what is in the file is what was acknowledged, whenever it is opened again, and revisions
//! only rise.

#![allow(clippy::panic, reason = "what fails is a test")]

use pilotfish_registration::testing::{instance, key, put, remove};
use pilotfish_registration::{
    Expected, Instance, InstanceKey, Store, StoreEvent, Write, WriteError, Written,
};
use pilotfish_registration_redb::{OpenStore, RedbStore};
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Step {
    /// Writes in one call; a weight or a removal, and what is expected: anything, nothing, the last revision,
    /// an older one.
    Write(Vec<(u8, Option<u32>, u8)>),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let write = (0..5u8, proptest::option::weighted(0.7, 0..4u32), 0..4u8);
    prop_oneof![
        6 => proptest::collection::vec(write, 1..6).prop_map(Step::Write),
        1 => Just(Step::Reopen),
    ]
}

/// What there must be: weight and revision by key.
type Model = BTreeMap<InstanceKey, (u32, u64)>;

async fn open(directory: &std::path::Path) -> (OpenStore, Model, u64) {
    let mut opened = RedbStore::open(directory).expect("opened");
    let first = opened.events.next().await.expect("events").remove(0);
    let StoreEvent::Reset { revision, records, .. } = first else { panic!("not Reset") };
    let record = |record: &pilotfish_registration::Record| {
        (record.instance.key.clone(), (record.instance.weight, record.revision))
    };
    let found = records.iter().map(|found| record(found)).collect();
    (opened, found, revision)
}

async fn history(steps: Vec<Step>) {
    let directory = tempfile::tempdir().expect("a directory");
    let (mut opened, mut model, mut revision) = open(directory.path()).await;
    assert!(model.is_empty());
    for step in steps.into_iter().chain([Step::Reopen]) {
        match step {
            Step::Reopen => {
                drop(opened);
                let (again, found, reached) = open(directory.path()).await;
                assert_eq!((&found, reached), (&model, revision));
                opened = again;
            }
            Step::Write(drawn) => {
                let writes: Vec<Write> = drawn.into_iter().map(|drawn| write(&model, drawn)).collect();
                let answers = opened.store.write(writes.clone()).await;
                for (write, answer) in writes.into_iter().zip(answers) {
                    follow(&mut model, &mut revision, write, answer);
                }
            }
        }
    }
}

fn write(model: &Model, (id, weight, expected): (u8, Option<u32>, u8)) -> Write {
    let id = id.to_string();
    let last = model.get(&key(&id)).map_or(0, |(_, revision)| *revision);
    let expected = match expected {
        0 => Expected::Absent,
        1 => Expected::Revision(last),
        2 => Expected::Revision(last.saturating_sub(1)),
        _ => Expected::Any,
    };
    let write = match weight {
        Some(weight) => put(Instance { weight, ..instance(&id) }),
        None => remove(key(&id)),
    };
    Write { expected, ..write }
}

/// The model does what the store said, if that is right.
fn follow(model: &mut Model, revision: &mut u64, write: Write, answer: Result<Written, WriteError>) {
    let weight = write.value.map(|value| value.instance.weight);
    let current = model.get(&write.key).copied();
    let is_there = weight.is_some() && current.map(|(weight, _)| weight) == weight;
    let is_met = match write.expected {
        Expected::Any => true,
        Expected::Absent => current.is_none(),
        Expected::Revision(expected) => current.is_some_and(|(_, revision)| revision == expected),
    };
    match answer {
        Ok(written) if written.changed => {
            assert!(is_met && !is_there && written.revision == *revision + 1, "{written:?}");
            *revision = written.revision;
            match weight {
                Some(weight) => drop(model.insert(write.key, (weight, *revision))),
                None => assert!(model.remove(&write.key).is_some(), "something was removed"),
            }
        }
        Ok(written) => {
            assert!(is_there || (weight.is_none() && current.is_none() && is_met), "{written:?}");
            assert!(written.revision <= *revision, "{written:?}");
        }
        Err(WriteError::Conflict { current: told }) => {
            assert!(!is_met && !is_there, "a conflict without a reason");
            assert_eq!(told.map(|record| record.revision), current.map(|(_, revision)| revision));
        }
        Err(error) => panic!("{error}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn the_file_is_what_was_acknowledged(steps in proptest::collection::vec(step(), 1..25)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(history(steps));
    }
}
