//! The measurements, which are the same for all products.

use super::{Options, Product, QUIET, Seen, address};
use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use pilotfish_bench::fleet::{Fleet, node};
use pilotfish_bench::stats::{milliseconds, percentile};
use pilotfish_testkit::real::Pilotfish;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const WARM_UP: usize = 5;
/// Between rounds, not always the same time: a product that is polled would be met in the same phase again
/// and again. In ms.
const PAUSES: [u64; 7] = [150, 470, 300, 910, 210, 730, 390];
const PARALLEL: usize = 16;

pub(super) async fn run(options: &Options, product: impl Product) -> Result<()> {
    let filling = Instant::now();
    product.fill(options).await?;
    println!("registered within {:.0} s", filling.elapsed().as_secs_f64());
    let began = Instant::now();
    let pilotfish = Pilotfish::launch(
        &options.pilotfish.to_string_lossy(),
        &["--registry", &product.registry(), "--registry-timeout", "10m"],
    );
    pilotfish.ready().await;
    let memory = pilotfish.metric("process_resident_memory_bytes").await;
    let cpu = pilotfish.metric("process_cpu_seconds_total").await;
    println!(
        "ready after {:.2} s, {cpu:.2} s CPU, {:.0} MB resident",
        began.elapsed().as_secs_f64(),
        memory / 1e6
    );
    changes(options, &product, &pilotfish).await?;
    quiet(options, &pilotfish).await
}

/// Registers every instance with its own request, several at a time.
pub(super) async fn one_by_one<P: Product + ?Sized>(options: &Options, product: &P) -> Result<()> {
    let (began, services) = (Instant::now(), options.services);
    for number in 0..services {
        if number > 0 && number % 1_000 == 0 {
            eprintln!("bench: {number} of {services} services after {:.0} s", began.elapsed().as_secs_f64());
        }
        let instances = stream::iter(0..options.instances).map(|index| {
            let at = address(options, number, index);
            async move { product.register(number, index, &at).await }
        });
        instances.buffer_unordered(PARALLEL).try_collect::<()>().await?;
    }
    Ok(())
}

/// Changes the address of an instance repeatedly, and prints the latencies of the bare client and of a proxy.
pub(super) async fn changes(options: &Options, product: &impl Product, pilotfish: &Pilotfish) -> Result<()> {
    let target = SocketAddr::from(([127, 0, 0, 1], pilotfish.xds_port()));
    let fleet = Fleet::start(target, vec![node(0, "default")]);
    let sync = fleet.synced(Duration::from_secs(120)).await?;
    println!("a proxy has everything after {:.2} s", sync.wall.as_secs_f64());
    let mut seen = product.watch().await?;
    let (mut floor, mut proxy) = (Vec::new(), Vec::new());
    for number in 0..WARM_UP + options.rounds {
        let at = format!("10.250.{}.{}", 100 + number / 100, 100 + number % 100);
        let began = Instant::now();
        let trigger = product.register(0, 0, &at);
        let reached = fleet.round(number, &at, 1, trigger, Duration::from_secs(60)).await?;
        let bare = until(&mut seen, &at).await?;
        if number >= WARM_UP {
            floor.push(bare.saturating_duration_since(began));
            proxy.push(reached.last);
        }
        tokio::time::sleep(Duration::from_millis(PAUSES[number % PAUSES.len()])).await;
    }
    let row = |name: &str, times: &[Duration]| {
        let at = |share| milliseconds(percentile(times, share));
        println!("{name:32} median {:7.1} ms   p99 {:7.1} ms", at(0.5), at(0.99));
    };
    row("a bare client has a change", &floor);
    row("a proxy has it", &proxy);
    Ok(())
}

async fn until(seen: &mut Seen, wanted: &str) -> Result<Instant> {
    loop {
        let (text, at) = seen.recv().await.context("the bare client ended")?;
        if text.contains(wanted) {
            return Ok(at);
        }
    }
}

/// Measures the cost of watching a product without changes.
async fn quiet(options: &Options, pilotfish: &Pilotfish) -> Result<()> {
    let name = options.registry.to_ascii_lowercase();
    let requests = async || -> Result<u64> {
        let all = pilotfish.json("/debug/registryz?registries=true").await;
        let registries = all.as_array().into_iter().flatten();
        let mut named = registries.filter(|registry| {
            registry["name"].as_str().is_some_and(|known| known.to_ascii_lowercase().starts_with(&name))
        });
        named
            .next()
            .and_then(|registry| registry["source"]["requests"].as_u64())
            .context("it tells no requests")
    };
    let (before, cpu) = (requests().await?, pilotfish.metric("process_cpu_seconds_total").await);
    tokio::time::sleep(QUIET(options)).await;
    let used = pilotfish.metric("process_cpu_seconds_total").await - cpu;
    let asked = requests().await? - before;
    let memory = pilotfish.metric("process_resident_memory_bytes").await;
    println!(
        "{} s of quiet: {asked} requests ({:.2} for each service), {used:.2} s CPU, {:.0} MB resident, {} \
         open files",
        options.quiet,
        asked as f64 / options.services as f64,
        memory / 1e6,
        pilotfish.open_files(),
    );
    Ok(())
}
