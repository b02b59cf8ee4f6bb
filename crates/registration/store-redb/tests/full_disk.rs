//! A disk that is full: writes fail and say so, what was acknowledged stays, and writing goes on when there
//! is space again.
//!
//! The disk is a limit of the size of files in a process of its own: this test, started again.

#![allow(clippy::panic, reason = "what fails is a test")]

use pilotfish_registration::testing::{instance, key, put, remove};
use pilotfish_registration::{
    Expected, Instance, InstanceKey, RenewError, Store, StoreEvent, StoreEvents, Write, WriteError,
};
use pilotfish_registration_redb::{OpenStore, RedbStore};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const DIRECTORY: &str = "PILOTFISH_FULL_DIRECTORY";
/// The size of the disk, in blocks of 512 bytes as `ulimit` has it.
const BLOCKS: u64 = 4 << 10;
const DEADLINE: Duration = Duration::from_secs(60);

/// Names what changes. Nothing is told anew: nothing failed and happened.
async fn follow(mut events: StoreEvents) -> BTreeSet<InstanceKey> {
    let mut changed = BTreeSet::new();
    while let Some(events) = events.next().await {
        for event in events {
            match event {
                StoreEvent::Changed { key, .. } => drop(changed.insert(key)),
                StoreEvent::Reset { .. } => panic!("everything anew"),
                _ => {}
            }
        }
    }
    changed
}

/// Removals of every kind succeed on the full disk. Returns the last revision.
async fn remove_while_full(store: &RedbStore, acknowledged: &mut Vec<InstanceKey>) -> u64 {
    let mut last = 0;
    for batch in 1..4 {
        let gone: Vec<_> = acknowledged.drain(..batch).collect();
        let answers = store.write(gone.iter().cloned().map(remove).collect()).await;
        for answer in answers {
            let written = answer.expect("a removal needs no space");
            assert!(written.changed && written.revision > last, "{written:?} after {last}");
            last = written.revision;
        }
        let again = store.write(vec![remove(gone[0].clone())]).await.remove(0);
        assert!(again.is_ok_and(|written| !written.changed), "it is gone");
        let conflict = Write { expected: Expected::Revision(1_000_000), ..remove(acknowledged[0].clone()) };
        let conflict = store.write(vec![conflict]).await.remove(0);
        assert!(matches!(conflict, Err(WriteError::Conflict { current: Some(_) })), "{conflict:?}");
        let renewed = store.renew(gone).await;
        assert!(renewed.iter().all(|answer| *answer == Err(RenewError::NotFound)), "{renewed:?}");
    }
    last
}

#[test]
fn what_was_acknowledged_stays_when_the_disk_is_full() {
    let directory = tempfile::tempdir().expect("a directory");
    let test = std::env::current_exe().expect("this test");
    // Without the trap, the signal would end the process before the write fails.
    let script = format!("trap '' XFSZ; ulimit -S -f {BLOCKS}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).arg(test).args(["--exact", "fills_its_disk", "--ignored", "--nocapture"]);
    let output = command.env(DIRECTORY, directory.path()).output().expect("started");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("filled and freed"), "{said}");
}

#[tokio::test]
#[ignore = "the other half of `what_was_acknowledged_stays_when_the_disk_is_full`, which starts it"]
async fn fills_its_disk() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let directory = Path::new(&directory);
    let OpenStore { store, mut events } = RedbStore::open(directory).expect("opened");
    let first = events.next().await.expect("events").remove(0);
    assert!(matches!(first, StoreEvent::Reset { records, .. } if records.is_empty()));
    let reader = tokio::spawn(follow(events));
    let big = |id: usize| Instance {
        metadata: [("note".into(), "x".repeat(8_000).into())].into(),
        ..instance(&format!("i{id}"))
    };
    let mut acknowledged = Vec::new();
    let error = loop {
        let id = acknowledged.len();
        match store.write(vec![put(big(id))]).await.remove(0) {
            Ok(_) => acknowledged.push(key(&format!("i{id}"))),
            Err(error) => break error,
        }
        assert!(id < 100_000, "the disk is never full");
    };
    assert!(matches!(error, WriteError::Full(_)), "{error:?}");
    assert!(acknowledged.len() > 10, "{} before it was full", acknowledged.len());
    assert!(store.describe().trouble.is_some(), "it says so");
    assert!(store.renew(acknowledged.clone()).await.iter().all(Result::is_ok), "leases go on");
    // Still full: an error each time, and no waiting for ever.
    for id in 0..20 {
        let answer = store.write(vec![put(big(900_000 + id))]).await.remove(0);
        assert!(answer.is_err(), "there is no space");
    }
    let taken = remove_while_full(&store, &mut acknowledged).await;
    tokio::task::spawn_blocking(move || drop(store)).await.expect("closed");
    let mut changed = reader.await.expect("the reader");
    // Another process on the full disk, as after a crash: what was removed stays removed.
    let OpenStore { store, mut events } = RedbStore::open(directory).expect("opened on a full disk");
    let first = events.next().await.expect("events").remove(0);
    let StoreEvent::Reset { records, revision, .. } = first else { panic!("not Reset") };
    let found: BTreeSet<_> = records.iter().map(|record| record.instance.key.clone()).collect();
    assert_eq!(found, acknowledged.iter().cloned().collect());
    assert!(revision >= taken, "revisions only rise");
    let reader = tokio::spawn(follow(events));
    let limit = getrlimit(Resource::Fsize);
    setrlimit(Resource::Fsize, Rlimit { current: limit.maximum, ..limit }).expect("more space");
    let begin = Instant::now();
    let gone = acknowledged.remove(0);
    while let Err(error) = store.write(vec![remove(gone.clone()), put(big(1_000_000))]).await.remove(0) {
        assert!(begin.elapsed() < DEADLINE, "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    acknowledged.push(key("i1000000"));
    assert_eq!(store.describe().trouble, None);
    tokio::task::spawn_blocking(move || drop(store)).await.expect("closed");
    changed.extend(reader.await.expect("the reader"));
    let mut opened = RedbStore::open(directory).expect("opened again");
    let first = opened.events.next().await.expect("events").remove(0);
    let StoreEvent::Reset { records, .. } = first else { panic!("not Reset") };
    let found: BTreeSet<_> = records.iter().map(|record| record.instance.key.clone()).collect();
    assert_eq!(found, acknowledged.into_iter().collect(), "what was acknowledged, and nothing else");
    assert!(found.iter().all(|key| changed.contains(key)), "and all of it was told");
    println!("filled and freed");
}
