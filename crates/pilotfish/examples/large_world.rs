//! Memory profile of a large world: heap bytes and duration of each stage from files to streams.
//!
//! `cargo run -p pilotfish --example large_world -- --services 2000` (bytes do not depend on optimisation,
//! times do).
#![allow(clippy::print_stdout, reason = "a command-line tool")]

use anyhow::{Context, Result};
use bytes::Bytes;
use clap::Parser;
use parking_lot::Mutex;
use pilotfish_bench::fleet::node;
use pilotfish_bench::session::Session;
use pilotfish_bench::world::{NAMESPACE, World};
use pilotfish_config::SourceBatch;
use pilotfish_control_plane::resources::{Resources, publication};
use pilotfish_files::{FileSource, FileSourceSettings};
use pilotfish_model::{Update, WorldWriter};
use pilotfish_registry::{AggregateController, AggregateSettings, Input, RegistrySettings, RegistryTable};
use pilotfish_translate::Translator;
use pilotfish_xds::{Fanout, NoRecorder, PeerInfo, Protocol, Stream, StreamLimits};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::mpsc;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Sizes of the world.
#[derive(Parser)]
struct Options {
    /// Number of services in the world
    #[arg(long, default_value_t = 1_000)]
    services: usize,
    /// Number of endpoints of each service
    #[arg(long, default_value_t = 10)]
    endpoints: usize,
    /// Proxies on delta streams
    #[arg(long, default_value_t = 100)]
    streams: usize,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let folder = tempfile::tempdir()?;
    World::create(folder.path(), options.services, options.endpoints)?;
    println!("{:<34} {:>10} {:>12} {:>8}", "", "heap MB", "per service", "ms");
    let mut stages = Stages::new(options.services);
    let batch = read(folder.path())?;
    stages.done("objects, read from files");
    let (controller, updates) = registries(batch)?;
    stages.done("registries");
    let mut writer = WorldWriter::new();
    for update in updates {
        writer.apply(update);
    }
    let (world, changes) = writer.publish().context("an empty world")?;
    stages.done("world, with its changes");
    let translator = Arc::new(Translator::new());
    let resources = Arc::new(Resources::new(translator.clone(), false, Vec::new()));
    let fanout = Fanout::new(resources.clone(), Arc::new(NoRecorder), StreamLimits::default());
    fanout.publish(&publication(translator.publish(world, &changes)));
    drop(changes);
    resources.set_ready();
    stages.done("published");
    let mut streams = vec![Open::new(&fanout, 0)];
    for stream in &mut streams {
        stream.sync(&mut stages)?;
    }
    println!("{:<34} {:>10}", "results", translator.results());
    for index in 1..options.streams {
        let mut stream = Open::new(&fanout, index);
        stream.sync(&mut Stages::silent())?;
        streams.push(stream);
    }
    stages.done("the other streams");
    println!("{:<34} {:>10}", "results", translator.results());
    drop(streams);
    stages.done("all streams gone");
    drop((fanout, resources, translator));
    stages.done("all results gone");
    drop(writer);
    stages.done("the world gone");
    drop(controller);
    stages.done("the registries gone");
    Ok(())
}

/// Measurements of the stages.
struct Stages {
    all: Region<'static, System>,
    services: usize,
    before: isize,
    began: Instant,
    loud: bool,
}

impl Stages {
    fn new(services: usize) -> Self {
        Self { all: Region::new(ALLOCATOR), services, before: 0, began: Instant::now(), loud: true }
    }

    fn silent() -> Self {
        Self { loud: false, ..Self::new(1) }
    }

    fn done(&mut self, what: &str) {
        if !self.loud {
            return;
        }
        let stats = self.all.change();
        let now = stats.bytes_allocated as isize - stats.bytes_deallocated as isize;
        let grown = now - self.before;
        println!(
            "{what:<34} {:>10.1} {:>12} {:>8}   together {:.1} MB",
            grown as f64 / 1e6,
            grown / self.services as isize,
            self.began.elapsed().as_millis(),
            now as f64 / 1e6,
        );
        self.before = now;
        self.began = Instant::now();
    }
}

fn read(folder: &Path) -> Result<SourceBatch> {
    let source = FileSource::open(FileSourceSettings::new(vec![folder.to_owned()]))?;
    let (sender, mut batches) = mpsc::channel(1);
    let running = source.spawn(sender)?;
    let batch = batches.blocking_recv().context("the source ended")?;
    // Leaked, so that its content stays in memory as in a process that serves.
    std::mem::forget(running);
    std::mem::forget(batches);
    Ok(batch)
}

fn registries(batch: SourceBatch) -> Result<(AggregateController, Vec<Update>)> {
    let settings = AggregateSettings::default();
    let feed = settings.config_feed.to_string();
    let mut controller = AggregateController::new(settings);
    controller.add_source(&feed, "files");
    for (provider, registry) in RegistryTable::default().iter() {
        if let Input::Objects(new) = registry.input {
            controller.add_registry(new(provider, RegistrySettings::default()), &feed);
        }
    }
    for event in batch.events {
        controller.source_event(&feed, "files", event)?;
    }
    let updates = controller.settle();
    Ok((controller, updates))
}

/// Stream with its proxy.
struct Open {
    stream: Arc<Mutex<Stream<Resources>>>,
    session: Option<Session>,
}

impl Open {
    fn new(fanout: &Arc<Fanout<Resources>>, index: usize) -> Self {
        let stream = fanout.open(Protocol::Delta, PeerInfo::default());
        Self { stream, session: Some(Session::new(node(index, NAMESPACE))) }
    }

    /// Runs the proxy until it has everything, then drops it and keeps its stream.
    fn sync(&mut self, stages: &mut Stages) -> Result<()> {
        let mut session = self.session.take().context("a proxy that synced before")?;
        let mut stream = self.stream.lock();
        let mut requests: Vec<Bytes> = session.start();
        while !requests.is_empty() {
            for request in std::mem::take(&mut requests) {
                stream.on_message(&request, Instant::now())?;
                while let Some(response) = stream.poll_response(Instant::now()) {
                    // Without the header of the gRPC message.
                    let message = Bytes::from(response.concat()).slice(5..);
                    stages.done(&format!("answered {:?}, {} KB", response.ty, message.len() / 1_000));
                    session.response(&message, &mut requests).map_err(anyhow::Error::msg)?;
                }
            }
        }
        anyhow::ensure!(session.synced(), "the proxy misses {} resources", session.pending());
        drop(session);
        stages.done("acknowledged, proxy gone");
        Ok(())
    }
}
