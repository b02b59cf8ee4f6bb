//! The phases of the bench: cold start, further proxies, changes, reconnects, and changes while others reconnect.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::fleet::{Fleet, Reached, Sent};
use super::floor::{Broadcaster, Floor};
use super::folder::{Edit, Folder};
use super::session::Content;
use super::world::{Pod, Sizes};
use crate::messages::Node;
use crate::server::{CpuTimes, MachineTimes, Server};
use crate::stats::milliseconds;

/// What is measured, and with how much.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The Pilotfish to measure
    #[arg(long, value_name = "FILE")]
    pub pilotfish: PathBuf,
    /// The mesh
    #[command(flatten)]
    pub sizes: Sizes,
    /// Endpoint changes that are measured
    #[arg(long, value_name = "N", default_value_t = 30)]
    pub rounds: usize,
    /// Changes of each kind of configuration that are measured
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub changes: usize,
    /// Reconnects of everybody, with nothing and with what they hold
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub reconnects: usize,
    /// Proxies beyond those of the mesh, of workloads that are there and of new ones
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub further: usize,
    /// Endpoint changes while half of the proxies leave and come back
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub churn: usize,
    /// Fewer rounds of everything, and no floors
    #[arg(long)]
    pub quick: bool,
    /// Do not measure what a broadcast of as many bytes costs
    #[arg(long)]
    pub no_floor: bool,
    /// File for the result as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Keep the mesh's files in this folder
    #[arg(long, value_name = "FOLDER")]
    pub keep: Option<PathBuf>,
}

/// One kind of change.
pub struct Row {
    /// Its name in the table.
    pub name: String,
    /// How many proxies it is to reach.
    pub wanted: usize,
    /// Each time that it was made.
    pub samples: Vec<Sample>,
    /// A broadcast of as many bytes to as many streams.
    pub floor: Option<Floor>,
}

/// One change that was made.
pub struct Sample {
    /// How it reached the proxies.
    pub reached: Reached,
    /// Server CPU time.
    pub cpu: Duration,
}

/// All proxies at once.
pub struct Everybody {
    /// Until the last of them was in sync.
    pub wall: Duration,
    /// Server CPU time.
    pub cpu: Duration,
    /// CPU time of the load client meanwhile: the two share the machine.
    pub client_cpu: Duration,
    /// What was sent.
    pub sent: Sent,
    /// An endpoint change made at once then.
    pub first_change: Option<Sample>,
    /// Resident memory after it, in bytes.
    pub memory: u64,
}

/// What further proxies cost in memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Further {
    /// How many there were.
    pub proxies: usize,
    /// Resident memory before they connected, in bytes.
    pub before: u64,
    /// And with them.
    pub with: u64,
}

impl Further {
    /// Bytes for each.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn each(&self) -> f64 {
        (self.with as f64 - self.before as f64) / self.proxies.max(1) as f64
    }
}

/// Resident memory at one point, in bytes.
pub struct Memory {
    /// When.
    pub when: String,
    /// How much.
    pub bytes: u64,
}

/// The results of a run.
pub struct Results {
    /// From the start of the process until it was ready.
    pub start: Duration,
    /// All proxies, from nothing.
    pub cold: Everybody,
    /// The same from a broadcast server.
    pub cold_floor: Option<Floor>,
    /// What they hold of each type.
    pub content: [Content; 4],
    /// Server CPU time in a second in which nothing happens.
    pub idle_cpu: Duration,
    /// Further proxies of workloads that are there.
    pub further_known: Further,
    /// Further workloads.
    pub further_new: Further,
    /// All kinds of changes.
    pub rows: Vec<Row>,
    /// Everybody comes back with nothing.
    pub reconnects: Vec<Everybody>,
    /// Everybody comes back with what they hold.
    pub resumes: Vec<Everybody>,
    /// Memory over time.
    pub memory: Vec<Memory>,
    /// The most that it was.
    pub memory_most: u64,
    /// The share of the machine that other processes used meanwhile, 0 to 1.
    pub foreign: f64,
}

const SYNC_LIMIT: Duration = Duration::from_secs(300);
const CHANGE_LIMIT: Duration = Duration::from_secs(30);
/// Nothing more comes of an endpoint change then.
const QUIET: Duration = Duration::from_millis(120);
/// Nothing more comes of a change of configuration then.
const CONFIG_QUIET: Duration = Duration::from_millis(400);
/// The steps in which a server is watched until it rests, the rest that counts, and the most that is waited for it.
const STEP: Duration = Duration::from_millis(20);
const REST: Duration = Duration::from_millis(500);
const REST_LIMIT: Duration = Duration::from_secs(30);
/// CPU time in a step that is no rest.
const BUSY: Duration = Duration::from_millis(4);
const WARM_UP: usize = 2;

