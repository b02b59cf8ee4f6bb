//! Runs attacks one after the other, and compares the measurements of honest clients with the bounds.

use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use parking_lot::Mutex;
use tokio::runtime::Runtime;
use tokio::time::Instant;

use crate::bounds::Bounds;
use crate::honest::Fleet;
use crate::mesh::{Mesh, Usage};
use crate::operator::Operator;
use crate::report::{Report, Row};
use crate::watch::{Seen, Stop, push, watch};
use crate::{Attack, Deadline, Tally};

/// Options of a run.
pub struct Options {
    pub pilotfish: PathBuf,
    /// Attacks in their order.
    pub attacks: Vec<Attack>,
    /// Duration of each attack.
    pub time: Duration,
    pub bounds: Bounds,
}

/// Number of honest proxies that stay connected.
const PROXIES: usize = 20;
/// Maximum time of their connection before any attack.
const START: Duration = Duration::from_secs(60);
/// Maximum time until an attack ends after its deadline.
const GRACE: Duration = Duration::from_secs(20);
/// Increase of files and sockets that counts as restored: those of concurrent requests.
const FILES_SLACK: usize = 24;
/// Number of attacks between two checks of memory, if it is not checked after each.
const GROUP: usize = 10;
/// Interval of checks for the restored state.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// Threads of an attack, and their niceness: a real attacker uses another machine, so honest proxies and the
/// control plane must not wait for its processor.
const ATTACK_THREADS: usize = 2;
const NICENESS: i32 = 10;

/// Runs all attacks.
///
/// # Errors
/// If something cannot be started. Findings are in the report.
pub async fn run(options: &Options, progress: impl Fn(&Row)) -> Result<Report> {
    let mesh = Mesh::start(&options.pilotfish).await?;
    let fleet = Fleet::start(&mesh.ways, PROXIES, mesh.namespace(), START).await?;
    let operator = Operator::new(&mesh).await?;
    let mut run = Run { mesh, fleet, operator, bounds: options.bounds, numbers: AtomicUsize::new(0) };
    run.warm_up().await?;
    let clients = if run.mesh.has_envoy() { PROXIES + 1 } else { PROXIES };
    let first = run.mesh.usage()?;
    let mut report = Report { rows: Vec::new(), envoy: run.mesh.has_envoy() };
    let calm = run.calm(options.time).await?;
    progress(&calm);
    report.rows.push(calm);
    for attacks in options.attacks.chunks(GROUP) {
        for attack in attacks {
            let row = run.attack(attack, options.time, clients).await?;
            progress(&row);
            report.rows.push(row);
        }
        if !options.bounds.memory_after_each {
            let row = run.after(attacks, first, clients).await?;
            progress(&row);
            report.rows.push(row);
        }
    }
    Ok(report)
}

struct Run {
    mesh: Mesh,
    fleet: Fleet,
    operator: Operator,
    bounds: Bounds,
    /// Number of changes and new proxies so far: each is different.
    numbers: AtomicUsize,
}

impl Run {
    /// Does everything that is counted once before, so that first-time costs do not count for an attack.
    async fn warm_up(&mut self) -> Result<()> {
        let seen = Mutex::new(Seen::default());
        let generous = Bounds { fresh: START, push: START, ..self.bounds };
        for _ in 0..4 {
            push(&self.mesh, &self.fleet, &generous, &self.numbers, &seen).await;
        }
        for index in 0..4 {
            self.mesh.ways.fresh(PROXIES + index, self.mesh.namespace(), START).await?;
            self.mesh.agent.renew(START).await.context("a certificate before any attack")?;
        }
        let missing = seen.lock().missing;
        anyhow::ensure!(
            missing == 0,
            "proxies are not told of changes before any attack\n{}",
            self.mesh.printed()
        );
        self.operator.warm_up(&self.mesh, START).await?;
        self.mesh.take_traffic();
        self.fleet.take_ended();
        let clients = if self.mesh.has_envoy() { PROXIES + 1 } else { PROXIES };
        let settled = self.recovered(self.mesh.usage()?, clients, false).await?;
        anyhow::ensure!(settled.misses.is_empty(), "before any attack: {}", settled.misses.join("; "));
        Ok(())
    }

    /// Figures of honest clients without an attack, to which those beside each attack compare.
    async fn calm(&mut self, time: Duration) -> Result<Row> {
        let before = self.mesh.usage()?;
        let seen = Mutex::new(Seen { memory: before.memory, ..Seen::default() });
        let stop = Stop::default();
        let ended = async {
            tokio::time::sleep(time).await;
            stop.now();
        };
        let watched =
            watch(&self.mesh, &self.fleet, &self.operator, &self.bounds, &self.numbers, &seen, &stop);
        tokio::join!(ended, watched);
        let seen = seen.into_inner();
        let after = self.mesh.usage()?;
        let (envoy_requests, misses) = self.broken();
        Ok(Row {
            name: "(no attack)".to_owned(),
            what: "Figures of honest clients without an attack".to_owned(),
            seconds: time.as_secs_f64(),
            seen: (&seen).into(),
            memory_before: before.memory,
            memory_most: seen.memory,
            memory_after: after.memory,
            log: after.log.saturating_sub(before.log),
            envoy_requests,
            misses,
            ..Row::default()
        })
    }

