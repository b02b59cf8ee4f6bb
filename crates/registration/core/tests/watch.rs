//! Watches: what there is, what changes, and going on where another one ended.

#![allow(clippy::panic, reason = "what fails is a test")]

use pilotfish_registration::testing::{MemoryStore, caller, checked_instance, instance, key};
use pilotfish_registration::{
    CheckResult, Deregister, Expected, Filter, Health, Instance, InstanceKey, InstanceView, Limits, Register,
    Registrar, RegistrarSettings, StoreEvent, Watch, WatchBatch, WatchError, WatchFrom,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

type View = BTreeMap<InstanceKey, InstanceView>;

struct Running {
    registrar: Registrar,
    store: Arc<MemoryStore>,
}

async fn running(limits: Limits) -> Running {
    let (store, events) = MemoryStore::open();
    let store = Arc::new(store);
    let settings = RegistrarSettings { limits, ..RegistrarSettings::default() };
    let (registrar, driver) = Registrar::new(Arc::clone(&store) as _, events, settings);
    tokio::spawn(driver.run());
    assert!(registrar.ready().await);
    Running { registrar, store }
}

impl Running {
    async fn put(&self, id: &str, weight: u32) -> u64 {
        let instance = Instance { weight, ..checked_instance(id) };
        self.put_all(vec![instance]).await
    }

    async fn put_all(&self, instances: Vec<Instance>) -> u64 {
        let register = |instance| Register { instance, expected: Expected::Any };
        let batch = instances.into_iter().map(register).collect();
        let answers = self.registrar.register(&caller("owner"), batch).await;
        answers.into_iter().map(|answer| answer.expect("registered").revision).max().unwrap_or_default()
    }

    async fn remove(&self, id: &str) {
        let request = Deregister { key: key(id), expected: Expected::Any, drain: None };
        self.registrar.deregister(&caller("owner"), vec![request]).await.remove(0).expect("deregistered");
    }

    fn check(&self, id: &str, has_failed: bool) {
        let Some(view) = self.registrar.get(&key(id)) else { return };
        let result = CheckResult { key: key(id), revision: view.record.revision, has_failed };
        self.registrar.report_checks([result]);
    }

    fn watch(&self, from: WatchFrom) -> Result<Watch, WatchError> {
        self.registrar.watch(&caller("watcher"), Filter::default(), from)
    }

    fn view(&self) -> View {
        let all = self.registrar.list(&Filter::default(), None, 1_000).instances;
        all.into_iter().map(|view| (view.record.instance.key.clone(), view)).collect()
    }
}

/// What can differ, in a few words.
fn short(view: &View) -> Vec<(&str, u64, Health)> {
    view.iter().map(|(key, view)| (&*key.id, view.record.revision, view.health)).collect()
}

/// Takes what is there, until nothing more comes. Returns the last revision and epoch.
async fn follow(watch: &mut Watch, view: &mut View) -> Result<(u64, Option<u64>), WatchError> {
    let mut last = (0, None);
    let mut is_first = true;
    while let Ok(batch) = tokio::time::timeout(Duration::from_millis(10), watch.next()).await {
        let WatchBatch { revision, epoch, is_snapshot, events, .. } = batch?;
        if is_snapshot && is_first {
            view.clear();
        }
        is_first = false;
        assert!(revision >= last.0, "revisions of batches never fall");
        last = (revision, Some(epoch));
        for event in events {
            match event.instance {
                Some(instance) => drop(view.insert(event.key, instance)),
                None => drop(view.remove(&event.key)),
            }
        }
    }
    Ok(last)
}

#[tokio::test(start_paused = true)]
async fn a_watch_has_everything_and_then_changes() {
    let running = running(Limits::default()).await;
    running.put("a", 1).await;
    let mut watch = running.watch(WatchFrom::Snapshot).expect("a watch");
    let first = watch.next().await.expect("a snapshot");
    assert!(first.is_snapshot && !first.is_partial && first.events.len() == 1, "{first:?}");
    let revision = running.put("b", 1).await;
    let batch = watch.next().await.expect("a change");
    assert_eq!((batch.revision, batch.is_snapshot, batch.events.len()), (revision, false, 1));
    assert_eq!(batch.events[0].instance, running.registrar.get(&key("b")));
    running.remove("a").await;
    let batch = watch.next().await.expect("a change");
    assert_eq!((&batch.events[0].key, &batch.events[0].instance), (&key("a"), &None));
    running.check("b", true);
    let batch = watch.next().await.expect("a change of health");
    let health = batch.events[0].instance.as_ref().map(|view| view.health);
    assert_eq!((batch.revision, health), (revision + 1, Some(Health::CheckFailed)));
    let quiet = tokio::time::timeout(Duration::from_secs(60), watch.next()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    assert_eq!(running.registrar.stats().watches, 1);
    drop(watch);
    assert_eq!(running.registrar.stats().watches, 0);
}

#[tokio::test(start_paused = true)]
async fn a_large_snapshot_comes_in_parts() {
    let running = running(Limits::default()).await;
    for part in 0..3 {
        running
            .put_all((0..900).map(|id| Instance { ttl: None, ..instance(&format!("{part}-{id}")) }).collect())
            .await;
    }
    let mut watch = running.watch(WatchFrom::Snapshot).expect("a watch");
    // What happens meanwhile comes after it.
    let late = running.put("late", 1).await;
    let mut sizes = Vec::new();
    loop {
        let batch = watch.next().await.expect("a part");
        assert!(batch.is_snapshot && batch.revision < late);
        sizes.push(batch.events.len());
        if !batch.is_partial {
            break;
        }
    }
    assert_eq!((sizes.iter().sum::<usize>(), sizes.len()), (2_700, 3));
    assert_eq!(watch.next().await.expect("a change").events[0].key, key("late"));
}

#[tokio::test(start_paused = true)]
async fn a_watch_hears_what_it_asked_for_only() {
    let running = running(Limits { history_events: 10, ..Limits::default() }).await;
    let filter = |namespace: Option<&str>, service: Option<&str>| Filter {
        namespace: namespace.map(Arc::from),
        service: service.map(Arc::from),
    };
    let filters = [
        (filter(Some("default"), Some("web")), true),
        (filter(Some("default"), None), true),
        (filter(None, Some("web")), true),
        (filter(Some("default"), Some("api")), false),
        (filter(Some("prod"), None), false),
        (filter(None, Some("api")), false),
    ];
    let mut watches = Vec::new();
    for (filter, is_told) in filters {
        let mut watch =
            running.registrar.watch(&caller("watcher"), filter, WatchFrom::Snapshot).expect("a watch");
        assert!(watch.next().await.expect("a snapshot").events.is_empty());
        watches.push((watch, is_told));
    }
    running.put("a", 1).await;
    for (watch, is_told) in &mut watches {
        let told = tokio::time::timeout(Duration::from_millis(10), watch.next()).await;
        assert_eq!(told.is_ok(), *is_told);
    }
    // A quiet watch does not fall behind while others are busy: more than the history has.
    for weight in 0..50 {
        running.put("a", weight).await;
    }
    let quiet = InstanceKey::new("prod", "api", "x");
    running.put_all(vec![Instance { key: quiet.clone(), ttl: None, ..instance("x") }]).await;
    for (watch, is_told) in &mut watches[3..] {
        let told = tokio::time::timeout(Duration::from_millis(10), watch.next()).await;
        assert!(!*is_told);
        if let Ok(told) = told {
            assert_eq!(told.expect("not too slow").events[0].key, quiet);
        }
    }
    // The slow ones are told that they are.
    assert!(matches!(watches[0].0.next().await, Err(WatchError::OutOfRange { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_watch_goes_on_from_a_revision() {
    let running = running(Limits { history_events: 20, ..Limits::default() }).await;
    let listed = running.registrar.list(&Filter::default(), None, 10).revision;
    let mut view = View::new();
    running.put("a", 1).await;
    // Without an epoch, from a list of the empty store.
    let mut watch = running.watch(WatchFrom::After { revision: listed, epoch: None }).expect("a watch");
    let (revision, epoch) = follow(&mut watch, &mut view).await.expect("changes");
    assert_eq!(view, running.view());
    drop(watch);
    running.put("b", 1).await;
    running.check("a", true);
    let mut watch = running.watch(WatchFrom::After { revision, epoch }).expect("a watch");
    let batch = watch.next().await.expect("what was missed");
    assert_eq!(batch.events.len(), 2, "and nothing else: {batch:?}");
    drop(watch);
    // Nothing happened: nothing is told, and a bookmark is there.
    let (revision, epoch) = (batch.revision, Some(batch.epoch));
    let mut watch = running.watch(WatchFrom::After { revision, epoch }).expect("a watch");
    drop(watch.next().await.expect("the change of health again"));
    assert_eq!(watch.bookmark().map(|batch| batch.revision), Some(revision));
    for weight in 0..50 {
        running.put("c", weight).await;
    }
    assert!(watch.bookmark().is_none(), "there is something to take");
    let oldest = match running.watch(WatchFrom::After { revision, epoch }) {
        Err(WatchError::OutOfRange { oldest }) => oldest,
        other => panic!("{:?}", other.err()),
    };
    assert!(oldest > revision);
    assert!(running.watch(WatchFrom::After { revision: oldest, epoch }).is_ok());
    assert!(running.watch(WatchFrom::After { revision: oldest - 1, epoch }).is_err());
}

#[tokio::test(start_paused = true)]
async fn watches_are_limited_and_end_with_the_store() {
    let (store, events) = MemoryStore::open();
    let limits = Limits { watches: 3, owner_watches: 2, ..Limits::default() };
    let settings = RegistrarSettings { limits, ..RegistrarSettings::default() };
    let (registrar, driver) = Registrar::new(Arc::new(store), events, settings);
    let watch = |identity: &str| registrar.watch(&caller(identity), Filter::default(), WatchFrom::Snapshot);
    assert!(matches!(watch("one"), Err(WatchError::NotReady)));
    let driver = tokio::spawn(driver.run());
    assert!(registrar.ready().await);
    let (mut first, _second) = (watch("one").expect("a watch"), watch("one").expect("a watch"));
    assert!(matches!(watch("one"), Err(WatchError::Limit { limit: "owner-watches", most: 2 })));
    let third = watch("two").expect("a watch");
    assert!(matches!(watch("three"), Err(WatchError::Limit { limit: "watches", most: 3 })));
    drop(third);
    assert!(watch("three").is_ok());
    first.next().await.expect("a snapshot");
    let waiting = tokio::spawn(async move { first.next().await });
    tokio::task::yield_now().await;
    driver.abort();
    assert_eq!(waiting.await.expect("ended"), Err(WatchError::Closed));
}

#[tokio::test(start_paused = true)]
async fn what_was_missed_of_a_store_is_told_as_changes() {
    let running = running(Limits::default()).await;
    for id in ["a", "b", "c"] {
        running.put(id, 1).await;
    }
    let mut watch = running.watch(WatchFrom::Snapshot).expect("a watch");
    let mut view = View::new();
    let (revision, epoch) = follow(&mut watch, &mut view).await.expect("a snapshot");
    // The store was away: b was removed, c changed, d is new.
    let mut records: BTreeMap<InstanceKey, _> =
        view.iter().map(|(key, view)| (key.clone(), Arc::clone(&view.record))).collect();
    records.remove(&key("b"));
    let changed = |id: &str, revision| {
        let instance = Arc::new(Instance { weight: 9, ttl: None, ..instance(id) });
        let (owner, created) = ("owner".into(), revision);
        Arc::new(pilotfish_registration::Record {
            instance,
            owner,
            revision,
            created,
            state: Default::default(),
        })
    };
    records.insert(key("c"), changed("c", revision + 2));
    records.insert(key("d"), changed("d", revision + 3));
    let records: Vec<_> = records.into_values().collect();
    running.store.tell(vec![StoreEvent::Reset { revision: revision + 4, records, lapsed: Vec::new() }]).await;
    let batch = watch.next().await.expect("what differs");
    let told: Vec<(u64, &str, bool)> =
        batch.events.iter().map(|event| (event.revision, &*event.key.id, event.instance.is_some())).collect();
    assert_eq!(told, [(revision + 2, "c", true), (revision + 3, "d", true), (revision + 4, "b", false)]);
    let mut late = running.watch(WatchFrom::After { revision, epoch }).expect("in the history");
    follow(&mut late, &mut view).await.expect("changes");
    assert_eq!(view, running.view());
}

/// The store is replaced or restored, with Pilotfish or below it.
#[tokio::test(start_paused = true)]
async fn watch_of_another_life_of_the_store_starts_again() {
    let running = running(Limits::default()).await;
    let revision = running.put("a", 1).await;
    let mut open = running.watch(WatchFrom::Snapshot).expect("a watch");
    let epoch = Some(open.next().await.expect("a snapshot").epoch);
    assert_eq!(epoch, Some(running.registrar.epoch()));
    let from = |revision, epoch| running.watch(WatchFrom::After { revision, epoch });
    for (revision, epoch) in
        [(revision + 1, epoch), (revision + 1, None), (u64::MAX, epoch), (revision, Some(7)), (0, Some(7))]
    {
        let error = from(revision, epoch).err();
        assert_eq!(error, Some(WatchError::OtherEpoch { newest: 1 }), "from {revision}, epoch {epoch:?}");
    }
    assert!(from(revision, epoch).is_ok() && from(revision, None).is_ok());
    // More was written since than what is there now.
    let (old, records) = running.store.contents();
    running.put("b", 1).await;
    let revision = running.put("a", 2).await;
    let mut late = from(revision, epoch).expect("a watch");
    running.store.tell(vec![StoreEvent::Reset { revision: old, records, lapsed: Vec::new() }]).await;
    for watch in [&mut open, &mut late] {
        let end = loop {
            if let Err(end) = watch.next().await {
                break end;
            }
        };
        assert!(matches!(end, WatchError::OutOfRange { .. }), "{end:?}");
    }
    assert_ne!(Some(running.registrar.epoch()), epoch);
    for revision in [old, revision] {
        assert!(matches!(from(revision, epoch), Err(WatchError::OtherEpoch { .. })), "{revision}");
    }
    let mut view = View::new();
    let mut again = running.watch(WatchFrom::Snapshot).expect("a watch");
    follow(&mut again, &mut view).await.expect("a snapshot");
    assert_eq!(view, running.view());
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u32),
    Remove(u8),
    Check(u8, bool),
    /// Takes what is there.
    Follow,
    /// Ends the watch, and goes on with another one from its last revision, with its epoch or without.
    Resume(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..6u8, 0..4u32).prop_map(|(id, weight)| Step::Put(id, weight)),
        2 => (0..6u8).prop_map(Step::Remove),
        2 => (0..6u8, any::<bool>()).prop_map(|(id, failed)| Step::Check(id, failed)),
        1 => Just(Step::Follow),
        1 => any::<bool>().prop_map(Step::Resume),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Whoever follows, and goes on wherever he stopped, sees what there is; and what there is, is what the
    /// store has.
    #[test]
    fn who_follows_sees_what_there_is(steps in proptest::collection::vec(step(), 1..60), history in 2..40usize) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
        runtime.block_on(async {
            let running = running(Limits { history_events: history, ..Limits::default() }).await;
            let mut view = View::new();
            let mut watch = running.watch(WatchFrom::Snapshot).expect("a watch");
            let (mut revision, mut epoch) = follow(&mut watch, &mut view).await.expect("a snapshot");
            let steps = steps.into_iter().chain([Step::Follow, Step::Resume(true), Step::Follow]);
            for step in steps {
                match step {
                    Step::Put(id, weight) => drop(running.put(&id.to_string(), weight).await),
                    Step::Remove(id) => running.remove(&id.to_string()).await,
                    Step::Check(id, failed) => running.check(&id.to_string(), failed),
                    Step::Follow => match follow(&mut watch, &mut view).await {
                        Ok((last, of)) => {
                            revision = revision.max(last);
                            epoch = of.or(epoch);
                            assert_eq!(short(&view), short(&running.view()));
                        }
                        Err(WatchError::OutOfRange { .. }) => {
                            watch = running.watch(WatchFrom::Snapshot).expect("a watch");
                            (revision, epoch) = follow(&mut watch, &mut view).await.expect("a snapshot");
                            assert_eq!(short(&view), short(&running.view()));
                        }
                        Err(error) => panic!("{error}"),
                    },
                    Step::Resume(with_epoch) => {
                        let from = WatchFrom::After { revision, epoch: epoch.filter(|_| with_epoch) };
                        watch = match running.watch(from) {
                            Ok(watch) => watch,
                            Err(WatchError::OutOfRange { .. }) => {
                                running.watch(WatchFrom::Snapshot).expect("a watch")
                            }
                            Err(error) => panic!("{error}"),
                        };
                    }
                }
            }
            let (_, records) = running.store.contents();
            let stored: Vec<_> = records.iter().map(|record| (record.instance.key.clone(), Arc::clone(record))).collect();
            let seen: Vec<_> = running.view().into_iter().map(|(key, view)| (key, view.record)).collect();
            assert_eq!(seen, stored);
        });
    }
}