/// Runs all phases.
///
/// # Errors
/// When the server cannot be started, loses a stream or takes longer than the limits.
pub async fn run(options: &Options, broadcaster: &Path) -> Result<Results> {
    let options = options.effective();
    options.sizes.check()?;
    let temporary = tempfile::tempdir().context("cannot make a folder for the mesh")?;
    let base = options.keep.clone().unwrap_or_else(|| temporary.path().to_owned());
    let (folder, mesh_config) = (base.join("mesh"), base.join("mesh-config.yaml"));
    let folder = Folder::create(&folder, &mesh_config, options.sizes)?;
    let arguments = ["--mesh-config".into(), mesh_config.into_os_string()];
    let server =
        Server::pilotfish_with(&options.pilotfish, &base.join("mesh"), &arguments, base.join("log")).await?;
    let mut bench = Bench {
        options: &options,
        folder,
        server,
        round: 0,
        memory: Vec::new(),
        floors: (!options.no_floor).then(|| Broadcaster::new(broadcaster)),
    };
    let results = bench.all().await;
    bench.server.stop().await?;
    results
}

impl Options {
    /// The same with fewer rounds where that is asked for.
    fn effective(&self) -> Self {
        let mut options = self.clone();
        if self.quick {
            options.rounds = self.rounds.min(5);
            options.changes = self.changes.min(2);
            options.reconnects = self.reconnects.min(1);
            options.further = self.further.min(20);
            options.churn = self.churn.min(5);
            options.no_floor = true;
        }
        options
    }
}

struct Bench<'a> {
    options: &'a Options,
    folder: Folder,
    server: Server,
    /// The number of the last round: each differs from all others.
    round: usize,
    memory: Vec<Memory>,
    floors: Option<Broadcaster>,
}

