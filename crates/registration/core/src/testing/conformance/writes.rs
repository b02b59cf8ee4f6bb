//! Writes and their events.

use super::probe::{Probe, instance};
use crate::testing::{put, remove};
use crate::{
    Expected, Instance, InstanceKey, RecordState, RegistrationCheck, RegistrationCheckKind, RegistrationPort,
    Value, Write, WriteError, Written,
};
use std::sync::Arc;
use std::time::Duration;

pub(super) async fn create_change_remove(probe: &mut Probe) {
    let created = probe.put(instance("life", "a")).await;
    assert_eq!(created.created, created.revision);
    assert_eq!((&*created.owner, created.state), ("owner", RecordState::Serving));
    let changed = probe.put(Instance { weight: 7, ..instance("life", "a") }).await;
    assert!(changed.revision > created.revision, "revisions only rise");
    assert_eq!((changed.created, changed.instance.weight), (created.created, 7));
    let key = created.instance.key.clone();
    let removed = probe.write(remove(key.clone())).await.expect("removed");
    assert!(removed.changed && removed.revision > changed.revision);
    assert!(!probe.records.contains_key(&key));
    let again = probe.put(instance("life", "a")).await;
    assert!(again.created > removed.revision, "registered again, it is a new one");
}

pub(super) async fn expectations(probe: &mut Probe) {
    let record = probe.put(instance("expectations", "there")).await;
    let (there, revision) = (record.instance.key.clone(), record.revision);
    let absent = InstanceKey { id: "absent".into(), ..there.clone() };
    let conflicts = [
        (&there, Expected::Absent),
        (&there, Expected::Revision(revision - 1)),
        (&there, Expected::Revision(revision + 1)),
        (&absent, Expected::Revision(revision)),
    ];
    for (key, expected) in conflicts {
        for is_removal in [false, true] {
            let value = (!is_removal).then(|| value(Instance { weight: 99, ..named(key) }));
            let answer = probe.write(Write { key: key.clone(), expected, value }).await;
            let current = probe.records.get(key).cloned();
            assert_eq!(answer, Err(WriteError::Conflict { current }), "{key}, {expected:?}");
        }
    }
    assert_eq!(probe.record(&there), &record, "nothing was changed");
    let created = Write { expected: Expected::Absent, ..put(named(&absent)) };
    assert!(probe.write(created).await.is_ok_and(|written| written.changed));
    let changed = Instance { weight: 3, ..named(&there) };
    let changed = Write { expected: Expected::Revision(revision), ..put(changed) };
    let written = probe.write(changed).await.expect("as expected");
    let removed = Write { expected: Expected::Revision(written.revision), ..remove(there) };
    assert!(probe.write(removed).await.is_ok_and(|written| written.changed));
}

pub(super) async fn what_is_there_already_is_no_write(probe: &mut Probe) {
    let record = probe.put(instance("same", "a")).await;
    let changes = probe.changes;
    let unchanged = Ok(Written { revision: record.revision, changed: false });
    assert_eq!(probe.write(put(instance("same", "a"))).await, unchanged);
    let absent = remove(instance("same", "absent").key);
    let answer = probe.write(absent.clone()).await.expect("there is nothing to remove");
    assert!(!answer.changed);
    let answer = probe.write(Write { expected: Expected::Absent, ..absent }).await.expect("as expected");
    assert!(!answer.changed);
    probe.is_quiet().await;
    assert_eq!(probe.changes, changes);
    // Owner and state count for equality.
    let mut draining = put(instance("same", "a"));
    draining.value = Some(Value { state: RecordState::Draining, ..value(instance("same", "a")) });
    assert!(probe.write(draining.clone()).await.is_ok_and(|written| written.changed));
    assert_eq!(probe.record(&draining.key).state, RecordState::Draining);
    draining.value = Some(Value { owner: "another".into(), ..value(instance("same", "a")) });
    assert!(probe.write(draining.clone()).await.is_ok_and(|written| written.changed));
    assert_eq!(&*probe.record(&draining.key).owner, "another");
}

pub(super) async fn a_batch(probe: &mut Probe) {
    assert_eq!(probe.store.write(Vec::new()).await, []);
    let weighted = |id: &str, weight| put(Instance { weight, ..instance("batch", id) });
    let writes = vec![
        weighted("a", 1),
        Write { expected: Expected::Revision(1), ..weighted("b", 1) },
        weighted("a", 2),
        weighted("c", 1),
        remove(instance("batch", "c").key),
        Write { expected: Expected::Absent, ..weighted("a", 3) },
    ];
    let answers = probe.write_all(writes).await;
    let good: Vec<bool> = answers.iter().map(Result::is_ok).collect();
    assert_eq!(good, [true, false, true, true, true, false], "each by itself: {answers:?}");
    assert_eq!(probe.record(&instance("batch", "a").key).instance.weight, 2, "in their order");
    assert!(!probe.records.contains_key(&instance("batch", "c").key));
    let many = (0..500).map(|id| weighted(&format!("many-{id}"), id)).collect();
    let answers = probe.write_all(many).await;
    assert!(answers.iter().all(Result::is_ok));
    for id in 0..500 {
        let key = instance("batch", &format!("many-{id}")).key;
        assert_eq!(probe.record(&key).instance.weight, id);
    }
    let answers =
        probe.write_all((0..500).map(|id| remove(instance("batch", &format!("many-{id}")).key)).collect());
    assert!(answers.await.iter().flatten().filter(|written| written.changed).count() == 500);
}

