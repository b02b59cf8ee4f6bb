//! Files that are damaged, of another format, or open elsewhere.

#![allow(clippy::panic, reason = "what fails is a test")]

use pilotfish_registration::testing::{instance, put};
use pilotfish_registration::{Record, Store, StoreEvent};
use pilotfish_registration_redb::{FILE_NAME, OpenError, OpenStore, RedbStore};
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

/// Opens a damaged file: all records, or an error that says what to do. Returns true if it was refused.
async fn whole_or_refused(directory: &Path, expected: &[Arc<Record>], what: &str) -> bool {
    match RedbStore::open(directory) {
        Ok(store) => {
            assert_eq!(records(store).await, expected, "{what}");
            false
        }
        Err(
            error @ (OpenError::Corrupt { .. } | OpenError::RolledBack { .. } | OpenError::Format { .. }),
        ) => {
            let said = error.to_string();
            assert!(
                said.contains("registrations.re") && (said.contains("To go on") || said.contains("start")),
                "{what}: {said}"
            );
            true
        }
        Err(error) => panic!("{what}: {error:?}"),
    }
}

/// Whatever bytes are damaged: what opens has all records; everything else is an error that names the file.
#[tokio::test(flavor = "multi_thread")]
async fn damaged_bytes_never_become_other_records() {
    let directory = tempfile::tempdir().expect("a directory");
    let (good, expected) = written(directory.path(), 60).await;
    let file = directory.path().join(FILE_NAME);
    let mut refused = 0;
    let used: Vec<usize> =
        good.iter().enumerate().filter(|(_, byte)| **byte != 0).map(|(at, _)| at).collect();
    let step = used.len() / 150;
    for at in used.iter().copied().step_by(step.max(1)) {
        let mut bad = good.clone();
        bad[at] ^= 0xA5;
        fs::write(&file, &bad).expect("written");
        refused += usize::from(whole_or_refused(directory.path(), &expected, &format!("byte {at}")).await);
    }
    assert!(refused > 20, "{refused} refused");
}

/// What is tried, the bytes of the store, files beside it, the records in it, and each how many bits one is
/// flipped.
type Case<'a> = (&'a str, &'a [u8], &'a [(&'static str, Vec<u8>)], &'a [Arc<Record>], usize);

/// The header that points at the newest commit, bit by bit: after a clean end; after a crash, as a copy of
/// the folder; and as a copy of the file alone, without the revision beside it.
#[tokio::test(flavor = "multi_thread")]
async fn flipped_bit_of_the_header_loses_no_acknowledged_record() {
    let origin = tempfile::tempdir().expect("a directory");
    let (clean, expected) = written(origin.path(), 7).await;
    let opened = RedbStore::open(origin.path()).expect("opened");
    let answers = opened.store.write(vec![put(instance("last"))]).await;
    assert!(answers.iter().all(Result::is_ok));
    let copies: Vec<(&'static str, Vec<u8>)> =
        ["registrations.revision", "registrations.removals", FILE_NAME]
            .map(|name| (name, fs::read(origin.path().join(name)).expect("read")))
            .into();
    let with_last = {
        let directory = tempfile::tempdir().expect("a directory");
        copies
            .iter()
            .for_each(|(name, bytes)| fs::write(directory.path().join(name), bytes).expect("written"));
        records(RedbStore::open(directory.path()).expect("a crash is no damage")).await
    };
    assert_eq!(with_last.len(), expected.len() + 1);
    let (beside, crashed) = (&copies[..2], &copies[2].1);
    let clean_beside: Vec<(&'static str, Vec<u8>)> = {
        let directory = tempfile::tempdir().expect("a directory");
        written(directory.path(), 7).await;
        let read = |name| (name, fs::read(directory.path().join(name)).expect("read"));
        ["registrations.revision", "registrations.removals"].map(read).into()
    };
    let cases: [Case<'_>; 4] = [
        ("crash", crashed, beside, &with_last, 3),
        ("clean", &clean, &clean_beside, &expected, 13),
        ("crash, file alone", crashed, &[], &with_last, 13),
        ("clean, file alone", &clean, &[], &expected, 13),
    ];
    for (what, good, beside, expected, step) in cases {
        let mut refused = 0;
        for bit in (0..320 * 8).step_by(step) {
            let directory = tempfile::tempdir().expect("a directory");
            beside
                .iter()
                .for_each(|(name, bytes)| fs::write(directory.path().join(name), bytes).expect("written"));
            let mut bad = good.to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            fs::write(directory.path().join(FILE_NAME), &bad).expect("written");
            let what = format!("{what}, bit {bit}");
            refused += usize::from(whole_or_refused(directory.path(), expected, &what).await);
        }
        assert!(refused > 100 / step, "{what}: {refused} refused");
    }
}

#[tokio::test]
async fn file_without_bytes_is_damage_and_no_new_store() {
    let directory = tempfile::tempdir().expect("a directory");
    written(directory.path(), 3).await;
    fs::write(directory.path().join(FILE_NAME), b"").expect("written");
    let error = open_error(directory.path());
    assert!(matches!(&error, OpenError::Corrupt { why, .. } if why == "it has no bytes"), "{error:?}");
}

/// A store that is removed, and one that takes the place of a newer one.
#[tokio::test]
async fn revisions_are_never_given_out_twice() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join(FILE_NAME);
    let revision = |records: &[Arc<Record>]| records.iter().map(|record| record.revision).max();
    let (old, records_of_old) = written(directory.path(), 3).await;
    let opened = RedbStore::open(directory.path()).expect("opened");
    let written = opened.store.write(vec![put(instance("new"))]).await.remove(0).expect("written");
    assert_eq!(Some(written.revision), revision(&records_of_old).map(|last| last + 1));
    drop(opened);
    fs::write(&file, &old).expect("an older one");
    let error = open_error(directory.path());
    let OpenError::RolledBack { found: 3, acknowledged: 4, .. } = error else { panic!("{error:?}") };
    let said = error.to_string();
    assert!(said.contains("bring back the newer file") && said.contains("registrations.revision"), "{said}");
    fs::remove_file(&file).expect("removed");
    let opened = RedbStore::open(directory.path()).expect("an empty store");
    let next = opened.store.write(vec![put(instance("a"))]).await.remove(0).expect("written");
    assert_eq!(next.revision, written.revision + 1);
    drop(opened);
    // The loss was accepted.
    fs::write(&file, &old).expect("an older one");
    fs::remove_file(directory.path().join("registrations.revision")).expect("removed");
    let opened = RedbStore::open(directory.path()).expect("the older one");
    let again = opened.store.write(vec![put(instance("a"))]).await.remove(0).expect("written");
    assert!(again.revision > next.revision, "{again:?} after {next:?}");
    drop(opened);
    assert_eq!(records(RedbStore::open(directory.path()).expect("again")).await.len(), 4);
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
