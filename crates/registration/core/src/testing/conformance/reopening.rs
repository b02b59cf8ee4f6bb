//! Content of a store after it is opened again.

use super::probe::{Probe, instance};
use super::{Subject, probe};
use crate::Instance;
use crate::testing::remove;
use std::time::Duration;

pub(super) async fn everything_is_there(subject: &mut dyn Subject, mut probe: Probe) {
    let leased = Instance { ttl: Some(Duration::from_secs(60)), ..instance("reopened", "leased") };
    probe.put(leased.clone()).await;
    let gone = probe::instance("reopened", "gone");
    probe.put(gone.clone()).await;
    probe.write(remove(gone.key)).await.expect("removed");
    let (records, revision) = (probe.records.clone(), probe.revision);
    assert!(records.len() > 2);
    drop(probe);
    let mut probe = Probe::open(subject).await;
    assert_eq!(probe.records, records);
    assert!(probe.revision >= revision, "revisions only rise: {} after {revision}", probe.revision);
    assert!(!probe.lapsed.contains(&leased.key), "it has time left");
    assert_eq!(probe.store.renew(vec![leased.key.clone()]).await, [Ok(())]);
    let record = probe.put(Instance { weight: 5, ..leased }).await;
    assert!(record.revision > revision, "revisions only rise");
}