pub(super) async fn every_field_comes_back(probe: &mut Probe) {
    let text = |text: &str| text.to_owned();
    let check = |kind| RegistrationCheck { kind: Some(kind), ..RegistrationCheck::default() };
    let mut registration = crate::Registration::new("conformance", "api.example.com", "Pod-1.2_3:4@5+6~7");
    registration.addresses = vec![text("2001:db8::1"), text("10.1.2.3")];
    registration.ports = vec![
        RegistrationPort { number: 65535, service_port: 1, name: text("grpc"), protocol: text("grpc") },
        RegistrationPort { number: 1, service_port: 65535, ..RegistrationPort::default() },
    ];
    registration.labels = [(text("example.com/tier"), text("")), (text("version"), text("v1"))].into();
    registration.metadata =
        [(text("note"), text("grüße, \"世界\" 🦀")), (text("long"), "x".repeat(8_000))].into();
    registration.locality = text("eu-west/eu-west-1/rack 7");
    (registration.network, registration.service_account) = (text("net-1"), text("api"));
    (registration.weight, registration.healthy) = (1_000_000, false);
    registration.ttl = Some(Duration::from_millis(86_399_999));
    registration.drain = Duration::from_millis(1_500);
    registration.remove_after = Some(Duration::from_secs(60));
    registration.checks = vec![
        RegistrationCheck {
            port: 65535,
            interval: Duration::from_millis(1_250),
            timeout: Duration::from_millis(750),
            healthy_threshold: 2,
            unhealthy_threshold: 100,
            ..check(RegistrationCheckKind::Http {
                path: text("/healthz?full=1"),
                host: text("api.example.com"),
            })
        },
        check(RegistrationCheckKind::Tcp),
        check(RegistrationCheckKind::Grpc { service: text("acme.Api") }),
    ];
    let instance = registration.validate(crate::testing::DOMAIN).expect("a good registration");
    assert_eq!(*probe.put(instance.clone()).await.instance, instance);
    let answer = probe.write(put(instance)).await.expect("there already");
    assert!(!answer.changed, "what comes back is what was written");
}

/// Eight concurrent clients increment one number; every success counts.
pub(super) async fn nobody_overwrites_what_he_did_not_see(probe: &mut Probe) {
    const CLIENTS: usize = 8;
    const EACH: usize = 20;
    let start = probe.put(instance("counter", "a")).await;
    let clients = (0..CLIENTS).map(|client| {
        let (store, mut seen) = (Arc::clone(&probe.store), Arc::clone(&start));
        tokio::spawn(async move {
            let mut successes = 0;
            while successes < EACH {
                // Distinct values: an identical write would be a success.
                let (weight, network) = (seen.instance.weight + 1, format!("client-{client}").into());
                let next = Instance { weight, network, ..Instance::clone(&seen.instance) };
                let write = Write { expected: Expected::Revision(seen.revision), ..put(next.clone()) };
                match store.write(vec![write]).await.remove(0) {
                    Ok(written) => {
                        let record = crate::Record::clone(&seen);
                        let (instance, revision) = (Arc::new(next), written.revision);
                        seen = Arc::new(crate::Record { instance, revision, ..record });
                        successes += 1;
                    }
                    Err(WriteError::Conflict { current: Some(current) }) => {
                        assert!(current.revision > seen.revision, "a conflict with what was seen");
                        seen = current;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        })
    });
    let clients: Vec<_> = clients.collect();
    let all = u32::try_from(CLIENTS * EACH).expect("few");
    let key = start.instance.key.clone();
    probe.until("all counts", |probe| probe.record(&key).instance.weight == all).await;
    for client in clients {
        client.await.expect("a client that counts");
    }
    probe.is_quiet().await;
}

pub(super) async fn a_write_that_nobody_waits_for(probe: &mut Probe) {
    let write = put(instance("dropped", "a"));
    let key = write.key.clone();
    let store = Arc::clone(&probe.store);
    let task = tokio::spawn(async move { store.write(vec![write]).await });
    tokio::task::yield_now().await;
    task.abort();
    // The write may have happened or not; the store stays usable and consistent.
    let _ = task.await;
    let answer = probe.write(put(instance("dropped", "a"))).await.expect("written");
    probe.until("the record", |probe| probe.records.contains_key(&key)).await;
    assert_eq!(probe.record(&key).revision, answer.revision);
}

fn named(key: &InstanceKey) -> Instance {
    Instance { key: key.clone(), ..instance("any", "any") }
}

fn value(instance: Instance) -> Value {
    Value { instance: Arc::new(instance), owner: "owner".into(), state: RecordState::Serving }
}
