//! The registrar on a store in memory, with the clock of the test.

use pilotfish_registration::testing::{MemoryStore, caller, checked_instance, instance, key};
use pilotfish_registration::{
    Caller, CheckResult, Deregister, Deregistered, Expected, Filter, Health, Instance, InstanceKey, Limits,
    Register, Registered, Registrar, RegistrarError, RegistrarSettings, RenewalError, ServiceKey,
    ServicesChanged, StoreEvent, WriteError,
};
use std::sync::Arc;
use std::time::Duration;

struct Running {
    registrar: Registrar,
    store: Arc<MemoryStore>,
}

async fn running(settings: RegistrarSettings) -> Running {
    let (store, events) = MemoryStore::open();
    let store = Arc::new(store);
    let (registrar, driver) = Registrar::new(Arc::clone(&store) as _, events, settings);
    tokio::spawn(driver.run());
    assert!(registrar.ready().await);
    Running { registrar, store }
}

impl Running {
    async fn register(&self, instance: Instance) -> Result<Registered, RegistrarError> {
        self.register_as(&caller("owner"), instance, Expected::Any).await
    }

    async fn register_as(
        &self,
        caller: &Caller,
        instance: Instance,
        expected: Expected,
    ) -> Result<Registered, RegistrarError> {
        self.registrar.register(caller, vec![Register { instance, expected }]).await.remove(0)
    }

    async fn deregister(&self, key: InstanceKey, drain: Option<u64>) -> Result<Deregistered, RegistrarError> {
        let drain = drain.map(Duration::from_secs);
        let request = Deregister { key, expected: Expected::Any, drain };
        self.registrar.deregister(&caller("owner"), vec![request]).await.remove(0)
    }

    fn health(&self, id: &str) -> Option<Health> {
        self.registrar.get(&key(id)).map(|view| view.health)
    }

