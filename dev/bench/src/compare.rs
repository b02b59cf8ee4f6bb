//! Comparison of Pilotfish with the broadcast servers, one after the other, under the same load in one run.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::broadcast::Kind;
use crate::fleet::{Fleet, Reached, Synced, node};
use crate::server::{CpuTimes, MachineTimes, Server};
use crate::stats::{milliseconds, percentile};
use crate::world::{FEW_NAMESPACE, MOST_SERVICES, NAMESPACE, Target, World, address};

/// Measurements, and their sizes.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The Pilotfish to measure
    #[arg(long, value_name = "FILE")]
    pub pilotfish: PathBuf,
    /// Number of connected proxies
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    pub streams: usize,
    /// Proxies among them that see a service of their own
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub few: usize,
    /// Number of services in the world
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    pub services: usize,
    /// Endpoints of each service
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub endpoints: usize,
    /// Changes that are measured
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub rounds: usize,
    /// Services of the larger world
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub large: usize,
    /// Proxies when the two worlds are compared
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub large_streams: usize,
    /// File for the result as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Measurements of one server.
pub struct Measured {
    /// Name in the table.
    pub name: String,
    /// Time from the start of the process until it was ready.
    pub start: Duration,
    /// Sync of all streams at once, without resources.
    pub sync: Synced,
    /// CPU time of the server for it.
    pub sync_cpu: Duration,
    /// CPU time of the load client at the same time, on the same machine.
    pub sync_client_cpu: Duration,
    /// A change that all streams see.
    pub all: Change,
    /// A change that only the few see.
    pub few: Option<Change>,
    /// CPU time of the server in an idle second.
    pub idle_cpu: Duration,
    /// Share of the machine used by other processes, 0 to 1: limits the accuracy of the times.
    pub foreign: f64,
    /// Resident memory at the end, in bytes.
    pub memory: u64,
    /// Peak of the memory, in bytes.
    pub memory_most: u64,
}

/// Results of one endpoint change over several rounds.
pub struct Change {
    /// Time from before the trigger until the last stream had it, for each round.
    pub last: Vec<Duration>,
    /// Time from before the trigger until each stream had it, for each round.
    pub each: Vec<Duration>,
    /// CPU time of the server for a change: the median of the rounds, which excludes occasional background
    /// work.
    pub cpu: Duration,
    /// Mean CPU time, including background work.
    pub cpu_mean: Duration,
    /// CPU time of the load client for each change.
    pub client_cpu: Duration,
    /// Mean time of all streams from the publication of the change until it was sent, if the server measures
    /// it: the rest is spent in the file, its source and the registries before, and in the client afterwards.
    pub push: Option<Duration>,
    /// Bytes to each stream for each change.
    pub bytes: u64,
}

/// Results of a whole run.
pub struct Results {
    pub pilotfish: Measured,
    pub tonic: Measured,
    pub h2: Measured,
    /// Pilotfish with fewer streams and the number of services of the others.
    pub small: Measured,
    /// Pilotfish with fewer streams and the larger number of services.
    pub large: Measured,
}

const SYNC_LIMIT: Duration = Duration::from_secs(120);
const ROUND_LIMIT: Duration = Duration::from_secs(20);
/// Number of uncounted rounds at the beginning.
const WARM_UP: usize = 3;
/// Interval of changes: each is alone, including its acknowledgements, and debouncing never merges two.
const BETWEEN_ROUNDS: Duration = Duration::from_millis(150);
const IDLE: Duration = Duration::from_secs(1);

/// Runs all phases.
///
/// # Errors
/// If a server cannot be started, ends a stream or exceeds a timeout.
pub async fn run(options: &Options) -> Result<Results> {
    if options.services.max(options.large) > MOST_SERVICES {
        bail!("there are addresses for {MOST_SERVICES} services, not for more");
    }
    if options.few >= options.streams || options.few >= options.large_streams {
        bail!("--few must be below --streams and --large-streams");
    }
    if options.rounds == 0 {
        bail!("--rounds must be at least 1");
    }
    let streams = options.streams;
    let pilotfish = pilotfish(options, "pilotfish", options.services, streams).await?;
    let tonic = broadcast(options, "tonic", Kind::Tonic).await?;
    let h2 = broadcast(options, "h2", Kind::H2).await?;
    let few = options.large_streams;
    let small = self::pilotfish(options, "pilotfish", options.services, few).await?;
    let large = self::pilotfish(options, "pilotfish", options.large, few).await?;
    Ok(Results { pilotfish, tonic, h2, small, large })
}

async fn pilotfish(options: &Options, name: &str, services: usize, streams: usize) -> Result<Measured> {
    let temporary = tempfile::tempdir().context("cannot make a folder for the world")?;
    let folder = temporary.path().join("world");
    std::fs::create_dir(&folder).context("cannot make a folder for the world")?;
    eprintln!(
        "bench: {name}, {services} services, {} endpoints, {streams} streams",
        services * options.endpoints
    );
    let world = World::create(&folder, services, options.endpoints)?;
    let server = Server::pilotfish(&options.pilotfish, &folder, temporary.path().join("log")).await?;
    let subject = Subject { name, server, world: Some(world), options };
    subject.measure(streams).await.with_context(|| format!("{name} with {services} services"))
}

