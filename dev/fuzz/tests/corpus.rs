//! Every input that the repository keeps, on its target: each once found something, or reaches what no other
//! does.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails this way")]

use pilotfish_fuzz::{TARGETS, find};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

/// How long one input may take: far longer than it does on any machine.
const DEADLINE: Duration = Duration::from_secs(120);

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Tries the inputs of a target, and names the one that fails or does not end.
fn replay(name: &'static str) {
    let folder = corpus().join(name);
    let inputs = names(&folder);
    assert!(!inputs.is_empty(), "{name} has no inputs");
    let (sender, receiver) = mpsc::channel();
    let target = find(name).unwrap();
    let trying = inputs.clone();
    let worker = std::thread::spawn(move || {
        for input in trying {
            target.run(&std::fs::read(folder.join(&input)).unwrap());
            if sender.send(()).is_err() {
                break;
            }
        }
    });
    let mut left = inputs.iter();
    for input in &mut left {
        match receiver.recv_timeout(DEADLINE) {
            Ok(()) => {}
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("{name}: {input} does not end"),
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                worker.join().unwrap_err();
                panic!("{name}: {input} fails, as is said above");
            }
        }
    }
    worker.join().unwrap();
}

macro_rules! replays {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            replay(stringify!($name));
        })*

        #[test]
        fn every_target_is_replayed() {
            let replayed = BTreeSet::from([$(stringify!($name).to_owned()),*]);
            assert_eq!(replayed, names(&corpus()));
            assert_eq!(replayed, TARGETS.iter().map(|target| target.name.to_owned()).collect());
        }
    };
}

replays! { admission csr kinds kubeconfig mesh node regex registration session world yaml }