    /// Waits until an instance has a health, or is gone.
    async fn until(&self, id: &str, health: Option<Health>) {
        let begin = tokio::time::Instant::now();
        while self.health(id) != health {
            assert!(
                begin.elapsed() < Duration::from_secs(600),
                "{id}: {:?}, not {health:?}",
                self.health(id)
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_registered_is_there_when_it_is_answered() {
    let running = running(RegistrarSettings::default()).await;
    let first = running.register(instance("a")).await.expect("registered");
    assert!(first.changed);
    assert_eq!(running.health("a"), Some(Health::Healthy));
    let again = running.register(instance("a")).await.expect("the same");
    assert_eq!(again, Registered { revision: first.revision, changed: false });
    let changed = running.register(Instance { weight: 2, ..instance("a") }).await.expect("changed");
    assert!(changed.revision > first.revision);
    let gone = running.deregister(key("a"), None).await.expect("gone");
    assert!(matches!(gone, Deregistered::Removed { revision } if revision > changed.revision));
    assert_eq!(running.health("a"), None);
    assert_eq!(running.deregister(key("a"), None).await, Ok(Deregistered::Absent));
    let stats = running.registrar.stats();
    assert_eq!((stats.registered, stats.registered_again, stats.deregistered), (2, 1, 2));
    assert_eq!((stats.counts.instances(), stats.counts.services, stats.counts.owners()), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn expectations_hold_and_trying_again_is_safe() {
    let running = running(RegistrarSettings::default()).await;
    let owner = caller("owner");
    let created = running.register_as(&owner, instance("a"), Expected::Absent).await.expect("created");
    let again =
        running.register_as(&owner, instance("a"), Expected::Absent).await.expect("the answer was lost");
    assert_eq!((again.revision, again.changed), (created.revision, false));
    let changed = Instance { weight: 2, ..instance("a") };
    let error =
        running.register_as(&owner, changed.clone(), Expected::Absent).await.expect_err("it is there");
    assert!(matches!(&error, RegistrarError::Conflict { current: Some(_) }), "{error}");
    let expected = Expected::Revision(created.revision);
    let second = running.register_as(&owner, changed.clone(), expected).await.expect("as expected");
    let error = running.register_as(&owner, instance("a"), expected).await.expect_err("it moved on");
    assert_eq!(error.to_string(), format!("it has revision {}", second.revision));
    let request = Deregister { key: key("a"), expected, drain: None };
    let answer = running.registrar.deregister(&owner, vec![request]).await.remove(0);
    assert!(matches!(answer, Err(RegistrarError::Conflict { .. })), "{answer:?}");
    // One batch, one instance twice: in their order.
    let register =
        |weight| Register { instance: Instance { weight, ..instance("b") }, expected: Expected::Any };
    let answers = running.registrar.register(&owner, vec![register(1), register(2)]).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(running.registrar.get(&key("b")).expect("there").record.instance.weight, 2);
}

#[tokio::test(start_paused = true)]
async fn only_its_owner_changes_an_instance() {
    let running = running(RegistrarSettings::default()).await;
    running.register(instance("a")).await.expect("registered");
    let (other, admin) = (caller("other"), Caller { identity: "admin".into(), may_take_over: true });
    let error = running.register_as(&other, Instance { weight: 2, ..instance("a") }, Expected::Any).await;
    assert_eq!(error, Err(RegistrarError::NotOwner("owner".into())));
    let renewal = running.registrar.renew(&other, vec![key("a")]).await;
    assert_eq!(renewal, [Err(RenewalError::NotOwner("owner".into()))]);
    let request = || Deregister { key: key("a"), expected: Expected::Any, drain: None };
    let answer = running.registrar.deregister(&other, vec![request()]).await;
    assert_eq!(answer, [Err(RegistrarError::NotOwner("owner".into()))]);
    assert_eq!(running.registrar.get(&key("a")).expect("there").record.instance.weight, 0);
    assert_eq!(running.registrar.renew(&admin, vec![key("a")]).await, [Ok(())]);
    assert!(matches!(
        running.registrar.deregister(&admin, vec![request()]).await[..],
        [Ok(Deregistered::Removed { .. })]
    ));
}

/// Two identities that register one new instance at the same moment: one of them has it.
#[tokio::test]
async fn nobody_takes_what_another_one_just_registered() {
    let running = Arc::new(running(RegistrarSettings::default()).await);
    for round in 0..50 {
        let tasks = ["one", "two"].map(|identity| {
            let running = Arc::clone(&running);
            tokio::spawn(async move {
                let instance = instance(&format!("i{round}"));
                running.register_as(&caller(identity), instance, Expected::Any).await.is_ok()
            })
        });
        let [one, two] = tasks;
        let (one, two) = (one.await.expect("asked"), two.await.expect("asked"));
        assert!(one != two, "{one} {two}");
    }
}

#[tokio::test(start_paused = true)]
async fn leases_lapse_and_instances_go() {
    let running = running(RegistrarSettings::default()).await;
    running.register(instance("a")).await.expect("registered");
    running.register(Instance { ttl: None, ..instance("free") }).await.expect("registered");
    let keys = vec![key("a"), key("free"), key("unknown")];
    let renewed = running.registrar.renew(&caller("owner"), keys).await;
    assert_eq!(renewed, [Ok(()), Ok(()), Err(RenewalError::NotFound)]);
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!(running.health("a"), Some(Health::Healthy));
    running.until("a", Some(Health::Lapsed)).await;
    assert_eq!(running.registrar.renew(&caller("owner"), vec![key("a")]).await, [Ok(())]);
    running.until("a", Some(Health::Healthy)).await;
    running.until("a", Some(Health::Lapsed)).await;
    let lapsed = tokio::time::Instant::now();
    running.until("a", None).await;
    assert!(lapsed.elapsed() > Duration::from_secs(19), "{:?}", lapsed.elapsed());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let stats = running.registrar.stats();
    assert_eq!((stats.lapsed, stats.expired), (2, 1));
    assert_eq!(running.health("free"), Some(Health::Healthy));
}

#[tokio::test(start_paused = true)]
async fn an_instance_drains_before_it_goes() {
    let running = running(RegistrarSettings::default()).await;
    let drain = Duration::from_secs(20);
    running.register(Instance { drain, ..instance("a") }).await.expect("registered");
    let answer = running.deregister(key("a"), None).await.expect("it drains");
    assert!(matches!(answer, Deregistered::Draining { drain: grace, .. } if grace == drain), "{answer:?}");
    assert_eq!(running.health("a"), Some(Health::Draining));
    assert_eq!(running.deregister(key("a"), None).await, Ok(answer), "asked again");
    assert_eq!(
        running.registrar.renew(&caller("owner"), vec![key("a")]).await,
        [Err(RenewalError::NotFound)]
    );
    tokio::time::sleep(Duration::from_secs(18)).await;
    assert_eq!(running.health("a"), Some(Health::Draining));
    running.until("a", None).await;
    // A request can shorten it, or end it.
    running.register(Instance { drain, ..instance("b") }).await.expect("registered");
    let answer = running.deregister(key("b"), Some(3)).await.expect("it drains");
    assert!(matches!(answer, Deregistered::Draining { drain, .. } if drain.as_secs() == 3), "{answer:?}");
    assert!(matches!(running.deregister(key("b"), Some(0)).await, Ok(Deregistered::Removed { .. })));
    // Registered again while it drains, it serves.
    running.register(Instance { drain, ..instance("c") }).await.expect("registered");
    running.deregister(key("c"), None).await.expect("it drains");
    running.register(Instance { drain, ttl: None, ..instance("c") }).await.expect("registered again");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(running.health("c"), Some(Health::Healthy));
}

#[tokio::test(start_paused = true)]
async fn most_leases_that_lapse_together_change_nothing() {
    let running = running(RegistrarSettings::default()).await;
    for id in 0..10 {
        running.register(instance(&format!("i{id}"))).await.expect("registered");
    }
    running.until("i0", Some(Health::Preserved)).await;
    assert_eq!(running.registrar.stats().preserving, [ServiceKey::new("default", "web")]);
    tokio::time::sleep(Duration::from_secs(300)).await;
    let all = running.registrar.service(&ServiceKey::new("default", "web"));
    assert!(
        all.len() == 10 && all.iter().all(|view| view.health == Health::Preserved && view.health.is_usable())
    );
    running.registrar.renew(&caller("owner"), (0..10).map(|id| key(&format!("i{id}"))).collect()).await;
    running.until("i9", Some(Health::Healthy)).await;
    assert_eq!(running.registrar.stats().preserving, []);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_lets_nobody_go() {
    let running = running(RegistrarSettings::default()).await;
    running.register(instance("a")).await.expect("registered");
    running.until("a", Some(Health::Lapsed)).await;
    running.store.tell(vec![StoreEvent::Disconnected("no route".to_owned())]).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(running.health("a"), Some(Health::Lapsed), "not removed");
    assert_eq!(running.registrar.stats().disconnected.as_deref(), Some("no route"));
    running.store.tell(vec![StoreEvent::Connected]).await;
    let begin = tokio::time::Instant::now();
    running.until("a", None).await;
    assert!(begin.elapsed() > Duration::from_secs(15), "the outage did not count: {:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn errors_of_the_store_come_through_and_removals_are_tried_again() {
    let running = running(RegistrarSettings::default()).await;
    running.register(instance("a")).await.expect("registered");
    running.store.set_trouble(Some(WriteError::Full("no space".to_owned())));
    let error = running.register(instance("b")).await;
    assert_eq!(error, Err(RegistrarError::Full("no space".to_owned())));
    running.until("a", Some(Health::Lapsed)).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(running.health("a"), Some(Health::Lapsed), "it cannot be removed");
    running.store.set_trouble(None);
    running.until("a", None).await;
}

/// Whatever is wrong with the store, and with or without a lease and a grace time.
#[tokio::test(start_paused = true)]
async fn deregistered_instance_loses_its_traffic_while_the_store_cannot_write() {
    for trouble in [WriteError::Full("no space".to_owned()), WriteError::Unavailable("no route".to_owned())] {
        for (ttl, drain) in [(Some(10), 0), (None, 0), (Some(10), 20), (None, 20)] {
            let running = running(RegistrarSettings::default()).await;
            let (ttl, drain) = (ttl.map(Duration::from_secs), Duration::from_secs(drain));
            let own = |id: &str| Instance { ttl, drain, ..instance(id) };
            for id in ["a", "b"] {
                running.register(own(id)).await.expect("registered");
            }
            running.store.set_trouble(Some(trouble.clone()));
            let error = running.deregister(key("a"), None).await.expect_err("it is not durable");
            let text = error.to_string();
            assert!(matches!(error, RegistrarError::Withdrawn(_)), "{text}");
            assert!(text.contains("gets no more requests") && text.contains(&trouble.to_string()), "{text}");
            assert_eq!(running.health("a"), Some(Health::Draining));
            assert_eq!(running.health("b"), Some(Health::Healthy));
            assert_eq!(running.registrar.stats().withdrawn, 1);
            let renewed = running.registrar.renew(&caller("owner"), vec![key("a"), key("b")]).await;
            assert_eq!(renewed, [Err(RenewalError::NotFound), Ok(())]);
            let again = running.register(own("a")).await;
            assert!(matches!(again, Err(RegistrarError::Unavailable(_))), "{again:?}");
            // The store tells everything anew, and it stays out of traffic.
            let (revision, records) = running.store.contents();
            running.store.tell(vec![StoreEvent::Reset { revision, records, lapsed: Vec::new() }]).await;
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert_eq!(running.health("a"), Some(Health::Draining));
            running.store.set_trouble(None);
            tokio::time::sleep(Duration::from_secs(3)).await;
            assert_eq!((running.health("a"), running.registrar.stats().withdrawn), (None, 0));
            assert!(running.register(own("a")).await.is_ok_and(|registered| registered.changed));
            assert_eq!(running.health("a"), Some(Health::Healthy));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_instance_keeps_its_traffic_until_the_store_records_a_removal_that_has_to_be() {
    let running = running(RegistrarSettings::default()).await;
    running.register(instance("a")).await.expect("registered");
    let remove = async || {
        let request = Deregister { key: key("a"), expected: Expected::Any, drain: None };
        running.registrar.deregister_recorded(&caller("owner"), vec![request]).await.remove(0)
    };
    running.store.set_trouble(Some(WriteError::Unavailable("no route".to_owned())));
    assert_eq!(remove().await, Err(RegistrarError::Unavailable("no route".to_owned())));
    assert_eq!((running.health("a"), running.registrar.stats().withdrawn), (Some(Health::Healthy), 0));
    running.store.set_trouble(None);
    assert!(matches!(remove().await, Ok(Deregistered::Removed { .. })));
    assert_eq!(running.health("a"), None);
}

#[tokio::test(start_paused = true)]
async fn bytes_of_an_owner_are_limited_and_released() {
    let sized = |id: &str, bytes: usize| Instance {
        metadata: [("k".into(), "x".repeat(bytes).into())].into(),
        ..instance(id)
    };
    let each = sized("a", 1_000).weight();
    let limits = Limits { owner_bytes: 3 * each, instance_bytes: 4 * each, ..Limits::default() };
    let running = running(RegistrarSettings { limits, ..RegistrarSettings::default() }).await;
    let register = async |owner: &str, id: &str, bytes: usize| {
        let answer = running.register_as(&caller(owner), sized(id, bytes), Expected::Any).await;
        answer.map(|registered| registered.changed)
    };
    for id in ["a", "b", "c"] {
        assert_eq!(register("one", id, 1_000).await, Ok(true));
    }
    let used = 3 * each;
    let error = RegistrarError::Bytes { limit: "owner-bytes", most: used, used, wanted: each };
    assert_eq!(register("one", "d", 1_000).await, Err(error));
    let error = RegistrarError::Bytes { limit: "owner-bytes", most: used, used, wanted: 1 };
    assert_eq!(register("one", "a", 1_001).await, Err(error), "growth counts");
    assert_eq!(register("one", "a", 1_000).await, Ok(false), "renewal takes nothing");
    assert_eq!(register("one", "a", 500).await, Ok(true));
    assert_eq!(register("one", "a", 1_000).await, Ok(true));
    assert_eq!(register("two", "d", 1_000).await, Ok(true));
    let error =
        RegistrarError::Bytes { limit: "instance-bytes", most: 4 * each, used: 4 * each, wanted: each };
    assert_eq!(register("two", "e", 1_000).await, Err(error));
    running.deregister(key("a"), None).await.expect_err("of another owner");
    let gone = Deregister { key: key("a"), expected: Expected::Any, drain: None };
    running.registrar.deregister(&caller("one"), vec![gone]).await.remove(0).expect("gone");
    assert_eq!(register("two", "e", 1_000).await, Ok(true));
    // What is in the store when it is opened counts.
    let (revision, records) = running.store.contents();
    let (store, events) = MemoryStore::open_with(revision, records);
    let (registrar, driver) =
        Registrar::new(Arc::new(store), events, RegistrarSettings { limits, ..RegistrarSettings::default() });
    let batch = || vec![Register { instance: sized("f", 1_000), expected: Expected::Any }];
    let early = registrar.register(&caller("one"), batch()).await.remove(0);
    assert!(matches!(early, Err(RegistrarError::Unavailable(_))), "{early:?}");
    tokio::spawn(driver.run());
    assert!(registrar.ready().await);
    let refused = registrar.register(&caller("one"), batch()).await.remove(0);
    assert!(matches!(refused, Err(RegistrarError::Bytes { limit: "instance-bytes", .. })), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn limits_are_exact() {
    let limits =
        Limits { instances: 4, service_instances: 3, owner_instances: 2, services: 2, ..Limits::default() };
    let running = running(RegistrarSettings { limits, ..RegistrarSettings::default() }).await;
    let of = |service: &str, id: &str| {
        let key = InstanceKey::new("default", service, id);
        Instance { key, ..instance(id) }
    };
    let register = async |owner: &str, service: &str, id: &str| {
        let answer = running.register_as(&caller(owner), of(service, id), Expected::Any).await;
        answer.map_err(|error| error.to_string())
    };
    // Of three in one batch, two fit.
    let batch = ["a", "b", "c"].map(|id| Register { instance: of("web", id), expected: Expected::Any });
    let answers = running.registrar.register(&caller("one"), batch.into()).await;
    let refused = RegistrarError::Limit { limit: "owner-instances", most: 2 };
    assert!(matches!(&answers[..], [Ok(_), Ok(_), Err(error)] if *error == refused), "{answers:?}");
    assert!(register("one", "web", "a").await.is_ok(), "what is there counts once");
    assert!(register("two", "web", "d").await.is_ok());
    assert_eq!(
        register("three", "web", "e").await,
        Err("limit service-instances: 3 are registered".to_owned())
    );
    assert!(register("three", "api", "a").await.is_ok());
    assert_eq!(register("four", "api", "b").await, Err("limit instances: 4 are registered".to_owned()));
    running
        .registrar
        .deregister(&caller("two"), vec![Deregister { key: key("d"), expected: Expected::Any, drain: None }])
        .await;
    assert_eq!(register("four", "new", "a").await, Err("limit services: 2 are registered".to_owned()));
    assert!(register("four", "api", "b").await.is_ok(), "room that was freed");
    let many = (0..1_001)
        .map(|id| Register { instance: instance(&id.to_string()), expected: Expected::Any })
        .collect();
    let answers = running.registrar.register(&caller("one"), many).await;
    assert!(answers.len() == 1_001 && answers.iter().all(|answer| *answer == Err(RegistrarError::TooMany)));
}

#[tokio::test(start_paused = true)]
async fn checks_count_for_what_was_checked() {
    let running = running(RegistrarSettings::default()).await;
    let first = running.register(checked_instance("a")).await.expect("registered");
    let result = |revision, has_failed| CheckResult { key: key("a"), revision, has_failed };
    running.registrar.report_checks([result(first.revision, true)]);
    assert_eq!(running.health("a"), Some(Health::CheckFailed));
    let second = running.register(Instance { weight: 2, ..checked_instance("a") }).await.expect("changed");
    assert_eq!(running.health("a"), Some(Health::CheckFailed), "what is checked did not change");
    running.registrar.report_checks([result(first.revision, false)]);
    assert_eq!(running.health("a"), Some(Health::CheckFailed), "a result of what was");
    running.registrar.report_checks([result(second.revision, false)]);
    assert_eq!(running.health("a"), Some(Health::Healthy));
    running.register(Instance { healthy: false, ..checked_instance("a") }).await.expect("changed");
    assert_eq!(running.health("a"), Some(Health::Reported));
    let free = running.register(instance("b")).await.expect("registered");
    running.registrar.report_checks([CheckResult {
        key: key("b"),
        revision: free.revision,
        has_failed: true,
    }]);
    assert_eq!(running.health("b"), Some(Health::Healthy), "it has no checks");
}

#[tokio::test(start_paused = true)]
async fn services_that_changed_are_named() {
    let (store, events) = MemoryStore::open();
    let (registrar, driver) = Registrar::new(Arc::new(store), events, RegistrarSettings::default());
    let mut changes = registrar.service_changes();
    let early = tokio::time::timeout(Duration::from_secs(1), changes.next()).await;
    assert!(early.is_err(), "nothing is known before the store was read: {early:?}");
    tokio::spawn(driver.run());
    assert_eq!(changes.next().await, ServicesChanged::All);
    let register = |service: &str, id: &str| {
        let key = InstanceKey::new("default", service, id);
        Register { instance: Instance { key, ..instance(id) }, expected: Expected::Any }
    };
    let batch = vec![register("web", "a"), register("api", "a"), register("web", "b")];
    registrar.register(&caller("owner"), batch).await;
    let names = ["api", "web"].map(|service| ServiceKey::new("default", service));
    assert_eq!(changes.next().await, ServicesChanged::Some(names.into()));
    let quiet = tokio::time::timeout(Duration::from_secs(5), changes.next()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    let mut late = registrar.service_changes();
    assert_eq!(late.next().await, ServicesChanged::All);
}

#[tokio::test(start_paused = true)]
async fn lists_come_in_pages() {
    let running = running(RegistrarSettings::default()).await;
    let all: Vec<InstanceKey> = ["api", "db", "web"]
        .iter()
        .flat_map(|service| (0..5).map(move |id| InstanceKey::new("default", *service, format!("i{id}"))))
        .chain((0..5).map(|id| InstanceKey::new("prod", "web", format!("i{id}"))))
        .collect();
    for key in &all {
        running.register(Instance { key: key.clone(), ..instance("x") }).await.expect("registered");
    }
    let filter = |namespace: Option<&str>, service: Option<&str>| Filter {
        namespace: namespace.map(Arc::from),
        service: service.map(Arc::from),
    };
    for filter in [
        filter(None, None),
        filter(Some("default"), None),
        filter(Some("prod"), Some("web")),
        filter(None, Some("web")),
    ] {
        let expected: Vec<&InstanceKey> = all.iter().filter(|key| filter.matches(key)).collect();
        for limit in [1, 2, 5, 7, 100] {
            let (mut found, mut after) = (Vec::new(), None);
            loop {
                let page = running.registrar.list(&filter, after.as_ref(), limit);
                assert!(page.instances.len() <= limit);
                found.extend(page.instances.into_iter().map(|view| view.record.instance.key.clone()));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{filter:?} by {limit}");
        }
    }
}

/// Who hears nobody for an hour because it does not run, expires nobody: neither a lease, nor what lapsed
/// before, nor a drain.
#[tokio::test(start_paused = true)]
async fn our_own_pause_takes_nobody_away() {
    let running = running(RegistrarSettings::default()).await;
    let drain = Duration::from_secs(20);
    running.register(Instance { drain, ..instance("draining") }).await.expect("registered");
    running.register(instance("lapsed")).await.expect("registered");
    running.until("lapsed", Some(Health::Lapsed)).await;
    running.deregister(key("draining"), None).await.expect("it drains");
    running.register(instance("a")).await.expect("registered");
    tokio::time::advance(Duration::from_secs(3_600)).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(running.health("a"), Some(Health::Healthy));
    assert_eq!(running.health("lapsed"), Some(Health::Lapsed));
    assert_eq!(running.health("draining"), Some(Health::Draining));
    running.until("draining", None).await;
    running.until("a", Some(Health::Lapsed)).await;
}
