//! Leases and their events.

use super::probe::{Probe, instance};
use crate::testing::{put, remove};
use crate::{Instance, RecordState, RenewError, Value};
use std::sync::Arc;
use std::time::Duration;

fn leased(id: &str, ttl: u64) -> Instance {
    Instance { ttl: Some(Duration::from_secs(ttl)), ..instance("leases", id) }
}

pub(super) async fn lapse_and_renewal(probe: &mut Probe) {
    let (short, long) = (leased("short", 2), leased("long", 600));
    let (short_key, long_key) = (short.key.clone(), long.key.clone());
    let begin = tokio::time::Instant::now();
    probe.write_all(vec![put(short), put(long)]).await;
    probe.until("a lapse", |probe| probe.lapsed.contains(&short_key)).await;
    assert!(begin.elapsed() >= Duration::from_secs(2), "never early: {:?}", begin.elapsed());
    assert!(!probe.lapsed.contains(&long_key));
    assert!(probe.records.contains_key(&short_key), "a lapse removes nothing");
    let unknown = instance("leases", "unknown").key;
    let answers = probe.store.renew(vec![short_key.clone(), unknown, long_key.clone()]).await;
    assert_eq!(answers, [Ok(()), Err(RenewError::NotFound), Ok(())]);
    probe.until("a renewal", |probe| !probe.lapsed.contains(&short_key)).await;
    probe.until("another lapse", |probe| probe.lapsed.contains(&short_key)).await;
    // A renewal in time prevents the lapse.
    assert_eq!(probe.store.renew(vec![short_key.clone()]).await, [Ok(())]);
    let end = tokio::time::Instant::now() + Duration::from_secs(5);
    while tokio::time::Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(probe.store.renew(vec![short_key.clone()]).await, [Ok(())]);
    }
    probe.is_quiet().await;
    assert!(!probe.lapsed.contains(&short_key), "renewed every half second");
    probe.write_all(vec![remove(short_key.clone()), remove(long_key.clone())]).await;
    let gone = [Err(RenewError::NotFound), Err(RenewError::NotFound)];
    assert_eq!(probe.store.renew(vec![short_key, long_key]).await, gone, "removed with the record");
}

pub(super) async fn a_write_begins_a_lease_anew(probe: &mut Probe) {
    let (same, other) = (leased("same", 2), leased("other", 2));
    let keys = [same.key.clone(), other.key.clone()];
    let first = probe.put(same.clone()).await;
    probe.put(other.clone()).await;
    probe.until("two lapses", |probe| keys.iter().all(|key| probe.lapsed.contains(key))).await;
    let answer = probe.write(put(same)).await.expect("there already");
    assert_eq!((answer.revision, answer.changed), (first.revision, false));
    probe.until("a renewal by an equal write", |probe| !probe.lapsed.contains(&keys[0])).await;
    probe.put(Instance { weight: 1, ..other }).await;
    assert!(!probe.lapsed.contains(&keys[1]), "a change begins the lease anew");
    probe.until("two lapses again", |probe| keys.iter().all(|key| probe.lapsed.contains(key))).await;
    probe.write_all(keys.into_iter().map(remove).collect()).await;
}

pub(super) async fn what_has_no_lease(probe: &mut Probe) {
    let (free, drained) = (instance("leases", "free"), leased("drained", 2));
    let keys = vec![free.key.clone(), drained.key.clone()];
    probe.put(free).await;
    probe.put(drained.clone()).await;
    let mut write = put(drained.clone());
    let value = Value { instance: Arc::new(drained), owner: "owner".into(), state: RecordState::Draining };
    write.value = Some(value);
    probe.write(write).await.expect("it drains");
    let none = [Err(RenewError::NotFound), Err(RenewError::NotFound)];
    assert_eq!(probe.store.renew(keys.clone()).await, none);
    tokio::time::sleep(Duration::from_secs(3)).await;
    probe.is_quiet().await;
    assert!(probe.lapsed.is_empty(), "{:?}", probe.lapsed);
    probe.write_all(keys.into_iter().map(remove).collect()).await;
}
