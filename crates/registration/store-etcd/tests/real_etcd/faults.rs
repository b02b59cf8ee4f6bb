//! Members that die or are silent, sessions that are lost, histories that are compacted, quotas that are used
//! up.

use crate::support::{Followed, LIMIT, heartbeat, leased};
use pilotfish_registration::testing::{key, put, remove};
use pilotfish_registration::{Instance, RenewError, Store, WriteError};
use pilotfish_testkit::real::{Etcd, Fault, FaultProxy};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Addresses of three members, each behind a proxy that knows who is connected.
async fn proxies(etcd: &Etcd) -> (Vec<FaultProxy>, String) {
    let mut proxies = Vec::new();
    for member in 0..3 {
        proxies.push(FaultProxy::before(etcd.port(member)).await);
    }
    let servers: Vec<String> = proxies.iter().map(|proxy| format!("http://{}", proxy.address())).collect();
    (proxies, servers.join(","))
}

/// The member that a store is connected to.
fn connected(proxies: &[FaultProxy]) -> Option<usize> {
    proxies.iter().position(|proxy| proxy.open() > 0)
}

/// The member that leads.
async fn leader(etcd: &Etcd) -> usize {
    let end = Instant::now() + LIMIT;
    loop {
        let status = etcd.ctl(&["endpoint", "status"]).await;
        let leads = |line: &&str| line.split(", ").nth(4) == Some("true");
        let port = status
            .lines()
            .find(leads)
            .and_then(|line| line.split(',').next()?.rsplit(':').next()?.parse::<u16>().ok());
        if let Some(member) = (0..3).find(|member| port == Some(etcd.port(*member))) {
            return member;
        }
        assert!(Instant::now() < end, "nobody leads: {status}");
        sleep(Duration::from_millis(100)).await;
    }
}

/// Registers, lets a fault happen, and goes on. Nothing lapses whose client renews, and every write is taken
/// at last.
async fn goes_on(fault: impl AsyncFnOnce(&mut Etcd, usize)) {
    let Some(mut etcd) = Etcd::start_with(3, None, &[]).await else { return };
    let (proxies, address) = proxies(&etcd).await;
    let (near, far) = (Followed::open(&address).await, Followed::open(&address).await);
    let of_near = connected(&proxies).unwrap();
    let instance = leased("renewed", 20);
    near.put(instance.clone()).await;
    let _heartbeat = heartbeat(&[&near, &far], &instance);
    for n in 0..20 {
        near.put(leased(&format!("before-{n}"), 600)).await;
    }
    fault(&mut etcd, of_near).await;
    for n in 0..20 {
        let store = if n % 2 == 0 { &near } else { &far };
        store.write_at_last(put(leased(&format!("after-{n}"), 600))).await;
    }
    for store in [&near, &far] {
        store
            .until("everything is there", |told| told.records.len() == 41 && told.disconnected.is_none())
            .await;
        assert_eq!((store.told().lapses, store.told().resets), (0, 1));
    }
    sleep(Duration::from_secs(19)).await;
    assert_eq!([near.told().lapses, far.told().lapses], [0, 0]);
}

#[tokio::test]
async fn a_member_that_is_killed_costs_nothing() {
    goes_on(async |etcd, member| etcd.program(member).kill().await).await;
}

#[tokio::test]
async fn a_leader_that_is_killed_costs_nothing() {
    goes_on(async |etcd, _| {
        let leader = leader(etcd).await;
        etcd.program(leader).kill().await;
    })
    .await;
}

#[tokio::test]
async fn a_member_that_is_stopped_costs_nothing() {
    goes_on(async |etcd, member| etcd.program(member).freeze().await).await;
}

