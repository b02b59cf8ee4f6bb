//! Several stores on one etcd.

use crate::support::{Followed, heartbeat, leased};
use pilotfish_registration::testing::{key, put, remove};
use pilotfish_registration::{Expected, Instance, Store, Write, WriteError};
use pilotfish_testkit::real::{Etcd, eventually};
use std::time::Duration;
use tokio::time::sleep;

#[tokio::test]
async fn what_one_writes_all_see_and_any_renews() {
    let Some(etcd) = Etcd::start().await else { return };
    let address = format!("http://127.0.0.1:{}", etcd.port(0));
    let (a, b, c) =
        (Followed::open(&address).await, Followed::open(&address).await, Followed::open(&address).await);
    let instance = leased("a", 10);
    let revision = a.put(instance.clone()).await;
    for store in [&a, &b, &c] {
        store.until("it is there", |told| told.records.contains_key(&key("a"))).await;
    }
    // Registering the same elsewhere is no write, also where the client has gone on before the store has seen
    // the first.
    let again = b.write(put(instance.clone())).await.unwrap();
    assert_eq!((again.revision, again.changed), (revision, false));
    // One client renews with b and c only, longer than its lease.
    {
        let _heartbeat = heartbeat(&[&b, &c], &instance);
        sleep(Duration::from_secs(14)).await;
        assert_eq!([a.told().lapses, b.told().lapses, c.told().lapses], [0, 0, 0]);
    }
    for store in [&a, &b, &c] {
        store.until("it lapses everywhere", |told| told.lapsed.contains(&key("a"))).await;
    }
    assert_eq!(c.renew("a").await, Ok(()));
    for store in [&a, &b, &c] {
        store.until("it is renewed everywhere", |told| told.lapsed.is_empty()).await;
    }
    assert!(a.write(remove(key("a"))).await.unwrap().changed);
    b.is_not_found("a").await;
    assert!(!c.write(remove(key("a"))).await.unwrap().changed);
    for store in [&a, &b, &c] {
        store.until("it is gone", |told| told.records.is_empty()).await;
        assert_eq!(store.told().resets, 1);
    }
}

/// A client registers here and goes on there, again and again: it is always known, though the other store may
/// not have seen it.
#[tokio::test]
async fn clients_switch_between_stores() {
    let Some(etcd) = Etcd::start().await else { return };
    let address = format!("http://127.0.0.1:{}", etcd.port(0));
    let stores = [Followed::open(&address).await, Followed::open(&address).await];
    for round in 0..200 {
        let (here, there) = (&stores[round % 2], &stores[(round + 1) % 2]);
        let instance = Instance { weight: round as u32, ..leased("a", 30) };
        let revision = here.put(instance.clone()).await;
        assert_eq!(there.renew("a").await, Ok(()));
        let lost = Write { expected: Expected::Revision(revision - 1), ..remove(key("a")) };
        let error = there.write(lost).await.unwrap_err();
        assert!(
            matches!(&error, WriteError::Conflict { current: Some(now) } if now.revision == revision),
            "{error}"
        );
        if round % 3 == 0 {
            let removal = Write { expected: Expected::Revision(revision), ..remove(key("a")) };
            assert!(there.write(removal).await.unwrap().changed);
            here.is_not_found("a").await;
        }
    }
}

