//! Figures: registrations and renewals in a second, and the memory of what is known. They are printed,
//! because a busy machine is no defect; what makes them good is that a transaction writes many instances, and
//! that is checked.

use crate::support::{Followed, LIMIT, leased};
use pilotfish_registration::testing::{key, put};
use pilotfish_registration::{RenewError, Store, WriteError};
use pilotfish_testkit::real::Etcd;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::{Duration, Instant};
use tokio::time::sleep;

const INSTANCES: usize = 20_000;
/// What an API server sends at once.
const BATCH: usize = 100;
/// How many clients wait for an answer at a time.
const CLIENTS: usize = 16;

/// Resident memory of this process in bytes.
fn memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = status.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn figures() {
    let Some(etcd) = Etcd::start().await else { return };
    let store = Followed::open(&format!("http://127.0.0.1:{}", etcd.port(0))).await;
    let all: Vec<_> = (0..INSTANCES).map(|n| put(leased(&name(n), 600))).collect();
    let before = memory();
    let began = Instant::now();
    let (store, all) = (&store, &all);
    each(|first| {
        let write = async move || store.store.write(all[first..first + BATCH].to_vec()).await;
        at_last(write, |error| matches!(error, WriteError::Unavailable(_)))
    })
    .await;
    let registrations = INSTANCES as f64 / began.elapsed().as_secs_f64();
    let bytes = memory().saturating_sub(before) / INSTANCES;

    let began = Instant::now();
    each(|first| renewed(store, first)).await;
    let coalesced = INSTANCES as f64 / began.elapsed().as_secs_f64();
    // A store that was just opened has passed on none of them yet.
    let other = Followed::open(&format!("http://127.0.0.1:{}", etcd.port(0))).await;
    let began = Instant::now();
    let other = &other;
    each(|first| renewed(other, first)).await;
    let passed_on = INSTANCES as f64 / began.elapsed().as_secs_f64();
    eprintln!(
        "{registrations:.0} registrations/s, {passed_on:.0} renewals/s passed on, {coalesced:.0} not passed on; \
         {bytes} bytes for each instance, with the tests' own"
    );
    let told = store.told();
    assert_eq!((told.records.len(), told.lapses), (INSTANCES, 0));
    // Every transaction is one revision.
    let transactions: BTreeSet<u64> = told.records.values().map(|record| record.revision).collect();
    assert!(transactions.len() * 4 < INSTANCES, "{} transactions", transactions.len());
}

/// Renews the instances of a batch.
async fn renewed(store: &Followed, first: usize) {
    let keys: Vec<_> = (first..first + BATCH).map(|n| key(&name(n))).collect();
    let renew = async || store.store.renew(keys.clone()).await;
    at_last(renew, |error| matches!(error, RenewError::Unavailable(_))).await;
}

/// Calls until that succeeds, as a client does that is told to try again: a busy machine may be slow.
async fn at_last<T, E: Debug>(call: impl AsyncFn() -> Vec<Result<T, E>>, is_temporary: impl Fn(&E) -> bool) {
    let end = Instant::now() + LIMIT;
    while let Some(error) = call().await.into_iter().find_map(Result::err) {
        assert!(is_temporary(&error) && Instant::now() < end, "{error:?}");
        sleep(Duration::from_millis(50)).await;
    }
}

fn name(n: usize) -> String {
    format!("instance-{n}")
}

/// Runs something for every batch of instances, by some clients side by side.
async fn each<F: Future<Output = ()>>(run: impl Fn(usize) -> F) {
    use futures::StreamExt as _;
    let batches = futures::stream::iter((0..INSTANCES).step_by(BATCH));
    batches.for_each_concurrent(CLIENTS, run).await;
}