/// The whole of etcd goes and comes back: writes say so, what is known stays, and nothing lapses for it.
#[tokio::test]
async fn while_etcd_is_gone_nothing_lapses() {
    let Some(mut etcd) = Etcd::start().await else { return };
    let store = Followed::open(&format!("http://127.0.0.1:{}", etcd.port(0))).await;
    let instance = leased("a", 10);
    store.put(instance.clone()).await;
    store.put(leased("silent", 600)).await;
    etcd.program(0).kill().await;
    store.until("it says so", |told| told.disconnected.is_some()).await;
    let answer = store.write(put(leased("b", 3))).await;
    assert!(matches!(answer, Err(WriteError::Unavailable(_))), "{answer:?}");
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(14) {
        let answer = store.renew("a").await;
        assert!(matches!(answer, Err(RenewError::Unavailable(_))), "{answer:?}");
        sleep(Duration::from_millis(500)).await;
    }
    assert_eq!((store.told().records.len(), store.told().lapses), (2, 0));
    assert!(store.store.describe().trouble.is_some());
    etcd.restart(0);
    store.until("it is back", |told| told.disconnected.is_none()).await;
    let _heartbeat = heartbeat(&[&store], &instance);
    store.write_at_last(put(leased("b", 600))).await;
    assert_eq!((store.told().lapses, store.told().disconnections, store.told().resets), (0, 1, 1));
    assert_eq!(store.store.describe().trouble, None);
}

/// A store is cut off, and etcd is not: leases end meanwhile. Of the clients that renew, nobody sees a lapse
/// here, whether the store is the only one or another one sees them lapse.
#[tokio::test]
async fn who_renews_with_a_store_that_is_cut_off_is_not_dropped() {
    let Some(etcd) = Etcd::start().await else { return };
    let proxy = FaultProxy::before(etcd.port(0)).await;
    let cut = Followed::open(&format!("http://{}", proxy.address())).await;
    let (instance, dead) = (leased("renewed", 10), leased("dead", 10));
    cut.put(instance.clone()).await;
    cut.put(dead.clone()).await;
    let other = Followed::open(&format!("http://127.0.0.1:{}", etcd.port(0))).await;
    let _heartbeat = heartbeat(&[&cut], &instance);
    proxy.set(Fault::Refuse).await;
    cut.until("it says so", |told| told.disconnected.is_some()).await;
    other.until("both lapse elsewhere", |told| told.lapsed.len() == 2).await;
    proxy.set(Fault::None).await;
    cut.until("it is back", |told| told.disconnected.is_none()).await;
    let only_dead = [dead.key.clone()];
    for store in [&cut, &other] {
        store.until("who does not renew lapses", |told| told.lapsed.iter().eq(only_dead.iter())).await;
    }
    assert_eq!((cut.told().lapses, cut.told().resets), (1, 1));

    // Alone, it believes no lapse of the time in which nobody could renew.
    drop(other);
    cut.write(remove(dead.key.clone())).await.unwrap();
    cut.put(dead.clone()).await;
    let lapses = cut.told().lapses;
    cut.until("it lapses", |told| told.lapses == lapses + 1).await;
    cut.renew("dead").await.unwrap();
    proxy.set(Fault::Refuse).await;
    cut.until("it says so", |told| told.disconnected.is_some()).await;
    sleep(Duration::from_secs(14)).await;
    proxy.set(Fault::None).await;
    let began = Instant::now();
    cut.until("it is back", |told| told.disconnected.is_none()).await;
    assert_eq!(cut.told().lapses, lapses + 1, "it lapsed before, when it was not renewed");
    cut.until("it lapses again, after its time", |told| told.lapses == lapses + 2).await;
    assert!(began.elapsed() > Duration::from_secs(10), "{:?}", began.elapsed());
}

/// What was missed is gone from the history: everything is read again.
#[tokio::test]
async fn compaction_while_cut_off_costs_one_more_read() {
    let Some(etcd) = Etcd::start().await else { return };
    let proxy = FaultProxy::before(etcd.port(0)).await;
    let cut = Followed::open(&format!("http://{}", proxy.address())).await;
    let other = Followed::open(&format!("http://127.0.0.1:{}", etcd.port(0))).await;
    cut.put(leased("a", 600)).await;
    cut.put(leased("b", 600)).await;
    proxy.set(Fault::Refuse).await;
    cut.until("it says so", |told| told.disconnected.is_some()).await;
    other.write(remove(key("a"))).await.unwrap();
    other.put(Instance { weight: 7, ..leased("b", 600) }).await;
    let revision = other.put(leased("c", 600)).await;
    etcd.ctl(&["compact", "--physical", &revision.to_string()]).await;
    proxy.set(Fault::None).await;
    cut.until("it is back", |told| told.disconnected.is_none()).await;
    let told = cut.told();
    assert_eq!(told.resets, 2);
    let ids: Vec<String> = told
        .records
        .values()
        .map(|record| format!("{}={}", record.instance.key.id, record.instance.weight))
        .collect();
    assert_eq!((ids, told.lapsed.len()), (vec!["b=7".to_owned(), "c=0".to_owned()], 0));
    cut.put(leased("d", 600)).await;
}

