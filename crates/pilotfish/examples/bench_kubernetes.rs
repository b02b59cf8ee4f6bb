//! Benchmark with a live cluster: time to ready, memory, and the latency of an EndpointSlice patch to the
//! last of N streams, compared with a bare watch client. `cargo xtask bench --kubernetes` runs it on a
//! release build.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool")]

use anyhow::{Context, Result};
use clap::Parser;
use futures::TryStreamExt;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, Patch, PatchParams, WatchEvent, WatchParams};
use pilotfish_bench::fleet::{Fleet, node};
use pilotfish_bench::stats::{milliseconds, percentile};
use pilotfish_testkit::real::{ApiServer, ApiServerOptions, Pilotfish};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Subject and sizes of the benchmark.
#[derive(Parser)]
struct Options {
    /// The Pilotfish to measure
    #[arg(long, value_name = "FILE")]
    pilotfish: PathBuf,
    /// Number of Services in the cluster
    #[arg(long, default_value_t = 1_000)]
    services: usize,
    /// Endpoints of each, each with a Pod
    #[arg(long, default_value_t = 10)]
    endpoints: usize,
    /// Number of proxies to connect
    #[arg(long, default_value_t = 1_000)]
    streams: usize,
    /// Patches that are measured
    #[arg(long, default_value_t = 50)]
    rounds: usize,
}

const NAMESPACE: &str = "bench";
const WARM_UP: usize = 5;
const BETWEEN_ROUNDS: Duration = Duration::from_millis(150);

fn main() -> Result<()> {
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run(&options))
}

async fn run(options: &Options) -> Result<()> {
    let server = ApiServer::start(ApiServerOptions::default()).await;
    let server = server.context("kube-apiserver or etcd is missing: run `cargo xtask tools`")?;
    let began = Instant::now();
    for services in (0..options.services).collect::<Vec<_>>().chunks(100) {
        let texts: Vec<String> = services.iter().map(|number| service(*number, options.endpoints)).collect();
        server.apply_many(&texts.concat()).await;
        eprintln!(
            "bench: {} services written after {:.0} s",
            services[0] + services.len(),
            began.elapsed().as_secs_f64()
        );
    }
    let began = Instant::now();
    let kubeconfig = server.kubeconfig().to_string_lossy().into_owned();
    let binary = options.pilotfish.to_string_lossy();
    let pilotfish = Pilotfish::launch(&binary, &["--kubernetes", "--kubeconfig", &kubeconfig]);
    pilotfish.ready().await;
    let ready = began.elapsed();
    let idle = pilotfish.metric("process_resident_memory_bytes").await;
    println!("ready after {:.2} s, {:.0} MB resident", ready.as_secs_f64(), idle / 1e6);

    let target = SocketAddr::from(([127, 0, 0, 1], pilotfish.xds_port()));
    let fleet = Fleet::start(target, (0..options.streams).map(|index| node(index, NAMESPACE)).collect());
    let sync = fleet.synced(Duration::from_secs(300)).await?;
    println!("{} streams in sync after {:.2} s", options.streams, sync.wall.as_secs_f64());
    patches(options, &server, &pilotfish, &fleet).await?;
    let memory = pilotfish.metric("process_resident_memory_bytes").await;
    println!("{:.0} MB resident with {} streams", memory / 1e6, options.streams);
    Ok(())
}

