//! A storm of changes in one namespace, which must not delay a single change in another.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Bar, FEW_NAMESPACE, NAMESPACE, Options, SETTLE, Setup, Target, WARM_UP, address, bar};

const SERVICES: usize = 200;
/// Number of services that change in turn.
const CHANGING: usize = 50;
const PROXIES: usize = 100;
const FEW: usize = 10;
/// Time between two changes.
const PAUSE: Duration = Duration::from_millis(1);
/// Maximum additional delay of a single change in milliseconds.
const LATER_MS: f64 = 50.0;
/// Number of addresses of the storm, beyond those of the rounds.
const STORM: usize = 5_000;

pub(super) async fn run(options: &Options) -> Result<Vec<Bar>> {
    let setup = Arc::new(Setup::start(options, SERVICES, 10).await?);
    let namespaces = std::iter::repeat_n(NAMESPACE, PROXIES).chain(std::iter::repeat_n(FEW_NAMESPACE, FEW));
    let fleet = setup.fleet(namespaces, 0).await?;
    tokio::time::sleep(SETTLE).await;
    let calm = setup.rounds(&fleet, Target::Few, FEW, 0..WARM_UP + options.rounds).await?;

    let (changes, mut tasks) = (Arc::new(AtomicUsize::new(0)), JoinSet::new());
    let (began, before, received) = (Instant::now(), setup.server.cpu()?, fleet.received());
    tasks.spawn_blocking({
        let (setup, changes) = (Arc::clone(&setup), Arc::clone(&changes));
        move || storm(&setup, &changes)
    });
    let numbers = 1_000..1_000 + WARM_UP + options.rounds;
    let rough = setup.rounds(&fleet, Target::Few, FEW, numbers).await;
    let count = changes.swap(usize::MAX / 2, Ordering::AcqRel);
    let took = began.elapsed().as_secs_f64();
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    let rough = rough?;
    let cpu = setup.server.cpu()?.since(&before).as_secs_f64() / took;
    report(&calm, &rough, count, took, cpu, fleet.received() - received);
    Ok(vec![bar(
        "a lone change beside a thousand a second in another namespace: later by, p99",
        (rough.at(0.99) - calm.at(0.99)).max(0.0),
        LATER_MS,
        "ms",
    )])
}

#[allow(clippy::cast_precision_loss)]
fn report(calm: &super::Rounds, rough: &super::Rounds, changes: usize, took: f64, cpu: f64, bytes: u64) {
    let rate = changes as f64 / took;
    let each = bytes as f64 / (changes.max(1) * (PROXIES + FEW)) as f64;
    eprintln!("bench:   without a storm: median {:.1} ms, p99 {:.1} ms", calm.at(0.5), calm.at(0.99));
    eprintln!(
        "bench:   {rate:.0} changes a second: median {:.1} ms, p99 {:.1} ms, server CPU {cpu:.2} s a second, \
         {each:.0} bytes to each stream for each change",
        rough.at(0.5),
        rough.at(0.99)
    );
}

/// Changes a service each millisecond, until the count is set beyond reach.
fn storm(setup: &Setup, changes: &AtomicUsize) -> Result<()> {
    let mut next = std::time::Instant::now();
    loop {
        let number = changes.fetch_add(1, Ordering::AcqRel);
        if number >= usize::MAX / 2 {
            return Ok(());
        }
        let service = 1 + number % CHANGING;
        setup.world.change_service(service, &address(STORM + number / CHANGING % 1_000))?;
        next += PAUSE;
        std::thread::sleep(next.saturating_duration_since(std::time::Instant::now()));
    }
}
