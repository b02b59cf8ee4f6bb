//! Replicas that are killed in the middle of writes, and a checker of the history.

use crate::support::{Followed, leased, settings};
use pilotfish_registration::testing::{key, put, remove};
use pilotfish_registration::{Instance, Store, Write};
use pilotfish_registration_etcd::EtcdStore;
use pilotfish_runtime::Jitter;
use pilotfish_testkit::real::Etcd;
use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

/// How often a replica is killed.
const KILLS: usize = 200;
/// How many instances a replica writes.
const INSTANCES: u32 = 8;
const ADDRESS: &str = "PILOTFISH_TEST_ETCD";
const NAME: &str = "PILOTFISH_TEST_REPLICA";

/// What is known of one instance from what its writer was told.
#[derive(Debug, Default)]
struct Known {
    /// What was acknowledged last: its weight, or `None` for removed, and the revision.
    acknowledged: (Option<u32>, u64),
    /// What was begun and not acknowledged.
    pending: Option<Option<u32>>,
}

/// A replica that is a process of its own: it writes without end, and prints what it begins and what was
/// acknowledged. Not a test: it does nothing unless it is started as one.
#[tokio::test]
async fn replica() {
    let (Ok(address), Ok(name)) = (std::env::var(ADDRESS), std::env::var(NAME)) else { return };
    let (store, mut events) = EtcdStore::open(settings(&address));
    let store = std::sync::Arc::new(store);
    events.next().await.unwrap();
    tokio::spawn(async move { while events.next().await.is_some() {} });
    let writers = (0..INSTANCES).map(|n| {
        let (store, id) = (store.clone(), format!("{name}-{n}"));
        tokio::spawn(async move {
            let mut jitter = Jitter::default().fork(&id);
            loop {
                let weight = (jitter.bits() % 1_000 + 1) as u32;
                let is_removal = jitter.bits().is_multiple_of(4);
                let (shown, write) = match is_removal {
                    true => (0, remove(key(&id))),
                    false => (weight, put(Instance { weight, ..leased(&id, 600) })),
                };
                println!("begin {id} {shown}");
                if let Ok(written) = store.write(vec![write]).await.pop().unwrap() {
                    println!("done {id} {shown} {} {}", written.revision, written.changed);
                }
            }
        })
    });
    futures::future::join_all(writers).await;
}

fn start(address: &str, name: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::replica", "--nocapture"])
        .env(ADDRESS, address)
        .env(NAME, name)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

/// Reads so many lines of a replica, kills it with SIGKILL, and reads the rest.
async fn run_and_kill(mut child: Child, life: u64, known: &mut BTreeMap<String, Known>) -> usize {
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (mut told, mut is_killed, mut acknowledged) = (0, false, 0);
    loop {
        let line = timeout(crate::support::LIMIT, lines.next_line()).await;
        let Some(line) = line.expect("the replica tells something").unwrap() else { break };
        // The first line may stand behind what the harness prints; the last one may be cut off.
        let line = line.find("begin ").or_else(|| line.find("done ")).map_or("", |at| &line[at..]);
        told += u64::from(!line.is_empty());
        if told > life && !is_killed {
            child.start_kill().unwrap();
            is_killed = true;
        }
        let words: Vec<&str> = line.split(' ').collect();
        let value = |text: &str| text.parse().ok().filter(|weight| *weight > 0);
        match words[..] {
            ["begin", id, weight] => known.entry(id.to_owned()).or_default().pending = Some(value(weight)),
            ["done", id, weight, revision, _] => {
                let (entry, revision) = (known.get_mut(id).unwrap(), revision.parse().unwrap());
                assert!(
                    revision >= entry.acknowledged.1,
                    "{id}: revision {revision} after {:?}",
                    entry.acknowledged
                );
                entry.acknowledged = (value(weight), revision);
                entry.pending = None;
                acknowledged += 1;
            }
            _ => {}
        }
    }
    assert!(is_killed, "the replica ended by itself");
    child.wait().await.unwrap();
    acknowledged
}

/// What was acknowledged is there, what was removed is not; only what was under way may be either.
fn check(known: &BTreeMap<String, Known>, followed: &Followed) -> Result<(), String> {
    let told = followed.told();
    for (id, known) in known {
        let record = told.records.get(&key(id));
        let there = record.map(|record| record.instance.weight);
        let (wanted, revision) = known.acknowledged;
        if there != wanted && known.pending != Some(there) {
            return Err(format!("{id} is {there:?}, and not as in {known:?}"));
        }
        if there == wanted
            && known.pending.is_none()
            && record.is_some_and(|record| record.revision != revision)
        {
            return Err(format!("{id} has another revision than {known:?}"));
        }
    }
    Ok(())
}

/// Two replicas write, one of them is killed at a random point, again and again; a third one follows all the
/// time.
#[tokio::test]
async fn kills_lose_nothing_that_was_acknowledged() {
    let Some(etcd) = Etcd::start().await else { return };
    let address = format!("http://127.0.0.1:{}", etcd.port(0));
    let follower = Followed::open(&address).await;
    let mut jitter = Jitter::default();
    let mut known: BTreeMap<String, Known> = BTreeMap::new();
    let mut acknowledged = 0;
    for round in 0..KILLS / 2 {
        // Lines and not time, which a busy machine needs for the start alone.
        let lives = [(); 2].map(|()| jitter.bits() % 80);
        let (mut first, mut second) = (BTreeMap::new(), BTreeMap::new());
        // Names of this round, so that each instance has one writer.
        let names = [format!("a{}", round % 3), format!("b{}", round % 3)];
        for (id, known) in std::mem::take(&mut known) {
            let of_first = id.starts_with(&names[0]);
            let side = if of_first { &mut first } else { &mut second };
            side.insert(id, known);
        }
        let (of_first, of_second) = tokio::join!(
            run_and_kill(start(&address, &names[0]), lives[0], &mut first),
            run_and_kill(start(&address, &names[1]), lives[1], &mut second)
        );
        acknowledged += of_first + of_second;
        known.append(&mut first);
        known.append(&mut second);
        // What was under way may come to the watch a moment later.
        let fresh = Followed::open(&address).await;
        let end = Instant::now() + crate::support::LIMIT;
        while let Err(why) = check(&known, &follower).and_then(|()| check(&known, &fresh)) {
            assert!(Instant::now() < end, "{why}");
            sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(fresh.told().records, follower.told().records);
        // From here on, what is there counts.
        for (id, known) in &mut known {
            let record = fresh.told().records.get(&key(id)).cloned();
            let revision = record.as_ref().map_or(known.acknowledged.1, |record| record.revision);
            // What etcd has received and not done yet may come still.
            known.acknowledged = (record.map(|record| record.instance.weight), revision);
        }
    }
    assert!(acknowledged > KILLS * 10, "{acknowledged} acknowledged");
    eprintln!("{KILLS} kills, {acknowledged} writes acknowledged");
    let all = follower.told().records.into_keys().map(|key| Write { ..remove(key) }).collect();
    follower.store.write(all).await;
}