/// Both see the lapse and want to remove the instance; or it is renewed with one of them in the meantime.
#[tokio::test]
async fn a_lapsed_instance_is_removed_once_and_not_when_it_was_renewed() {
    let Some(etcd) = Etcd::start().await else { return };
    let address = format!("http://127.0.0.1:{}", etcd.port(0));
    let (a, b) = (Followed::open(&address).await, Followed::open(&address).await);
    for id in ["dead", "back"] {
        a.put(leased(id, 5)).await;
    }
    for store in [&a, &b] {
        store.until("both lapse", |told| told.lapsed.len() == 2).await;
    }
    let removal = |id: &str| {
        let expected = Expected::Revision(b.told().records[&key(id)].revision);
        Write { expected, ..remove(key(id)) }
    };
    let (dead, back) = (removal("dead"), removal("back"));
    let (first, second) = tokio::join!(a.write(dead.clone()), b.write(dead));
    let removed = [&first, &second]
        .iter()
        .filter(|answer| answer.as_ref().is_ok_and(|written| written.changed))
        .count();
    let missed = [&first, &second]
        .iter()
        .filter(|answer| matches!(answer, Err(WriteError::Conflict { current: None })))
        .count();
    assert_eq!((removed, missed), (1, 1), "{first:?} {second:?}");
    // The other one has not seen yet that it was renewed here.
    assert_eq!(a.renew("back").await, Ok(()));
    let answer = b.write(back).await;
    let was_seen = b.told().lapsed.is_empty();
    match answer {
        Err(WriteError::Conflict { current: Some(_) }) => {}
        // A removal after the renewal was seen is one that somebody wants in spite of it.
        Ok(written) if was_seen => assert!(written.changed),
        other => panic!("{other:?}"),
    }
}

/// Nobody was there to take renewals: that is nobody's fault but ours.
#[tokio::test]
async fn leases_begin_anew_when_no_store_was_open() {
    let Some(etcd) = Etcd::start().await else { return };
    let address = format!("http://127.0.0.1:{}", etcd.port(0));
    {
        let store = Followed::open(&address).await;
        for n in 0..200 {
            store.put(leased(&n.to_string(), 1)).await;
        }
    }
    eventually("all leases end, and that of the store", || async {
        let leases = etcd.ctl(&["get", "--prefix", "--keys-only", "/pilotfish/registration/leases/"]).await;
        let stores = etcd.ctl(&["get", "--prefix", "--keys-only", "/pilotfish/registration/stores/"]).await;
        if leases.trim().is_empty() && stores.trim().is_empty() { Ok(()) } else { Err((leases, stores)) }
    })
    .await;
    let store = Followed::open(&address).await;
    let told = store.told();
    // On a busy machine some may have lapsed since.
    assert_eq!((told.records.len(), told.lapsed.len() - told.lapses), (200, 0));
    store.until("they lapse now", |told| told.lapses == 200).await;
    // A second one that opens while the first is there believes what it sees.
    let other = Followed::open(&address).await;
    assert_eq!(other.told().lapsed.len(), 200);
    // Changes come in order: what the second one would have begun anew is known with what it writes now.
    other.put(leased("after", 30)).await;
    store.until("what comes after is there", |told| told.records.contains_key(&key("after"))).await;
    assert_eq!(store.told().lapsed.len(), 200);
}

/// What is no record is left out, and named; what is not ours is not touched.
#[tokio::test]
async fn broken_records_cost_nothing_that_is_good() {
    let Some(etcd) = Etcd::start().await else { return };
    etcd.put("/pilotfish/registration/instances/default/web/broken", "{").await;
    etcd.put("/pilotfish/registration/instances/default/web", "x").await;
    etcd.put("/pilotfish/registration-old/instances/default/web/a", "x").await;
    let store = Followed::open(&format!("http://127.0.0.1:{}", etcd.port(0))).await;
    assert!(store.told().records.is_empty());
    let trouble = store.store.describe().trouble.unwrap();
    assert_eq!(trouble, "1 records in etcd cannot be read, such as default/web/broken");
    store.put(leased("a", 30)).await;
    etcd.put("/pilotfish/registration/instances/default/web/a", "[]").await;
    assert_eq!(store.renew("a").await, Ok(()));
    // Registering again repairs it.
    for id in ["a", "broken"] {
        store.put(Instance { weight: 2, ..leased(id, 30) }).await;
    }
    assert_eq!((store.told().records.len(), store.store.describe().trouble), (2, None));
    let value = etcd.ctl(&["get", "/pilotfish/registration/instances/default/web/a"]).await;
    assert!(value.contains(r#""addresses":["10.0.0.1"]"#), "{value}");
    // Deregistering takes it away.
    etcd.put("/pilotfish/registration/instances/default/web/gone", "{").await;
    assert!(store.write(remove(key("gone"))).await.unwrap().changed);
    let value = etcd.ctl(&["get", "/pilotfish/registration/instances/default/web/gone"]).await;
    assert_eq!(value.trim(), "");
}
