//! Benchmark of `pilotfish sync polaris`: the first sync, the latency of a Pod's change to the call, compared
//! with a bare watch, and the calls of a rolling restart. `cargo xtask bench --polaris` runs it on a release
//! build; the server is the stand-in of the testkit.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool")]

use anyhow::{Context, Result, bail};
use clap::Parser;
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, Patch, PatchParams, WatchEvent, WatchParams};
use pilotfish_bench::stats::{milliseconds, percentile};
use pilotfish_testkit::polaris::{Polaris, PolarisOptions, Seen};
use pilotfish_testkit::real::{ApiServer, ApiServerOptions, Program, fetch, free_port};
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::process::Command;
use tokio::sync::mpsc;

/// Subject and sizes of the benchmark.
#[derive(Parser)]
struct Options {
    /// The Pilotfish to measure
    #[arg(long, value_name = "FILE")]
    pilotfish: PathBuf,
    /// Number of Services in the cluster
    #[arg(long, default_value_t = 100)]
    services: usize,
    /// Endpoints of each, each with a Pod
    #[arg(long, default_value_t = 100)]
    endpoints: usize,
    /// Changes of one Pod that are measured
    #[arg(long, default_value_t = 50)]
    rounds: usize,
    /// Pods that are restarted
    #[arg(long, default_value_t = 500)]
    restarted: usize,
    /// Number of Pods that are restarted at a time
    #[arg(long, default_value_t = 25)]
    surge: usize,
}

const NAMESPACE: &str = "bench";
const BETWEEN_ROUNDS: Duration = Duration::from_millis(150);
const PATIENCE: Duration = Duration::from_secs(300);

fn main() -> Result<()> {
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run(&options))
}

async fn run(options: &Options) -> Result<()> {
    let server = ApiServer::start(ApiServerOptions::default()).await;
    let server = server.context("kube-apiserver or etcd is missing: run `cargo xtask tools`")?;
    let namespace = format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {NAMESPACE}}}}}");
    server.apply(&namespace).await;
    let began = Instant::now();
    for number in 0..options.services {
        server.apply_many(&service(number, options.endpoints)).await;
        if (number + 1) % 20 == 0 {
            eprintln!("bench: {} services written after {:.0} s", number + 1, began.elapsed().as_secs_f64());
        }
    }
    let polaris = Polaris::start(PolarisOptions { tick: None, ..PolarisOptions::default() }).await;
    let folder = tempfile::tempdir()?;
    let admin = free_port();
    let mut command = Command::new(&options.pilotfish);
    command.args(["sync", "polaris", "--cluster-name", "bench", "--resync", "1h", "--address"]);
    command.arg(format!("127.0.0.1:{}", polaris.http_port()));
    command.arg("--kubeconfig").arg(server.kubeconfig());
    command.args(["--admin-address", &format!("127.0.0.1:{admin}")]);
    let began = Instant::now();
    let program = Program::start(&mut command, folder.path().join("sync.log"));
    let wanted = options.services * options.endpoints;
    until("the first sync", || {
        let found = polaris.count();
        if found == wanted { Ok(()) } else { Err(format!("{found} of {wanted}\n{}", program.printed())) }
    })
    .await?;
    let took = began.elapsed();
    let calls = summary(&polaris.seen());
    println!(
        "first sync: {wanted} endpoints of {} services in {:.2} s from the start of the process",
        options.services,
        took.as_secs_f64()
    );
    println!("  calls: {calls}");
    changes(options, &server, &polaris).await?;
    restart(options, &server, &polaris).await?;
    let status = fetch(&format!("http://127.0.0.1:{admin}/debug/syncz")).await.map_err(anyhow::Error::msg)?;
    if !status.contains("\"synced\":true") {
        bail!("it is not synced at the end: {status}");
    }
    Ok(())
}

/// A Service with its slices of 100, and the Pods of the first one.
fn service(number: usize, endpoints: usize) -> String {
    let mut text = format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: s{number}, namespace: {NAMESPACE}}}\n\
         spec: {{selector: {{app: s{number}}}, ports: [{{name: http, port: 80}}]}}\n---\n"
    );
    let addresses: Vec<String> = (0..endpoints).map(|n| address(number, n)).collect();
    for n in 0..endpoints {
        text += &pod(number, n, 0);
    }
    for (at, part) in addresses.chunks(100).enumerate() {
        text += &slice(number, at, part, at * 100);
    }
    text
}

fn address(service: usize, n: usize) -> String {
    format!("10.{}.{}.{}", service % 250, n / 250, n % 250 + 1)
}

fn pod(service: usize, n: usize, version: usize) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: s{service}-{n}, namespace: {NAMESPACE}, \
         labels: {{app: s{service}, version: v{version}}}}}\n\
         spec: {{containers: [{{name: app, image: x}}]}}\n---\n"
    )
}

fn slice(service: usize, at: usize, addresses: &[String], first: usize) -> String {
    let mut endpoints = String::new();
    for (n, address) in addresses.iter().enumerate() {
        let pod = first + n;
        let _ = write!(
            endpoints,
            "{{addresses: [{address}], conditions: {{ready: true}}, targetRef: {{kind: Pod, name: \
             s{service}-{pod}, namespace: {NAMESPACE}}}}},"
        );
    }
    format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{name: s{service}-{at}, namespace: {NAMESPACE}, labels: {{kubernetes.io/service-name: \
         s{service}}}}}\naddressType: IPv4\nports: [{{name: http, port: 8080}}]\nendpoints: [{endpoints}]\n\
         ---\n"
    )
}