/// Patches a slice repeatedly, and prints the latencies of the bare client and of the last stream.
async fn patches(options: &Options, server: &ApiServer, pilotfish: &Pilotfish, fleet: &Fleet) -> Result<()> {
    let slices: Api<EndpointSlice> = Api::namespaced(server.client(), NAMESPACE);
    let mut seen = bare_watch(&slices).await?;
    let (mut floor, mut last) = (Vec::new(), Vec::new());
    let mut cpu = 0.0;
    for number in 0..WARM_UP + options.rounds {
        if number == WARM_UP {
            cpu = pilotfish.metric("process_cpu_seconds_total").await;
        }
        let address = format!("10.250.{}.{}", 100 + number / 100, 100 + number % 100);
        let patch =
            serde_json::json!({"endpoints": [{"addresses": [&address], "conditions": {"ready": true}}]});
        let began = Instant::now();
        let trigger = async {
            slices.patch("service-00000", &PatchParams::default(), &Patch::Merge(&patch)).await?;
            Ok(())
        };
        let reached =
            fleet.round(number, &address, options.streams, trigger, Duration::from_secs(60)).await?;
        let at = loop {
            let (wanted, at) = seen.recv().await.context("the bare watch ended")?;
            if wanted == address {
                break at;
            }
        };
        if number >= WARM_UP {
            floor.push(at.saturating_duration_since(began));
            last.push(reached.last);
        }
        tokio::time::sleep(BETWEEN_ROUNDS).await;
    }
    let cpu = (pilotfish.metric("process_cpu_seconds_total").await - cpu) / options.rounds as f64;
    let row = |name: &str, times: &[Duration]| {
        let at = |share| milliseconds(percentile(times, share));
        println!("{name:32} median {:7.1} ms   p99 {:7.1} ms", at(0.5), at(0.99));
    };
    row("a bare watch client has it", &floor);
    row(&format!("the last of {} streams has it", options.streams), &last);
    println!("server CPU of one patch {:.1} ms", cpu * 1e3);
    Ok(())
}

/// Starts a client that only watches; returns each address that it sees, with the time.
async fn bare_watch(slices: &Api<EndpointSlice>) -> Result<mpsc::UnboundedReceiver<(String, Instant)>> {
    let now = slices.list(&Default::default()).await?.metadata.resource_version.unwrap_or_default();
    let (say, seen) = mpsc::unbounded_channel();
    let slices = slices.clone();
    let params = WatchParams::default().fields("metadata.name=service-00000").timeout(290);
    tokio::spawn(async move {
        let Ok(events) = slices.watch(&params, &now).await else { return };
        let mut events = std::pin::pin!(events);
        while let Ok(Some(event)) = events.try_next().await {
            let WatchEvent::Modified(slice) = event else { continue };
            let address = slice.endpoints.into_iter().flat_map(|endpoint| endpoint.addresses).next();
            if say.send((address.unwrap_or_default(), Instant::now())).is_err() {
                return;
            }
        }
    });
    Ok(seen)
}

/// A Service with its slice and Pods.
fn service(number: usize, endpoints: usize) -> String {
    let mut text = format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: service-{number:05}, \
         namespace: {NAMESPACE}}}\nspec: {{selector: {{app: service-{number:05}}}, ports: [{{name: http, \
         port: 80, targetPort: 8080}}]}}\n"
    );
    let address = |index: usize| {
        let all = number * endpoints + index;
        format!("10.{}.{}.{}", 1 + all / 62_500, all / 250 % 250, 1 + all % 250)
    };
    let mut list = String::new();
    for index in 0..endpoints {
        let pod = format!("service-{number:05}-{index}");
        let ip = address(index);
        let _ = write!(
            text,
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {pod}, namespace: {NAMESPACE}, \
             labels: {{app: service-{number:05}, pod-template-hash: abcdef}}}}\n\
             spec: {{serviceAccountName: default, containers: [{{name: app, image: x, \
             ports: [{{containerPort: 8080}}]}}]}}\nstatus: {{phase: Running, podIP: {ip}, \
             podIPs: [{{ip: {ip}}}], conditions: [{{type: Ready, status: \"True\"}}]}}\n"
        );
        let _ = writeln!(
            list,
            "- {{addresses: [{ip}], conditions: {{ready: true}}, targetRef: {{kind: Pod, name: {pod}, \
             namespace: {NAMESPACE}}}}}"
        );
    }
    let _ = write!(
        text,
        "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{name: service-{number:05}, namespace: {NAMESPACE}, \
         labels: {{kubernetes.io/service-name: service-{number:05}}}}}\naddressType: IPv4\n\
         ports: [{{name: http, port: 8080}}]\nendpoints:\n{list}"
    );
    text
}
