//! Benchmark of a live registry: time to ready, memory, the latency of a change to a proxy, compared with a
//! bare client of the product, and the cost of a minute without changes. `cargo xtask bench --registry NAME`
//! runs it on a release build.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool")]

mod consul;
mod dns;
mod etcd;
mod eureka;
mod grpc;
mod http_api;
mod mcp;
mod measure;
mod nacos;
mod polaris;
mod process;
mod registration;
mod zookeeper;

use anyhow::{Context, Result, bail};
use clap::Parser;
use pilotfish_testkit::real::Host;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Subject and sizes of the benchmark.
#[derive(Clone, Parser)]
struct Options {
    /// The registry to measure
    #[arg(value_name = "NAME")]
    registry: String,
    /// The Pilotfish to measure
    #[arg(long, value_name = "FILE")]
    pilotfish: PathBuf,
    /// Number of services in the registry
    #[arg(long, default_value_t = 5_000)]
    services: usize,
    /// Number of instances of each service
    #[arg(long, default_value_t = 10)]
    instances: usize,
    /// Changes that are measured
    #[arg(long, default_value_t = 50)]
    rounds: usize,
    /// Seconds without a change, in which requests are counted
    #[arg(long, default_value_t = 60)]
    quiet: u64,
}

/// Texts that a bare client gets, with their times.
type Seen = mpsc::UnboundedReceiver<(String, Instant)>;

/// Sender of the texts.
type Say = mpsc::UnboundedSender<(String, Instant)>;

/// A product with its server.
trait Product: Sync {
    /// Returns the value of `--registry`.
    fn registry(&self) -> String;

    /// Registers all instances of all services.
    fn fill(&self, options: &Options) -> impl Future<Output = Result<()>> + Send {
        measure::one_by_one(options, self)
    }

    /// Registers instance `index` of service `number` at an address, by the product's own protocol. Where an
    /// instance is known by its address, this is one more.
    fn register(&self, number: usize, index: usize, address: &str)
    -> impl Future<Output = Result<()>> + Send;

    /// A client that only follows service 0: every text that it is sent, and when.
    fn watch(&self) -> impl Future<Output = Result<Seen>> + Send;
}

/// The name of a service.
fn service(number: usize) -> String {
    format!("service-{number:05}")
}

/// The address of an instance, which no other one has.
fn address(options: &Options, number: usize, index: usize) -> String {
    let all = number * options.instances + index;
    format!("10.{}.{}.{}", 1 + all / 62_500, all / 250 % 250, 1 + all % 250)
}

const QUIET: fn(&Options) -> Duration = |options| Duration::from_secs(options.quiet);

fn main() -> Result<()> {
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match options.registry.as_str() {
            "consul" => measure::run(&options, consul::Consul::start().await?).await,
            "dns" => measure::run(&options, dns::Dns::start(&options).await?).await,
            "etcd" => measure::run(&options, etcd::Etcd::start().await?).await,
            "eureka" => measure::run(&options, eureka::Eureka::start().await?).await,
            "mcp" => measure::run(&options, mcp::Mcp::start(&options).await?).await,
            "nacos" => {
                // rnacos listens at all addresses.
                let host = Host::new().context("network namespaces may not be made here")?;
                host.here(async move { measure::run(&options, nacos::Nacos::start().await?).await }).await
            }
            "polaris" => measure::run(&options, polaris::Polaris::start().await?).await,
            "registration" => registration::run(&options).await,
            "zookeeper" => measure::run(&options, zookeeper::Server::start().await?).await,
            other => bail!(
                "there is no bench of {other:?}; known are consul, dns, etcd, eureka, mcp, nacos, polaris, \
                 registration, zookeeper"
            ),
        }
    })
}