async fn until(what: &str, check: impl Fn() -> Result<(), String>) -> Result<()> {
    let began = Instant::now();
    loop {
        match check() {
            Ok(()) => return Ok(()),
            Err(reason) if began.elapsed() > PATIENCE => bail!("{what}: {reason}"),
            Err(_) => tokio::time::sleep(Duration::from_micros(200)).await,
        }
    }
}

/// Summarizes calls and their elements by operation.
fn summary(seen: &[Seen]) -> String {
    let mut calls: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for one in seen {
        let entry =
            calls.entry(format!("{} {}", one.method, one.path.trim_start_matches("/naming/v1"))).or_default();
        *entry = (entry.0 + 1, entry.1 + one.elements);
    }
    let parts: Vec<String> =
        calls.iter().map(|(name, (calls, elements))| format!("{calls} x {name} ({elements})")).collect();
    parts.join(", ")
}

/// Measures a change of a Pod's label: from the request to the API server until a bare watch sees it, and
/// until Polaris is called.
async fn changes(options: &Options, server: &ApiServer, polaris: &Polaris) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(server.client(), NAMESPACE);
    let (sender, mut watched) = mpsc::unbounded_channel();
    let list = pods.list(&kube::api::ListParams::default().limit(1)).await?;
    let version = list.metadata.resource_version.unwrap_or_default();
    let watching = pods.clone();
    let watch = tokio::spawn(async move {
        let stream = watching.watch(&WatchParams::default().timeout(290), &version).await?;
        let mut stream = std::pin::pin!(stream);
        while let Some(event) = stream.try_next().await? {
            if let WatchEvent::Modified(pod) = event {
                let version = pod.metadata.labels.unwrap_or_default().remove("version");
                if sender.send((version, Instant::now())).is_err() {
                    break;
                }
            }
        }
        Ok::<_, kube::Error>(())
    });
    let (mut bare, mut called) = (Vec::new(), Vec::new());
    for round in 1..=options.rounds {
        tokio::time::sleep(BETWEEN_ROUNDS).await;
        drop(polaris.seen());
        let label = format!("round-{round}");
        let patch = json!({"metadata": {"labels": {"version": label}}});
        let name = format!("s{}-{}", round % options.services, round % options.endpoints);
        let began = Instant::now();
        pods.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        let (_, at) = loop {
            let event = watched.recv().await.context("the watch ended")?;
            if event.0.as_deref() == Some(label.as_str()) {
                break event;
            }
        };
        bare.push(at.duration_since(began));
        let put = loop {
            let seen = polaris.seen();
            if let Some(put) = seen.into_iter().find(|one| one.method == "PUT") {
                break put;
            }
            if began.elapsed() > PATIENCE {
                bail!("the change of {name} did not arrive");
            }
            tokio::time::sleep(Duration::from_micros(200)).await;
        };
        called.push(put.at.duration_since(began));
    }
    watch.abort();
    for (what, times) in [("bare watch", bare), ("call to Polaris", called)] {
        println!(
            "one Pod's change, {what}: p50 {:.1} ms, p99 {:.1} ms, of {} changes",
            milliseconds(percentile(&times, 0.5)),
            milliseconds(percentile(&times, 0.99)),
            times.len()
        );
    }
    Ok(())
}

/// Replaces the Pods of a Service in steps of `surge`, as a Deployment does.
async fn restart(options: &Options, server: &ApiServer, polaris: &Polaris) -> Result<()> {
    let number = options.services;
    server.apply_many(&service(number, options.restarted)).await;
    let wanted = options.services * options.endpoints + options.restarted;
    until("the Service that is restarted", || {
        if polaris.count() == wanted { Ok(()) } else { Err(polaris.count().to_string()) }
    })
    .await?;
    drop(polaris.seen());
    let mut addresses: Vec<String> = (0..options.restarted).map(|n| address(number, n)).collect();
    let began = Instant::now();
    for first in (0..options.restarted).step_by(options.surge.max(1)) {
        let last = (first + options.surge.max(1)).min(options.restarted);
        for (n, place) in addresses.iter_mut().enumerate().take(last).skip(first) {
            *place = format!("10.251.{}.{}", n / 250, n % 250 + 1);
        }
        let slices: String = (first / 100..=(last - 1) / 100)
            .filter_map(|at| Some(slice(number, at, addresses.chunks(100).nth(at)?, at * 100)))
            .collect();
        server.apply(&slices).await;
    }
    until("the restart", || {
        let new = polaris.instances(&[("service", &format!("s{number}"))]);
        let is_new =
            |one: &serde_json::Value| one["host"].as_str().is_some_and(|host| host.starts_with("10.251."));
        let count = new.iter().filter(|one| is_new(one)).count();
        if count == options.restarted && new.len() == count {
            Ok(())
        } else {
            Err(format!("{count} of {}", new.len()))
        }
    })
    .await?;
    let took = began.elapsed();
    let seen = polaris.seen();
    let writes: Vec<Seen> = seen.iter().filter(|one| one.method != "GET").cloned().collect();
    let elements: usize = writes.iter().map(|one| one.elements).sum();
    let steps = options.restarted.div_ceil(options.surge.max(1));
    println!(
        "rolling restart of {} Pods, {} at a time, {:.1} s: {} calls that write {elements} elements, where \
         {} elements differ and {} calls are needed if each step is seen for itself",
        options.restarted,
        options.surge,
        took.as_secs_f64(),
        writes.len(),
        2 * options.restarted,
        2 * steps
    );
    println!("  calls: {}", summary(&seen));
    Ok(())
}
