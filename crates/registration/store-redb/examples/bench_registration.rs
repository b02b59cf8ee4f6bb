//! The bench of registration on the embedded store: `cargo xtask bench --registration`.
//!
//! It calls the registrar like a server, without sockets. CPU time is that of the whole process: callers,
//! registrar and store.

#![allow(clippy::print_stdout, reason = "a bench prints what it measured")]

use anyhow::{Context as _, Result, ensure};
use pilotfish_registration::{
    Caller, Expected, Filter, Instance, InstanceKey, Register, Registrar, RegistrarSettings, Registration,
    RegistrationPort, WatchFrom,
};
use pilotfish_registration_redb::{FILE_NAME, OpenStore, RedbStore};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Number of registered instances.
const INSTANCES: usize = 100_000;
/// Number of instances of one service.
const IN_SERVICE: usize = 100;
/// Number of concurrent calls that register or renew one instance each.
const CLIENTS: usize = 512;
/// Number of instances in a batch.
const BATCH: usize = 100;
/// Number of concurrent batches.
const BATCHES: usize = 16;
/// Renewal interval of an instance.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// A measurement and its bar.
struct Bar {
    name: &'static str,
    value: f64,
    unit: &'static str,
    /// Minimum (positive) or maximum (negative); zero for no bar.
    bar: f64,
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<ExitCode> {
    // Memory is measured in a new process.
    if let Some(directory) = std::env::args().skip_while(|argument| argument != RESTART).nth(1) {
        let mut bars = Vec::new();
        restart(Path::new(&directory), &mut bars).await?;
        return Ok(print(bars));
    }
    let mut bars = Vec::new();
    let directory = tempfile::tempdir().context("a directory for the store")?;
    registrations(directory.path(), &mut bars).await?;
    let written = print(bars);
    let mut restarted = std::process::Command::new(std::env::current_exe()?);
    let restarted = restarted.arg(RESTART).arg(directory.path()).status().context("starting again")?;
    Ok(if restarted.success() { written } else { ExitCode::FAILURE })
}

/// Argument of the second process, which opens the store again.
const RESTART: &str = "--restart";

fn print(bars: Vec<Bar>) -> ExitCode {
    let mut is_good = true;
    println!("\n| | | bar |\n|---|---|---|");
    for Bar { name, value, unit, bar } in bars {
        let is_met = bar == 0.0 || if bar > 0.0 { value >= bar } else { value <= -bar };
        is_good &= is_met;
        let bar = match bar {
            0.0 => String::new(),
            bar if bar > 0.0 => format!("at least {bar}"),
            bar => format!("at most {}", -bar),
        };
        println!("| {name} | {value:.2} {unit} | {bar}{} |", if is_met { "" } else { ": MISSED" });
    }
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Registers all instances, one by one and in batches, and measures latency at rest.
async fn registrations(directory: &Path, bars: &mut Vec<Bar>) -> Result<()> {
    let singles = tempfile::tempdir().context("a directory for the store")?;
    let opened = open(singles.path()).await?;
    let work = Arc::new(AtomicUsize::new(0));
    let (wall, cpu) = measure(CLIENTS, &opened.0, &work, INSTANCES / 4, 1).await?;
    report("registrations, one a call", INSTANCES / 4, wall, cpu, 36_000.0, bars);
    latency(&opened.0, bars).await?;
    opened.close().await?;
    let opened = open(directory).await?;
    let work = Arc::new(AtomicUsize::new(0));
    let (wall, cpu) = measure(BATCHES, &opened.0, &work, INSTANCES, BATCH).await?;
    report("registrations, batches of 100", INSTANCES, wall, cpu, 36_000.0, bars);
    // A copy of the open file, as a killed process leaves it.
    let killed = tempfile::tempdir().context("a directory for the store")?;
    std::fs::copy(directory.join(FILE_NAME), killed.path().join(FILE_NAME)).context("copying the file")?;
    opened.close().await?;
    let begin = Instant::now();
    let opened = open(killed.path()).await?;
    let time = begin.elapsed().as_secs_f64();
    ensure!(opened.0.stats().counts.instances() == INSTANCES, "not all came back");
    bars.push(Bar { name: "restart with 100,000 instances after a kill", value: time, unit: "s", bar: -2.0 });
    opened.close().await
}

/// Registers instances with concurrent callers. Returns elapsed time and CPU time.
async fn measure(
    callers: usize,
    registrar: &Registrar,
    work: &Arc<AtomicUsize>,
    count: usize,
    batch: usize,
) -> Result<(Duration, Duration)> {
    let (begin, cpu) = (Instant::now(), cpu_time());
    let tasks = (0..callers).map(|_| {
        let (registrar, work) = (registrar.clone(), Arc::clone(work));
        tokio::spawn(async move {
            let caller = caller();
            loop {
                let first = work.fetch_add(batch, Ordering::Relaxed);
                if first >= count {
                    return Ok(());
                }
                let instances = (first..count.min(first + batch)).map(instance);
                let batch =
                    instances.map(|instance| Register { instance, expected: Expected::Any }).collect();
                for answer in registrar.register(&caller, batch).await {
                    ensure!(answer.context("a registration failed")?.changed, "registered twice");
                }
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.context("a caller")??;
    }
    Ok((begin.elapsed(), cpu_time() - cpu))
}

/// Measures the time from one registration to its watch event.
async fn latency(registrar: &Registrar, bars: &mut Vec<Bar>) -> Result<()> {
    let mut watch = registrar.watch(&caller(), Filter::default(), WatchFrom::Snapshot)?;
    while watch.next().await?.is_partial {}
    let mut times = Vec::new();
    for number in 0..200 {
        let begin = Instant::now();
        let register = Register { instance: instance(10 * INSTANCES + number), expected: Expected::Absent };
        for answer in registrar.register(&caller(), vec![register]).await {
            answer?;
        }
        watch.next().await?;
        times.push(begin.elapsed());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    times.sort();
    let millis = |index: usize| times.get(index).map_or(0.0, |time| time.as_secs_f64() * 1e3);
    bars.push(Bar {
        name: "registered, durable and told, median",
        value: millis(100),
        unit: "ms",
        bar: -10.0,
    });
    bars.push(Bar { name: "registered, durable and told, p99", value: millis(198), unit: "ms", bar: 0.0 });
    Ok(())
}

/// Opens the full store again, and renews all leases.
async fn restart(directory: &Path, bars: &mut Vec<Bar>) -> Result<()> {
    let before = resident();
    let begin = Instant::now();
    let opened = open(directory).await?;
    let time = begin.elapsed().as_secs_f64();
    ensure!(opened.0.stats().counts.instances() == INSTANCES, "not all came back");
    bars.push(Bar { name: "restart with 100,000 instances", value: time, unit: "s", bar: -2.0 });
    let resident = (resident() - before) / INSTANCES as f64;
    bars.push(Bar {
        name: "resident memory of an instance",
        value: resident * 1024.0,
        unit: "bytes",
        bar: 0.0,
    });
    let bytes = opened.0.store().bytes.unwrap_or_default() as f64 / INSTANCES as f64;
    let keys: Arc<Vec<InstanceKey>> = Arc::new((0..INSTANCES).map(|number| instance(number).key).collect());
    heartbeats(&opened.0, &keys, 1, 80_000.0, "heartbeats, one a call", bars).await?;
    heartbeats(&opened.0, &keys, BATCH, 80_000.0, "heartbeats, batches of 100", bars).await?;
    share(&opened.0, &keys, bars).await?;
    bars.push(Bar { name: "file of an instance", value: bytes, unit: "bytes", bar: 0.0 });
    opened.close().await
}

/// Renews all leases several times.
async fn heartbeats(
    registrar: &Registrar,
    keys: &Arc<Vec<InstanceKey>>,
    batch: usize,
    bar: f64,
    name: &'static str,
    bars: &mut Vec<Bar>,
) -> Result<()> {
    const ROUNDS: usize = 10;
    let work = Arc::new(AtomicUsize::new(0));
    let (begin, cpu) = (Instant::now(), cpu_time());
    let tasks = (0..BATCHES).map(|_| {
        let (registrar, work, keys) = (registrar.clone(), Arc::clone(&work), Arc::clone(keys));
        tokio::spawn(async move {
            let caller = caller();
            loop {
                let first = work.fetch_add(batch, Ordering::Relaxed);
                if first >= ROUNDS * INSTANCES {
                    return Ok(());
                }
                let batch = keys.iter().cycle().skip(first % INSTANCES).take(batch).cloned().collect();
                for answer in registrar.renew(&caller, batch).await {
                    answer.context("a renewal failed")?;
                }
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.context("a caller")?.map_err(|error: anyhow::Error| error)?;
    }
    report(name, ROUNDS * INSTANCES, begin.elapsed(), cpu_time() - cpu, bar, bars);
    Ok(())
}

/// Measures the share of a core that heartbeats of all instances take, each in its own call.
async fn share(registrar: &Registrar, keys: &[InstanceKey], bars: &mut Vec<Bar>) -> Result<()> {
    const STEP: Duration = Duration::from_millis(10);
    let in_step = INSTANCES * usize::try_from(STEP.as_millis())? / usize::try_from(HEARTBEAT.as_millis())?;
    let (begin, cpu, caller) = (Instant::now(), cpu_time(), caller());
    let mut interval = tokio::time::interval(STEP);
    for chunk in keys.chunks(in_step) {
        interval.tick().await;
        for key in chunk {
            for answer in registrar.renew(&caller, vec![key.clone()]).await {
                answer.context("a renewal failed")?;
            }
        }
    }
    let (wall, cpu) = (begin.elapsed(), cpu_time() - cpu);
    ensure!(wall < HEARTBEAT * 2, "heartbeats of 10 s took {wall:?}");
    let share = cpu.as_secs_f64() / wall.as_secs_f64() * 100.0;
    bars.push(Bar {
        name: "100,000 instances with heartbeats of 10 s",
        value: share,
        unit: "% of a core",
        bar: -33.3,
    });
    Ok(())
}

fn report(name: &'static str, count: usize, wall: Duration, cpu: Duration, bar: f64, bars: &mut Vec<Bar>) {
    let per = |time: Duration| count as f64 / time.as_secs_f64();
    println!("{name}: {:.0} a second, {:.0} a second of CPU", per(wall), per(cpu));
    bars.push(Bar { name, value: per(cpu), unit: "a second and core", bar });
}

struct Opened(Registrar, tokio::task::JoinHandle<()>);

impl Opened {
    /// Closes the file, by dropping the last owner of the store.
    async fn close(self) -> Result<()> {
        let Self(registrar, driver) = self;
        driver.abort();
        ensure!(driver.await.is_err_and(|error| error.is_cancelled()), "the driver ended by itself");
        tokio::task::spawn_blocking(move || drop(registrar)).await.context("closing")
    }
}

async fn open(directory: &Path) -> Result<Opened> {
    let OpenStore { store, events } = RedbStore::open(directory)?;
    let (registrar, driver) = Registrar::new(Arc::new(store), events, RegistrarSettings::default());
    let driver = tokio::spawn(driver.run());
    ensure!(registrar.ready().await, "the store was closed");
    Ok(Opened(registrar, driver))
}

fn caller() -> Caller {
    Caller { identity: "bench".into(), may_take_over: false }
}

/// A typical instance: two labels, a zone, one port, a lease of 30 s.
fn instance(number: usize) -> Instance {
    let text = |text: &str| text.to_owned();
    let [.., second, third, fourth] = number.to_be_bytes();
    let registration = Registration {
        addresses: vec![format!("10.{second}.{third}.{fourth}")],
        ports: vec![RegistrationPort {
            number: 8080,
            service_port: 80,
            name: text("http"),
            protocol: text("http"),
        }],
        labels: [(text("version"), text("v1")), (text("app"), format!("service-{}", number / IN_SERVICE))]
            .into(),
        locality: format!("eu-west/eu-west-{}", number % 3),
        service_account: text("default"),
        ttl: Some(Duration::from_secs(30)),
        ..Registration::new(
            "default",
            &format!("service-{}", number / IN_SERVICE),
            &format!("instance-{number}"),
        )
    };
    registration.validate("cluster.local").expect("a good registration")
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Resident memory in KiB.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").trim().parse().unwrap_or_default()
}