    async fn attack(&mut self, attack: &Attack, time: Duration, clients: usize) -> Result<Row> {
        let before = self.mesh.usage()?;
        let seen = Mutex::new(Seen { memory: before.memory, ..Seen::default() });
        let began = Instant::now();
        let attacker = Attacker::start(&self.mesh, attack, time)?;
        let stop = Stop::default();
        let attacked = async {
            let tally = attacker.ended(time + GRACE).await;
            let lasted = began.elapsed();
            stop.now();
            (tally, lasted)
        };
        let watched =
            watch(&self.mesh, &self.fleet, &self.operator, &self.bounds, &self.numbers, &seen, &stop);
        let ((tally, lasted), ()) = tokio::join!(attacked, watched);
        drop(attacker);
        let seen = seen.into_inner();
        let skipped = tally.as_ref().ok().and_then(|tally| tally.skipped.clone());
        let mut misses = Vec::new();
        if skipped.is_none() {
            misses.extend(seen.misses(&self.bounds, PROXIES, before.memory));
        }
        let tally = tally.unwrap_or_else(|error| {
            misses.push(format!("attack: {error:#}"));
            Tally::default()
        });
        if skipped.is_none() && !tally.reached() {
            misses.push("attack: it never reached the server".to_owned());
        }
        let after = self.recovered(before, clients, self.bounds.memory_after_each).await?;
        misses.extend(after.misses);
        let log = after.usage.log.saturating_sub(before.log);
        if log > self.bounds.log {
            misses.push(format!("log: {} KiB", log >> 10));
        }
        let (requests, broken) = self.broken();
        misses.extend(broken);
        if !misses.is_empty() && self.mesh.ready().await.is_err() {
            misses.push(format!("pilotfish printed last:\n{}", self.mesh.printed()));
        }
        Ok(Row {
            name: attack.name.to_owned(),
            what: attack.what.to_owned(),
            tally,
            seconds: lasted.as_secs_f64(),
            seen: (&seen).into(),
            memory_before: before.memory,
            memory_most: seen.memory,
            memory_after: after.usage.memory,
            recovered_after: after.took.as_secs_f64(),
            log,
            envoy_requests: requests,
            misses,
        })
    }

    /// Number of requests through the Envoy since the last call, and broken connections of honest clients.
    fn broken(&self) -> (usize, Vec<String>) {
        let mut broken = Vec::new();
        let (requests, failed) = self.mesh.take_traffic();
        if self.mesh.has_envoy() && (requests == 0 || !failed.is_empty()) {
            broken.push(format!("envoy: of {requests} requests failed: {}", failed.join("; ")));
        }
        let ended = self.fleet.take_ended();
        if let Some(first) = ended.first() {
            broken.push(format!("streams: {} of honest proxies ended: {first}", ended.len()));
        }
        (requests, broken)
    }

    /// Waits until the original state is restored.
    async fn recovered(&self, before: Usage, clients: usize, memory: bool) -> Result<Recovered> {
        let began = Instant::now();
        loop {
            let usage = self.mesh.usage()?;
            let connected = self.mesh.clients().await;
            let mut misses = Vec::new();
            if memory && !self.bounds.is_back(before.memory, usage.memory) {
                let (was, is) = (before.memory >> 20, usage.memory >> 20);
                misses.push(format!("memory afterwards: {is} MiB, and was {was} MiB"));
            }
            if usage.files > before.files + FILES_SLACK {
                misses.push(format!(
                    "connections afterwards: {} files, and were {}",
                    usage.files, before.files
                ));
            }
            match connected {
                Ok(connected) if connected == clients => {}
                Ok(connected) => misses.push(format!("clients afterwards: {connected}, and were {clients}")),
                Err(error) => misses.push(format!("metrics afterwards: {error:#}")),
            }
            let took = began.elapsed();
            if misses.is_empty() || took > self.bounds.recovery {
                return Ok(Recovered { usage, took, misses });
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    /// Compares memory after these attacks with that before the first of all.
    async fn after(&self, attacks: &[Attack], first: Usage, clients: usize) -> Result<Row> {
        let after = self.recovered(first, clients, true).await?;
        let last = attacks.last().map_or("nothing", |attack| attack.name);
        Ok(Row {
            name: "memory".to_owned(),
            what: format!("Memory after {last}, and before all attacks"),
            memory_before: first.memory,
            memory_most: after.usage.memory,
            memory_after: after.usage.memory,
            recovered_after: after.took.as_secs_f64(),
            misses: after.misses,
            ..Row::default()
        })
    }
}

struct Recovered {
    usage: Usage,
    took: Duration,
    misses: Vec<String>,
}

/// An attack on its own threads. Its remaining tasks end on drop.
struct Attacker {
    runtime: Option<Runtime>,
    result: tokio::sync::Mutex<tokio::task::JoinHandle<Result<Tally>>>,
}

impl Attacker {
    fn start(mesh: &Mesh, attack: &Attack, time: Duration) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(ATTACK_THREADS)
            .thread_name("attacker")
            .enable_all()
            .on_thread_start(|| {
                // Without that permission, the attack is only slightly stronger.
                let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICENESS);
            })
            .build()
            .context("no threads for the attack")?;
        let deadline = Deadline::after(time);
        let result = runtime.spawn(mesh.attacked_by(attack, deadline));
        Ok(Self { runtime: Some(runtime), result: tokio::sync::Mutex::new(result) })
    }

    async fn ended(&self, limit: Duration) -> Result<Tally> {
        let mut result = self.result.lock().await;
        match tokio::time::timeout(limit, &mut *result).await {
            Ok(ended) => ended.context("it panicked")?,
            Err(_) => Err(anyhow!("it has not ended after {limit:?}")),
        }
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