async fn broadcast(options: &Options, name: &str, kind: Kind) -> Result<Measured> {
    eprintln!("bench: broadcast on {name}, {} clusters, {} streams", options.services, options.streams);
    let bench = std::env::current_exe().context("cannot find the running executable")?;
    let server = Server::broadcast(&bench, kind, options.services, options.endpoints).await?;
    let subject = Subject { name, server, world: None, options };
    subject.measure(options.streams).await.with_context(|| format!("broadcast on {name}"))
}

/// A running, measured server.
struct Subject<'a> {
    name: &'a str,
    server: Server,
    /// Files of Pilotfish; `None` for a broadcast server.
    world: Option<World>,
    options: &'a Options,
}

impl Subject<'_> {
    async fn measure(mut self, streams: usize) -> Result<Measured> {
        // The few are the last ones, and equal to the others otherwise.
        let namespace = |index| if index + self.options.few >= streams { FEW_NAMESPACE } else { NAMESPACE };
        let nodes = (0..streams).map(|index| node(index, namespace(index))).collect();
        let machine = MachineTimes::now()?;
        let (before, client_before) = (self.server.cpu()?, CpuTimes::own()?);
        let fleet = Fleet::start(self.server.xds, nodes);
        let sync = fleet.synced(SYNC_LIMIT).await?;
        let sync_cpu = self.server.cpu()?.since(&before);
        let sync_client_cpu = CpuTimes::own()?.since(&client_before);
        eprintln!(
            "bench:   in sync after {:.2} s, server CPU {:.2} s",
            sync.wall.as_secs_f64(),
            sync_cpu.as_secs_f64()
        );
        // Waits for the acknowledgements of the sync.
        tokio::time::sleep(IDLE).await;
        let idle_before = self.server.cpu()?;
        tokio::time::sleep(IDLE).await;
        let idle_cpu = self.server.cpu()?.since(&idle_before);
        let all = self.rounds(&fleet, Target::All, streams, 0).await?;
        let few = match self.world {
            Some(_) => Some(self.rounds(&fleet, Target::Few, self.options.few, 5_000).await?),
            None => None,
        };
        let known = self.server.cpu()?.since(&before) + CpuTimes::own()?.since(&client_before);
        let foreign = MachineTimes::now()?.foreign_since(&machine, known);
        let (memory, memory_most) = self.server.memory()?;
        let (name, start) = (self.name.to_owned(), self.server.start);
        self.server.stop().await?;
        Ok(Measured {
            name,
            start,
            sync,
            sync_cpu,
            sync_client_cpu,
            all,
            few,
            idle_cpu,
            foreign,
            memory,
            memory_most,
        })
    }

    async fn rounds(&mut self, fleet: &Fleet, target: Target, wanted: usize, first: usize) -> Result<Change> {
        let (mut last, mut each, mut cpu, mut bytes) = (Vec::new(), Vec::new(), Vec::new(), 0);
        let mut client_before = CpuTimes::own()?;
        let mut pushes_before = None;
        for number in 0..WARM_UP + self.options.rounds {
            if number == WARM_UP {
                client_before = CpuTimes::own()?;
                pushes_before = self.server.push_times().await?;
            }
            let before = self.server.cpu()?;
            let reached = self
                .round(fleet, target, wanted, first + number)
                .await
                .with_context(|| format!("round {number} of a change to {wanted} streams"))?;
            tokio::time::sleep(BETWEEN_ROUNDS).await;
            if number >= WARM_UP {
                cpu.push(self.server.cpu()?.since(&before));
                last.push(reached.last);
                each.extend(reached.all);
                bytes += reached.bytes;
            }
        }
        let count = u32::try_from(self.options.rounds).unwrap_or(u32::MAX).max(1);
        let client_cpu = CpuTimes::own()?.since(&client_before) / count;
        let push = pushes_before.zip(self.server.push_times().await?).and_then(|(before, after)| {
            let number = u32::try_from(after.1.saturating_sub(before.1)).ok().filter(|number| *number > 0)?;
            Some(after.0.saturating_sub(before.0) / number)
        });
        let cpu_mean = cpu.iter().sum::<Duration>() / count;
        let cpu = percentile(&cpu, 0.5);
        eprintln!(
            "bench:   a change to the last of {wanted}: median {:.1} ms, p99 {:.1} ms, server CPU {:.1} ms",
            milliseconds(percentile(&last, 0.5)),
            milliseconds(percentile(&last, 0.99)),
            milliseconds(cpu)
        );
        let bytes = bytes / (u64::from(count) * wanted.max(1) as u64);
        Ok(Change { last, each, cpu, cpu_mean, client_cpu, push, bytes })
    }

    /// Makes one change, until the last affected stream has it.
    async fn round(
        &mut self,
        fleet: &Fleet,
        target: Target,
        wanted: usize,
        number: usize,
    ) -> Result<Reached> {
        let address = address(number);
        let (world, server) = (&self.world, &mut self.server);
        let trigger = async {
            match world {
                Some(world) => world.change(target, &address),
                None => server.change(&address).await,
            }
        };
        fleet.round(number, &address, wanted, trigger, ROUND_LIMIT).await
    }
}
