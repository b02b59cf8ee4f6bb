//! Files that are damaged, of another format, or open elsewhere.

#![allow(clippy::panic, reason = "what fails is a test")]

use pilotfish_registration::testing::{instance, put};
use pilotfish_registration::{Record, Store, StoreEvent};
use pilotfish_registration_redb::{FILE_NAME, OpenError, OpenStore, RedbStore};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// A file with that many records, each written by itself, that was closed. Returns its bytes and the records.
async fn written(directory: &Path, count: usize) -> (Vec<u8>, Vec<Arc<Record>>) {
    let mut opened = RedbStore::open(directory).expect("opened");
    for id in 0..count {
        let answers = opened.store.write(vec![put(instance(&format!("i{id}")))]).await;
        assert!(answers.iter().all(Result::is_ok));
    }
    drop(opened.store);
    while opened.events.next().await.is_some() {}
    let records = records(RedbStore::open(directory).expect("opened again")).await;
    assert_eq!(records.len(), count);
    (fs::read(directory.join(FILE_NAME)).expect("read"), records)
}

/// What is in a store, which is closed again.
async fn records(mut opened: OpenStore) -> Vec<Arc<Record>> {
    let first = opened.events.next().await.expect("events").remove(0);
    let StoreEvent::Reset { mut records, .. } = first else { panic!("not Reset") };
    records.sort_by(|a, b| a.instance.key.cmp(&b.instance.key));
    records
}

fn open_error(directory: &Path) -> OpenError {
    match RedbStore::open(directory) {
        Ok(_) => panic!("it opened"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn a_second_process_is_told() {
    let directory = tempfile::tempdir().expect("a directory");
    let opened = RedbStore::open(directory.path()).expect("opened");
    let error = open_error(directory.path());
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    let said = error.to_string();
    assert!(said.contains(FILE_NAME) && said.contains("--data-dir"), "{said}");
    drop(opened);
    RedbStore::open(directory.path()).expect("free again");
}

#[tokio::test]
async fn a_directory_that_cannot_be_made_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    fs::write(&file, "x").expect("written");
    let error = open_error(&file.join("below"));
    assert!(matches!(error, OpenError::Io { .. }), "{error}");
    assert!(error.to_string().contains("file/below"), "{error}");
    // Directories above are made, for us alone.
    let deep = directory.path().join("a/b/c");
    drop(RedbStore::open(&deep).expect("made"));
    let mode = |path: &Path| {
        std::os::unix::fs::PermissionsExt::mode(&fs::metadata(path).expect("there").permissions())
    };
    assert_eq!((mode(&deep) & 0o777, mode(&deep.join(FILE_NAME)) & 0o777), (0o700, 0o600));
}

#[tokio::test]
async fn what_is_no_file_of_ours_is_kept_and_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join(FILE_NAME);
    let garbage = b"this was something else ".repeat(1_000);
    for content in [garbage.as_slice(), b"x"] {
        let copy = directory.path().join("registrations.redb.corrupt");
        if copy.exists() {
            fs::remove_file(&copy).expect("removed");
        }
        fs::write(&file, content).expect("written");
        let error = open_error(directory.path());
        let OpenError::Corrupt { copy: Ok(kept), .. } = &error else { panic!("{error:?}") };
        assert_eq!(fs::read(kept).expect("a copy"), content);
        let said = error.to_string();
        for word in [FILE_NAME, "damaged", "registrations.redb.corrupt", "remove the file"] {
            assert!(said.contains(word), "{word}: {said}");
        }
    }
    // The first copy stays, however often it is tried.
    fs::write(&file, garbage.get(..100).expect("long")).expect("written");
    let _ = open_error(directory.path());
    assert_eq!(fs::read(directory.path().join("registrations.redb.corrupt")).expect("a copy"), b"x");
    // The way out.
    fs::remove_file(&file).expect("removed");
    RedbStore::open(directory.path()).expect("an empty store");
}

/// Whatever bytes are damaged: what opens has all records, or all but those of the last commit where its very marker is damaged;
/// everything else is an error that names the file.
#[tokio::test(flavor = "multi_thread")]
async fn damaged_bytes_never_become_other_records() {
    let directory = tempfile::tempdir().expect("a directory");
    let (good, expected) = written(directory.path(), 60).await;
    let file = directory.path().join(FILE_NAME);
    let (mut opened, mut refused, mut lost) = (0, 0, BTreeSet::new());
    let used: Vec<usize> =
        good.iter().enumerate().filter(|(_, byte)| **byte != 0).map(|(at, _)| at).collect();
    let step = used.len() / 150;
    for at in used.iter().copied().step_by(step.max(1)) {
        let mut bad = good.clone();
        bad[at] ^= 0xA5;
        fs::write(&file, &bad).expect("written");
        match RedbStore::open(directory.path()) {
            Ok(store) => {
                let found = records(store).await;
                if found != expected {
                    assert!(found.iter().all(|record| expected.contains(record)), "byte {at}: other records");
                    lost.insert((at, expected.len() - found.len()));
                }
                opened += 1;
            }
            Err(OpenError::Corrupt { .. } | OpenError::Format { .. }) => refused += 1,
            Err(error) => panic!("byte {at}: {error:?}"),
        }
    }
    assert!(refused > 20, "{refused} of {} refused", opened + refused);
    assert!(lost.iter().all(|(at, count)| *at < 512 && *count <= 1), "{lost:?}");
}

#[tokio::test]
async fn a_file_that_was_cut_is_refused_or_whole() {
    let directory = tempfile::tempdir().expect("a directory");
    let (good, expected) = written(directory.path(), 60).await;
    let file = directory.path().join(FILE_NAME);
    for percent in [1, 10, 50, 90, 99] {
        fs::write(&file, good.get(..good.len() * percent / 100).expect("a part")).expect("written");
        match RedbStore::open(directory.path()) {
            Ok(store) => assert_eq!(records(store).await, expected, "{percent} %"),
            Err(OpenError::Corrupt { .. }) => {}
            Err(error) => panic!("{percent} %: {error:?}"),
        }
    }
}

#[tokio::test]
async fn a_format_of_the_future_is_refused() {
    const NUMBERS: redb::TableDefinition<'_, &str, u64> = redb::TableDefinition::new("numbers");
    let directory = tempfile::tempdir().expect("a directory");
    written(directory.path(), 3).await;
    let database = redb::Database::open(directory.path().join(FILE_NAME)).expect("opened");
    let transaction = database.begin_write().expect("a transaction");
    transaction.open_table(NUMBERS).expect("a table").insert("format", 2).expect("written");
    transaction.commit().expect("committed");
    drop(database);
    let error = open_error(directory.path());
    assert!(matches!(error, OpenError::Format { found: 2, known: 1, .. }), "{error:?}");
    assert!(error.to_string().contains("start the version that wrote it"), "{error}");
    assert!(!directory.path().join("registrations.redb.corrupt").exists(), "nothing is damaged");
}
