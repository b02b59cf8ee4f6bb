//! Costs of size and disturbances: each scenario starts a separate Pilotfish on files, and checks limits.

mod churn;
mod idle;
mod service;
mod slow;
mod storm;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::fleet::{Fleet, node};
use crate::report::Bar;
use crate::server::Server;
use crate::stats::{milliseconds, percentile};
use crate::world::{FEW_NAMESPACE, NAMESPACE, Target, World, address};

/// Measurements, and their sizes.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The Pilotfish to measure
    #[arg(long, value_name = "FILE")]
    pub pilotfish: PathBuf,
    /// Scenarios; all but `churn` when there is none
    #[arg(value_enum, value_name = "SCENARIO")]
    pub scenarios: Vec<Scenario>,
    /// Streams of the scenario `idle`
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub streams: usize,
    /// Services of the scenario `start`
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub services: usize,
    /// Changes of a scenario that are measured
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub rounds: usize,
    /// Duration of the scenario `churn`, in minutes
    #[arg(long, value_name = "MINUTES", default_value_t = 30)]
    pub minutes: u64,
}

/// Scenario, one measurement with its own world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Scenario {
    /// Many Services, from the start of the process until a first proxy has everything
    Start,
    /// One Service with 10,000 endpoints, of which one changes
    Service,
    /// Many streams of few workloads, and one endpoint change to all of them
    Idle,
    /// A thousand endpoint changes a second in one namespace, and a lone change in another
    Storm,
    /// Proxies that read slowly or not at all, and the others beside them
    Slow,
    /// Endpoints, routes, services and proxies that are added and removed for half an hour
    Churn,
}

impl Scenario {
    /// Scenarios that take seconds.
    const SHORT: [Self; 5] = [Self::Start, Self::Service, Self::Idle, Self::Storm, Self::Slow];
}

/// Timeout of a sync.
const SYNC_LIMIT: Duration = Duration::from_secs(120);
const ROUND_LIMIT: Duration = Duration::from_secs(30);
/// Interval of changes: each is alone, including its acknowledgements.
const BETWEEN_ROUNDS: Duration = Duration::from_millis(150);
/// Wait for the acknowledgements of a sync.
const SETTLE: Duration = Duration::from_secs(2);
/// Number of uncounted rounds at the beginning.
const WARM_UP: usize = 3;

/// Runs the scenarios, and returns their bars.
///
/// # Errors
/// If a server cannot be started, ends a stream or exceeds a timeout.
pub async fn run(options: &Options) -> Result<Vec<Bar>> {
    let chosen = if options.scenarios.is_empty() { &Scenario::SHORT[..] } else { &options.scenarios };
    let mut bars = Vec::new();
    for scenario in chosen {
        eprintln!("bench: {scenario:?}");
        let found = match scenario {
            Scenario::Start => start(options).await,
            Scenario::Service => service::run(options).await,
            Scenario::Idle => idle::run(options).await,
            Scenario::Storm => storm::run(options).await,
            Scenario::Slow => slow::run(options).await,
            Scenario::Churn => churn::run(options).await,
        };
        bars.extend(found.with_context(|| format!("{scenario:?}"))?);
    }
    Ok(bars)
}

/// A Pilotfish on its own directory; both are removed on drop.
struct Setup {
    temporary: TempDir,
    world: World,
    server: Server,
}

impl Setup {
    async fn start(options: &Options, services: usize, endpoints: usize) -> Result<Self> {
        Self::start_with(options, services, endpoints, &[], |_| Ok(())).await
    }

    /// Starts it with additional arguments, and additional files from `more`.
    async fn start_with(
        options: &Options,
        services: usize,
        endpoints: usize,
        arguments: &[OsString],
        more: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<Self> {
        let temporary = tempfile::tempdir().context("cannot make a folder for the world")?;
        let folder = temporary.path().join("world");
        std::fs::create_dir(&folder).context("cannot make a folder for the world")?;
        let world = World::create(&folder, services, endpoints)?;
        more(&folder)?;
        let log = temporary.path().join("log");
        let server = Server::pilotfish_with(&options.pilotfish, &folder, arguments, log).await?;
        Ok(Self { temporary, world, server })
    }

    fn folder(&self) -> PathBuf {
        self.temporary.path().join("world")
    }

    async fn fleet(&self, namespaces: impl Iterator<Item = &'static str>, first: usize) -> Result<Fleet> {
        let nodes = namespaces.enumerate().map(|(index, namespace)| node(first + index, namespace)).collect();
        let fleet = Fleet::start(self.server.xds, nodes);
        fleet.synced(SYNC_LIMIT).await?;
        Ok(fleet)
    }

    /// Makes separate changes: returns the time to the last of `wanted` streams, and the server's CPU time,
    /// for each.
    async fn rounds(
        &self,
        fleet: &Fleet,
        target: Target,
        wanted: usize,
        numbers: std::ops::Range<usize>,
    ) -> Result<Rounds> {
        let mut rounds = Rounds::default();
        for number in numbers {
            let address = address(number);
            let before = self.server.cpu()?;
            let trigger = async { self.world.change(target, &address) };
            let reached = fleet.round(number, &address, wanted, trigger, ROUND_LIMIT).await?;
            tokio::time::sleep(BETWEEN_ROUNDS).await;
            rounds.last.push(reached.last);
            rounds.cpu.push(self.server.cpu()?.since(&before));
        }
        rounds.forget(WARM_UP);
        Ok(rounds)
    }
}

/// Results of all measured changes.
#[derive(Default)]
struct Rounds {
    last: Vec<Duration>,
    cpu: Vec<Duration>,
}

impl Rounds {
    fn forget(&mut self, count: usize) {
        for values in [&mut self.last, &mut self.cpu] {
            values.drain(..count.min(values.len()));
        }
    }

    /// Quantile of the times in milliseconds.
    fn at(&self, share: f64) -> f64 {
        milliseconds(percentile(&self.last, share))
    }

    /// Median CPU time in milliseconds.
    fn cpu(&self) -> f64 {
        milliseconds(percentile(&self.cpu, 0.5))
    }
}

fn bar(what: impl Into<String>, value: f64, limit: f64, unit: &'static str) -> Bar {
    Bar { what: what.into(), value, limit, unit }
}

#[allow(clippy::cast_precision_loss)]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// Limits: seconds from the start of the process until one proxy has everything, and memory then, in MB.
const FIRST_PROXY: f64 = 1.5;
const FIRST_PROXY_MB: f64 = 250.0;

async fn start(options: &Options) -> Result<Vec<Bar>> {
    let setup = Setup::start(options, options.services, 10).await?;
    let fleet = Fleet::start(setup.server.xds, vec![node(0, NAMESPACE)]);
    let synced = fleet.synced(SYNC_LIMIT).await?;
    let whole = (setup.server.start + synced.wall).as_secs_f64();
    eprintln!(
        "bench:   ready after {:.2} s, everything sent after {:.2} s more, {} bytes",
        setup.server.start.as_secs_f64(),
        synced.wall.as_secs_f64(),
        synced.bytes
    );
    let memory = megabytes(setup.server.memory()?.0);
    let of = format!("{} services from files", options.services);
    let rounds = setup.rounds(&fleet, Target::All, 1, 0..WARM_UP + options.rounds).await?;
    Ok(vec![
        bar(format!("{of}: from start to a first proxy's full configuration"), whole, FIRST_PROXY, "s"),
        bar(format!("{of}: resident memory then"), memory, FIRST_PROXY_MB, "MB"),
        bar("an endpoint change among them, p99 to the median", rounds.at(0.99) / rounds.at(0.5), 2.0, "x"),
    ])
}
