//! A process that writes is killed a thousand times at random points: what was acknowledged is there
//! afterwards, what was removed is not, and revisions only rise.
//!
//! The process is this test itself, started again. It says on its standard output what it begins and what was
//! acknowledged.

use pilotfish_registration::testing::{instance, key, put, remove};
use pilotfish_registration::{Instance, Store, StoreEvent};
use pilotfish_registration_redb::{OpenStore, RedbStore};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How many processes are killed.
const KILLS: usize = 1_000;
/// Directories in which this happens at a time, each with one process after another.
const LANES: u64 = 6;
/// Callers in a process, and what each writes: nobody else writes these.
const CALLERS: u64 = 8;
const KEYS: u64 = 4;
/// A process ends by itself after so many writes, should nobody kill it.
const WRITES: usize = 20_000;

const DIRECTORY: &str = "PILOTFISH_KILLED_DIRECTORY";
const SEED: &str = "PILOTFISH_KILLED_SEED";

/// A number that follows from the one before: the same seed gives the same numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

#[test]
fn nothing_acknowledged_is_lost() {
    let kills = AtomicUsize::new(0);
    let acknowledged = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for lane in 1..=LANES {
            let (kills, acknowledged) = (&kills, &acknowledged);
            scope.spawn(move || {
                let directory = tempfile::tempdir().expect("a directory");
                let mut random = Random(lane.wrapping_mul(0x9E37_79B9_7F4A_7C15));
                let mut history = History::default();
                while kills.fetch_add(1, Ordering::Relaxed) < KILLS {
                    life(directory.path(), &mut random, &mut history);
                }
                // The last word has a process that is not killed.
                life_until_ready(directory.path(), &mut history);
                acknowledged.fetch_add(history.acknowledged, Ordering::Relaxed);
            });
        }
    });
    let acknowledged = acknowledged.into_inner();
    assert!(acknowledged > KILLS, "{acknowledged} acknowledged writes say little");
}

/// Starts a process, and kills it after some lines and a moment.
fn life(directory: &Path, random: &mut Random, history: &mut History) {
    let mut child = start(directory, random.below(u64::MAX));
    // Every eighth is killed while it opens the file.
    let (lines, moment) = match random.below(8) {
        0 => (0, random.below(30_000)),
        _ => (32 + random.below(120), random.below(3_000)),
    };
    let mut output = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut read = Vec::new();
    while (read.len() as u64) < lines {
        read.push(output.next().expect("it runs until it is killed").expect("text"));
    }
    std::thread::sleep(Duration::from_micros(moment));
    child.kill().expect("killed");
    child.wait().expect("ended");
    read.extend(output.map(|line| line.expect("text")));
    history.life(&read);
}

/// Starts a process that opens the file and says what is there.
fn life_until_ready(directory: &Path, history: &mut History) {
    let mut child = start(directory, 1);
    let mut output = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let read: Vec<String> =
        output.by_ref().map(|line| line.expect("text")).take_while(|line| line != "ready").collect();
    child.kill().expect("killed");
    child.wait().expect("ended");
    history.life(&[read, vec!["ready".to_owned()]].concat());
}

fn start(directory: &Path, seed: u64) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", "writes_until_it_is_killed", "--nocapture", "--ignored", "--quiet"]);
    command.env(DIRECTORY, directory).env(SEED, seed.max(1).to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("started")
}

/// What can be in the file, by what processes said.
#[derive(Default)]
struct History {
    /// For each key the weights of the record that can be there; `None` for no record.
    possible: BTreeMap<String, BTreeSet<Option<u32>>>,
    /// The highest revision that anybody was told.
    revision: u64,
    acknowledged: usize,
}

impl History {
    /// What one process said, which may end anywhere.
    fn life(&mut self, lines: &[String]) {
        let mut found: BTreeMap<String, u32> = BTreeMap::new();
        let mut begun: BTreeMap<String, Option<u32>> = BTreeMap::new();
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            match *words.as_slice() {
                ["open", revision] => {
                    let revision: u64 = revision.parse().expect("a revision");
                    assert!(
                        revision >= self.revision,
                        "revisions only rise: {revision} after {}",
                        self.revision
                    );
                    self.revision = revision;
                }
                ["has", key, weight, revision] => {
                    assert!(revision.parse::<u64>().expect("a revision") <= self.revision);
                    found.insert(key.to_owned(), weight.parse().expect("a weight"));
                }
                ["ready"] => self.opened(&found),
                ["begin", key, weight] => {
                    let weight = weight.parse().ok();
                    self.possible.entry(key.to_owned()).or_insert_with(|| [None].into()).insert(weight);
                    begun.insert(key.to_owned(), weight);
                }
                ["done", key, revision, changed] => {
                    let weight = begun.remove(key).expect("begun before it is done");
                    self.possible.insert(key.to_owned(), [weight].into());
                    self.acknowledged += 1;
                    let revision: u64 = revision.parse().expect("a revision");
                    assert!(changed == "false" || revision > 0);
                    self.revision = self.revision.max(revision);
                }
                // What the harness of tests says, and a line that was cut.
                _ => {}
            }
        }
    }

    /// A process opened the file and has said everything that is there.
    fn opened(&mut self, found: &BTreeMap<String, u32>) {
        for key in found.keys() {
            assert!(self.possible.contains_key(key), "{key} was never written");
        }
        for (key, possible) in &mut self.possible {
            let weight = found.get(key).copied();
            assert!(possible.contains(&weight), "{key}: {weight:?} is there, and {possible:?} can be");
            *possible = [weight].into();
        }
    }
}

/// The process that is killed.
#[test]
#[ignore = "the other half of `nothing_acknowledged_is_lost`, which starts it"]
fn writes_until_it_is_killed() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let seed: u64 = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok()).expect("a seed");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let OpenStore { store, mut events } = RedbStore::open(Path::new(&directory)).expect("opened");
        let first = events.next().await.expect("events");
        for event in first {
            let StoreEvent::Reset { revision, records, .. } = event else { panic!("not Reset") };
            say(&format!("open {revision}"));
            for record in records {
                let Instance { key, weight, .. } = &*record.instance;
                say(&format!("has {} {weight} {}", key.id, record.revision));
            }
        }
        say("ready");
        let reader = tokio::spawn(async move { while events.next().await.is_some() {} });
        let store = Arc::new(store);
        let callers = (0..CALLERS).map(|caller| {
            let (store, random) = (Arc::clone(&store), Random(seed ^ (caller + 1)));
            tokio::spawn(call(store, caller, random))
        });
        for caller in callers.collect::<Vec<_>>() {
            caller.await.expect("a caller");
        }
        drop(store);
        reader.await.expect("the reader");
    });
}

/// Writes and removes its own keys, one after another.
async fn call(store: Arc<RedbStore>, caller: u64, mut random: Random) {
    for _ in 0..WRITES {
        let id = format!("{caller}-{}", random.below(KEYS));
        let weight = u32::try_from(1 + random.below(1_000_000)).expect("small");
        let is_removal = random.below(3) == 0;
        let (write, said) = match is_removal {
            true => (remove(key(&id)), "none".to_owned()),
            false => (put(Instance { weight, ..instance(&id) }), weight.to_string()),
        };
        say(&format!("begin {id} {said}"));
        let written = store.write(vec![write]).await.remove(0).expect("written");
        say(&format!("done {id} {} {}", written.revision, written.changed));
    }
}

/// One line, in one piece.
fn say(line: &str) {
    let mut output = std::io::stdout().lock();
    output.write_all(format!("{line}\n").as_bytes()).expect("somebody reads");
    output.flush().expect("somebody reads");
}
