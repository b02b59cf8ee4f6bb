//! Command line of the benchmarks; `cargo xtask bench` runs it on its build.

// A command-line tool prints to the terminal.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use pilotfish_bench::broadcast::{self, Kind};
use pilotfish_bench::fleet::{Fleet, node};
use pilotfish_bench::world::{NAMESPACE, World};
use pilotfish_bench::{certificates, compare, mesh, report, scale};

/// Measures xDS servers under load.
#[derive(Parser)]
#[command(name = "pilotfish-bench", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Threads of this process: of the load client, or of the broadcast server
    #[arg(long, global = true, value_name = "N", default_value_t = 1)]
    threads: usize,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Measure Pilotfish beside servers that only broadcast; exit code 1 when a bar is missed
    Compare(compare::Options),
    /// Measure Pilotfish with a mesh in which every proxy is a Pod of its own; exit code 1 when a bar is
    /// missed
    Mesh(mesh::Options),
    /// Measure Pilotfish with large worlds, many streams, storms, slow readers and churn; exit code 1 when a
    /// bar is missed
    Scale(scale::Options),
    /// Measure certificates that Pilotfish signs, beside rcgen alone; exit code 1 when a bar is missed
    Certificates(certificates::Options),
    /// A server that only broadcasts; prints its addresses
    Broadcast {
        /// Transport of the server
        #[arg(long, value_enum, default_value = "tonic")]
        kind: Kind,
        /// Number of clusters to serve
        #[arg(long, default_value_t = 1_000)]
        clusters: usize,
        /// Endpoints of each cluster
        #[arg(long, default_value_t = 10)]
        endpoints: usize,
    },
    /// Connect N proxies to an xDS server, and stay
    Load {
        /// Address of the server
        #[arg(long, default_value = "127.0.0.1:15010")]
        target: SocketAddr,
        /// Number of proxies to connect
        #[arg(long, default_value_t = 1_000)]
        streams: usize,
        /// Namespace of the proxies
        #[arg(long, default_value = NAMESPACE)]
        namespace: String,
        /// Seconds to stay connected once all are in sync
        #[arg(long, default_value_t = 0)]
        hold: u64,
    },
    /// Write a world as YAML files
    World {
        /// Folder for the files; must exist
        folder: PathBuf,
        /// Number of services to write
        #[arg(long, default_value_t = 1_000)]
        services: usize,
        /// Endpoints of each service
        #[arg(long, default_value_t = 10)]
        endpoints: usize,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(cli.threads.max(1)).enable_all().build();
    let done = runtime.context("cannot start the runtime").and_then(|runtime| {
        // Spawned, since this thread is not a worker: then every task runs on the thread of the sockets.
        runtime.block_on(async { tokio::spawn(run(cli.command)).await.context("the bench panicked")? })
    });
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> Result<bool> {
    match command {
        Command::Compare(options) => compare(&options).await,
        Command::Mesh(options) => mesh(&options).await,
        Command::Scale(options) => {
            let bars = scale::run(&options).await?;
            println!("{}", report::bar_lines(&bars));
            Ok(bars.iter().all(report::Bar::passes))
        }
        Command::Certificates(options) => {
            let bars = certificates::run(&options).await?;
            println!("{}", report::bar_lines(&bars));
            Ok(bars.iter().all(report::Bar::passes))
        }
        Command::Broadcast { kind, clusters, endpoints } => {
            broadcast::serve(kind, clusters, endpoints).await.map(|()| true)
        }
        Command::Load { target, streams, namespace, hold } => {
            let fleet = Fleet::start(target, (0..streams).map(|index| node(index, &namespace)).collect());
            let synced = fleet.synced(Duration::from_secs(120)).await?;
            println!(
                "{streams} streams in sync after {:.2} s, {} bytes",
                synced.wall.as_secs_f64(),
                synced.bytes
            );
            tokio::time::sleep(Duration::from_secs(hold)).await;
            Ok(true)
        }
        Command::World { folder, services, endpoints } => {
            World::create(&folder, services, endpoints)?;
            Ok(true)
        }
    }
}

async fn mesh(options: &mesh::Options) -> Result<bool> {
    let bench = std::env::current_exe().context("cannot find the running executable")?;
    mesh::print(&mesh::run(options, &bench).await?, options)
}

fn write_json(path: &std::path::Path, value: &serde_json::Value) -> Result<()> {
    let text = serde_json::to_string_pretty(value)?;
    std::fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))
}

async fn compare(options: &compare::Options) -> Result<bool> {
    let results = compare::run(options).await?;
    println!("{}", report::text(&results, options));
    if let Some(path) = &options.json {
        write_json(path, &report::json(&results, options))?;
    }
    Ok(report::bars(&results, options).iter().all(report::Bar::passes))
}