/// Cut, slow and garbled connections, while somebody writes and renews.
#[tokio::test]
async fn bad_connections_take_nothing_away() {
    let Some(etcd) = Etcd::start().await else { return };
    let proxy = FaultProxy::before(etcd.port(0)).await;
    let store = Followed::open(&format!("http://{}", proxy.address())).await;
    let instance = leased("renewed", 20);
    store.put(instance.clone()).await;
    let _heartbeat = heartbeat(&[&store], &instance);
    for (n, fault) in
        [Fault::Close, Fault::Truncate(150), Fault::Garble(40), Fault::Garble(400)].into_iter().enumerate()
    {
        let before = store.told().disconnections;
        proxy.set(fault).await;
        proxy.cut();
        store.until("it is noticed", |told| told.disconnections > before).await;
        proxy.set(Fault::None).await;
        proxy.cut();
        store.write_at_last(put(leased(&format!("after-{n}"), 600))).await;
    }
    store.until("all are there", |told| told.records.len() == 5).await;
    assert_eq!((store.told().lapses, store.told().resets), (0, 1));
}

/// The data is gone: that is said, and what etcd has counts. Clients find out at their next renewal.
#[tokio::test]
async fn an_etcd_that_lost_its_data_is_read_again() {
    let Some(mut etcd) = Etcd::start().await else { return };
    let store = Followed::open(&format!("http://127.0.0.1:{}", etcd.port(0))).await;
    for n in 0..10 {
        store.put(leased(&n.to_string(), 600)).await;
    }
    etcd.lose_everything().await;
    store.until("it is read again", |told| told.resets == 2 && told.disconnected.is_none()).await;
    assert!(store.told().records.is_empty());
    assert_eq!(store.renew("1").await, Err(RenewError::NotFound));
    store.put(leased("1", 600)).await;
}

/// etcd refuses writes when its quota is used up; renewals and removals go on.
#[tokio::test]
async fn a_quota_that_is_used_up_is_said() {
    let Some(etcd) = Etcd::start_with(1, None, &["--quota-backend-bytes", "2000000"]).await else { return };
    let store = Followed::open(&format!("http://127.0.0.1:{}", etcd.port(0))).await;
    store.put(leased("a", 600)).await;
    store.put(leased("b", 600)).await;
    let padding = "x".repeat(15_000);
    let full = loop {
        let metadata = [("padding".into(), padding.as_str().into())].into();
        let large: Vec<_> = (0..64)
            .map(|n| {
                put(Instance {
                    metadata: Clone::clone(&metadata),
                    ttl: None,
                    ..leased(&format!("large-{n}"), 1)
                })
            })
            .collect();
        let answers = store.store.write(large).await;
        if let Some(error) = answers.into_iter().find_map(Result::err) {
            break error;
        }
        // The same again would be no write.
        store.store.write((0..64).map(|n| remove(key(&format!("large-{n}")))).collect()).await;
    };
    assert!(matches!(full, WriteError::Full(_)), "{full:?}");
    let refused = store.write(put(leased("c", 600))).await;
    assert!(matches!(refused, Err(WriteError::Full(_))), "{refused:?}");
    let trouble = || store.store.describe().trouble.unwrap_or_default();
    assert!(trouble().starts_with("etcd refuses writes: "), "{}", trouble());
    assert_eq!(store.renew("a").await, Ok(()));
    let (removed, refused) = tokio::join!(store.write(remove(key("b"))), store.write(put(leased("d", 600))));
    assert!(removed.unwrap().changed);
    assert!(matches!(refused, Err(WriteError::Full(_))), "{refused:?}");
    assert!(
        trouble().starts_with("etcd refuses writes: "),
        "a removal says nothing of writes: {}",
        trouble()
    );
    assert_eq!(store.told().disconnections, 0);
}
