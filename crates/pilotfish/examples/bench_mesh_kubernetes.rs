//! The bench of a mesh in which every proxy differs, on a real API server: the objects are there, and changes
//! are made by a client of it. `cargo xtask bench --mesh --kubernetes` runs it on a release build.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool")]

use anyhow::{Context, Result};
use clap::Parser;
use pilotfish_bench::mesh::{Lines, Options, print};
use pilotfish_load::connection::Way;
use pilotfish_load::mesh::folder::Folder;
use pilotfish_load::mesh::measure::measure;
use pilotfish_load::mesh::subject::{Apply, Applying, Edits, Subject};
use pilotfish_testkit::real::{ApiServer, ApiServerOptions, Pilotfish};
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    options: Options,
}

/// A client of the API server.
struct Client(ApiServer);

impl Apply for Client {
    fn apply(&self, yaml: String) -> Applying<'_> {
        Box::pin(async move {
            self.0.apply_many(&yaml).await;
            Ok(())
        })
    }

    fn delete(&self, yaml: String) -> Applying<'_> {
        Box::pin(async move {
            self.0.delete(&yaml).await;
            Ok(())
        })
    }
}

fn main() -> Result<ExitCode> {
    let cli = Cli::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    runtime.block_on(async { tokio::spawn(run(cli.options)).await? })
}

async fn run(options: Options) -> Result<ExitCode> {
    let server = ApiServer::start(ApiServerOptions::default()).await;
    let server = server.context("kube-apiserver or etcd is missing: run `cargo xtask tools`")?;
    let temporary = tempfile::tempdir()?;
    let base = options.keep.clone().unwrap_or_else(|| temporary.path().to_owned());
    let (mesh, settings) = (base.join("mesh"), base.join("mesh-config.yaml"));
    let folder = Folder::create(&mesh, &settings, options.plan.sizes)?;
    fill(&server, &mesh, &settings).await?;

    let kubeconfig = server.kubeconfig().to_string_lossy().into_owned();
    let began = Instant::now();
    let pilotfish = Pilotfish::launch(
        &options.pilotfish.to_string_lossy(),
        &["--kubernetes", "--kubeconfig", &kubeconfig],
    );
    pilotfish.ready().await;
    let subject = Subject {
        way: Way::plain(SocketAddr::from(([127, 0, 0, 1], pilotfish.xds_port()))),
        pid: Some(pilotfish.process_id()),
        start: Some(began.elapsed()),
        edits: Edits::Applied(Arc::new(Client(server))),
    };
    let results = measure(&options.plan, &subject, &folder, &Lines).await?;
    let passed = print(&results, &options)?;
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Writes the mesh to the API server: what others refer to first.
async fn fill(server: &ApiServer, mesh: &Path, settings: &Path) -> Result<()> {
    let began = Instant::now();
    server.apply_definitions().await;
    let mut files: Vec<_> = std::fs::read_dir(mesh)?.collect::<std::io::Result<Vec<_>>>()?;
    let order = |name: &str| (name != "cluster.yaml", !name.starts_with("ns-"), name.to_owned());
    files.sort_by_key(|file| order(&file.file_name().to_string_lossy()));
    for file in files {
        let text = std::fs::read_to_string(file.path())?;
        let (namespaces, others): (Vec<&str>, Vec<&str>) =
            text.split("---\n").partition(|document| document.contains("kind: Namespace\n"));
        server.apply_many(&namespaces.join("---\n")).await;
        server.apply_many(&others.join("---\n")).await;
    }
    server.apply_many(&std::fs::read_to_string(settings)?).await;
    eprintln!("bench: the mesh is in the API server after {:.0} s", began.elapsed().as_secs_f64());
    Ok(())
}