impl Bench<'_> {
    async fn all(&mut self) -> Result<Results> {
        let machine = MachineTimes::now()?;
        let (cpu, client_cpu) = (self.server.cpu()?, CpuTimes::own()?);
        let start = self.server.start;
        self.note_memory("ready, no proxies")?;
        let (fleet, cold) = self.cold().await?;
        let content = fleet.content();
        let idle_cpu = self.idle().await?;
        let further_known = self.further(&fleet, false).await?;
        let further_new = self.further(&fleet, true).await?;
        self.note_memory("after further proxies left")?;
        let mut rows = self.endpoint_rows(&fleet).await?;
        rows.extend(self.config_rows(&fleet).await?);
        self.note_memory("after all changes")?;
        let reconnects = self.reconnects(&fleet, false).await?;
        let resumes = self.reconnects(&fleet, true).await?;
        self.note_memory("after all reconnects")?;
        drop(fleet);
        rows.push(self.churn().await?);
        self.note_memory("after all")?;
        let known = self.server.cpu()?.since(&cpu) + CpuTimes::own()?.since(&client_cpu);
        let foreign = MachineTimes::now()?.foreign_since(&machine, known);
        let (_, memory_most) = self.server.memory()?;
        let cold_floor = self.floors(&mut rows, &cold).await?;
        Ok(Results {
            start,
            cold,
            cold_floor,
            content,
            idle_cpu,
            further_known,
            further_new,
            rows,
            reconnects,
            resumes,
            memory: std::mem::take(&mut self.memory),
            memory_most,
            foreign,
        })
    }

    fn nodes(&self, pods: impl Iterator<Item = Pod>) -> Vec<Node> {
        pods.map(|pod| self.options.sizes.proxy(&pod)).collect()
    }

    /// All proxies, from nothing.
    async fn cold(&mut self) -> Result<(Fleet, Everybody)> {
        let sizes = self.options.sizes;
        let nodes = self.nodes((0..sizes.pods).map(|index| sizes.pod(index)));
        let (cpu, client) = (self.server.cpu()?, CpuTimes::own()?);
        let fleet = Fleet::start(self.server.xds, nodes);
        let wall = fleet.synced(SYNC_LIMIT).await?;
        let (cpu, client_cpu) = (self.server.cpu()?.since(&cpu), CpuTimes::own()?.since(&client));
        let sent = fleet.sent();
        self.rest(&fleet).await?;
        let memory = self.note_memory("all cold proxies in sync")?;
        eprintln!(
            "bench: {} proxies in sync after {:.2} s, server CPU {:.2} s",
            sizes.pods,
            wall.as_secs_f64(),
            cpu.as_secs_f64()
        );
        Ok((fleet, Everybody { wall, cpu, client_cpu, sent, first_change: None, memory }))
    }

    async fn idle(&self) -> Result<Duration> {
        let before = self.server.cpu()?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(self.server.cpu()?.since(&before))
    }

    /// Waits until the server has nothing to do and nothing comes any more; when that began.
    async fn rest(&self, fleet: &Fleet) -> Result<Instant> {
        let began = Instant::now();
        let mut busy = fleet.last_message();
        let mut before = self.server.cpu()?;
        while began.elapsed() < REST_LIMIT && busy.elapsed().min(began.elapsed()) < REST {
            tokio::time::sleep(STEP).await;
            let now = self.server.cpu()?;
            if now.since(&before) > BUSY {
                busy = Instant::now();
            }
            busy = busy.max(fleet.last_message());
            before = now;
        }
        fleet.check()?;
        Ok(busy)
    }

    fn note_memory(&mut self, when: &str) -> Result<u64> {
        let (bytes, _) = self.server.memory()?;
        eprintln!("bench: {when}: {:.1} MB resident", bytes_as_megabytes(bytes));
        self.memory.push(Memory { when: when.to_owned(), bytes });
        Ok(bytes)
    }

    /// What proxies beyond those of the mesh cost. Their Pods are there before; they leave again.
    async fn further(&mut self, fleet: &Fleet, new: bool) -> Result<Further> {
        let (sizes, count) = (self.options.sizes, self.options.further.min(sizes_limit(&self.options.sizes)));
        let pods: Vec<Pod> = (0..count).map(|index| sizes.further_pod(index, new)).collect();
        let file = if new { "further-new.yaml" } else { "further-known.yaml" };
        self.folder.add_pods(file, &pods)?;
        // First the server has to notice.
        tokio::time::sleep(REST).await;
        self.rest(fleet).await?;
        let (before, _) = self.server.memory()?;
        let more = Fleet::start(self.server.xds, self.nodes(pods.into_iter()));
        more.synced(SYNC_LIMIT).await?;
        self.rest(&more).await?;
        let (with, _) = self.server.memory()?;
        drop(more);
        self.folder.remove(file)?;
        tokio::time::sleep(REST).await;
        self.rest(fleet).await?;
        let further = Further { proxies: count, before, with };
        eprintln!(
            "bench: a further {}: {:.1} KB",
            if new { "workload" } else { "proxy" },
            further.each() / 1e3
        );
        Ok(further)
    }

    /// One change, until the last proxy that it concerns has it.
    async fn change(&mut self, fleet: &Fleet, edit: Edit, wanted: usize, quiet: Duration) -> Result<Sample> {
        // The service that comes and goes keeps its number.
        if edit != Edit::ServiceRemoved {
            self.round += 1;
        }
        let prepared = self.folder.prepare(edit, self.round)?;
        let before = self.server.cpu()?;
        let round = fleet.round(wanted);
        prepared.commit()?;
        let reached = round.reached(CHANGE_LIMIT, quiet).await?;
        Ok(Sample { reached, cpu: self.server.cpu()?.since(&before) })
    }

    async fn row(
        &mut self,
        fleet: &Fleet,
        edits: &[Edit],
        rounds: usize,
        quiet: Duration,
    ) -> Result<Vec<Row>> {
        let mut rows: Vec<Row> = edits
            .iter()
            .map(|edit| Row {
                name: edit.name().to_owned(),
                wanted: self.folder.concerned(*edit),
                samples: Vec::new(),
                floor: None,
            })
            .collect();
        for number in 0..WARM_UP.min(rounds) + rounds {
            for (edit, row) in edits.iter().zip(&mut rows) {
                let sample =
                    self.change(fleet, *edit, row.wanted, quiet).await.with_context(|| row.name.clone())?;
                if number >= WARM_UP.min(rounds) {
                    row.samples.push(sample);
                }
            }
        }
        for row in &rows {
            eprintln!("bench: {}", super::report::line(row));
        }
        Ok(rows)
    }

    async fn endpoint_rows(&mut self, fleet: &Fleet) -> Result<Vec<Row>> {
        let mut rows = self.row(fleet, &[Edit::EndpointOfAll], self.options.rounds, QUIET).await?;
        rows.extend(self.row(fleet, &[Edit::EndpointOfSome], self.options.rounds, QUIET).await?);
        Ok(rows)
    }

    async fn config_rows(&mut self, fleet: &Fleet) -> Result<Vec<Row>> {
        let kinds: [&[Edit]; 9] = [
            &[Edit::Routes],
            &[Edit::DestinationRule],
            &[Edit::Sidecar],
            &[Edit::ServiceAdded, Edit::ServiceRemoved],
            &[Edit::WorkloadPolicy],
            &[Edit::NamespacePolicy],
            &[Edit::PeerAuthentication],
            &[Edit::MeshAccessLog],
            &[Edit::MeshConnectTimeout],
        ];
        let mut rows = Vec::new();
        for edits in kinds {
            rows.extend(self.row(fleet, edits, self.options.changes, CONFIG_QUIET).await?);
            self.rest(fleet).await?;
        }
        Ok(rows)
    }

    /// Everybody leaves and comes back, and an endpoint changes at once then.
    async fn reconnects(&mut self, fleet: &Fleet, keep: bool) -> Result<Vec<Everybody>> {
        let mut all = Vec::new();
        for number in 1..=self.options.reconnects {
            let (cpu, client, sent) = (self.server.cpu()?, CpuTimes::own()?, fleet.sent());
            let began = Instant::now();
            fleet.reconnect(keep);
            let mut wall =
                if keep { fleet.opened(SYNC_LIMIT).await? } else { fleet.synced(SYNC_LIMIT).await? };
            if keep {
                // Who is up to date may be sent nothing: it is done when the server has nothing left to do.
                wall = wall.max(self.rest(fleet).await?.saturating_duration_since(began));
            }
            let (cpu, client_cpu) = (self.server.cpu()?.since(&cpu), CpuTimes::own()?.since(&client));
            let sent = fleet.sent().since(&sent);
            let wanted = self.folder.concerned(Edit::EndpointOfAll);
            let first =
                self.change(fleet, Edit::EndpointOfAll, wanted, QUIET).await.context("after a reconnect")?;
            self.rest(fleet).await?;
            let how = if keep { "resumed" } else { "reconnected" };
            let memory = self.note_memory(&format!("everybody {how}, {number}"))?;
            eprintln!(
                "bench: everybody {how} within {:.2} s, server CPU {:.2} s, {:.2} MB; an endpoint change then {:.1} ms",
                wall.as_secs_f64(),
                cpu.as_secs_f64(),
                bytes_as_megabytes(sent.all_bytes()),
                milliseconds(first.reached.last)
            );
            all.push(Everybody { wall, cpu, client_cpu, sent, first_change: Some(first), memory });
        }
        Ok(all)
    }

    /// Endpoint changes to one half of the proxies, while the others leave and come back again and again.
    async fn churn(&mut self) -> Result<Row> {
        let sizes = self.options.sizes;
        let half = |turn: usize| (turn..sizes.pods).step_by(2).map(move |index| sizes.pod(index));
        let stay = Fleet::start(self.server.xds, self.nodes(half(0)));
        stay.synced(SYNC_LIMIT).await?;
        let come = Fleet::start(self.server.xds, self.nodes(half(1)));
        let mut row = Row {
            name: "endpoint, while half of all reconnect".into(),
            wanted: stay.size(),
            samples: Vec::new(),
            floor: None,
        };
        let coming = async {
            loop {
                come.synced(SYNC_LIMIT).await?;
                come.reconnect(false);
            }
        };
        let changing = async {
            for _ in 0..self.options.churn {
                let sample = self.change(&stay, Edit::EndpointOfAll, stay.size(), QUIET).await?;
                row.samples.push(sample);
            }
            Ok::<_, anyhow::Error>(())
        };
        tokio::select! {
            ended = coming => ended,
            done = changing => done,
        }
        .context("while others reconnect")?;
        eprintln!("bench: {}", super::report::line(&row));
        Ok(row)
    }

    /// A broadcast beside each row, and beside the cold start.
    async fn floors(&mut self, rows: &mut [Row], cold: &Everybody) -> Result<Option<Floor>> {
        let Some(floors) = &mut self.floors else { return Ok(None) };
        for row in rows {
            let streams = row.samples.iter().map(|sample| sample.reached.concerned).max().unwrap_or_default();
            if streams > 0 {
                row.floor = Some(floors.change(streams, row.bytes_each()).await?);
            }
        }
        let proxies = self.options.sizes.pods;
        floors.sync(proxies, cold.sent.all_bytes() / proxies.max(1) as u64).await.map(Some)
    }
}

impl Row {
    /// Bytes to each proxy that was concerned, the mean of all rounds.
    #[must_use]
    pub fn bytes_each(&self) -> u64 {
        let bytes: u64 = self.samples.iter().map(|sample| sample.reached.sent.all_bytes()).sum();
        let proxies: usize = self.samples.iter().map(|sample| sample.reached.concerned).sum();
        bytes / proxies.max(1) as u64
    }
}

/// The addresses for further Pods.
fn sizes_limit(sizes: &Sizes) -> usize {
    sizes.services.max(1) * 4
}

#[allow(clippy::cast_precision_loss)]
fn bytes_as_megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
