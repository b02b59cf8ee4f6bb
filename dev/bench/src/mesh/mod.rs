//! Benchmark of a mesh in which every proxy is different, on a separate Pilotfish, compared with broadcasts
//! of the same bytes and with fixed limits.

pub mod bars;
pub mod floor;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use pilotfish_load::connection::Way;
use pilotfish_load::mesh::folder::Folder;
use pilotfish_load::mesh::measure::{Plan, Progress, measure};
use pilotfish_load::mesh::report;
use pilotfish_load::mesh::results::Results;
use pilotfish_load::mesh::subject::{Edits, Subject};

use crate::report::{Bar, bar_lines, bars_json};
use crate::server::Server;

/// Measurements, and their sizes.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The Pilotfish to measure
    #[arg(long, value_name = "FILE")]
    pub pilotfish: PathBuf,
    /// The mesh and the rounds
    #[command(flatten)]
    pub plan: Plan,
    /// Do not measure what a broadcast of as many bytes costs; --quick does not either
    #[arg(long)]
    pub no_floor: bool,
    /// File for the result as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Keep the mesh's files in this folder
    #[arg(long, value_name = "FOLDER")]
    pub keep: Option<PathBuf>,
}

/// Prints results on stderr.
pub struct Lines;

impl Progress for Lines {
    fn doing(&self, _: &str) {}

    fn done(&self, what: &str) {
        eprintln!("bench: {what}");
    }
}

/// Starts Pilotfish with the mesh and measures it. `broadcaster` is the executable of this crate.
///
/// # Errors
/// If a server cannot be started, ends a stream or exceeds a timeout.
pub async fn run(options: &Options, broadcaster: &Path) -> Result<Results> {
    let temporary = tempfile::tempdir().context("cannot make a folder for the mesh")?;
    let base = options.keep.clone().unwrap_or_else(|| temporary.path().to_owned());
    let (mesh, settings) = (base.join("mesh"), base.join("mesh-config.yaml"));
    let folder = Folder::create(&mesh, &settings, options.plan.sizes)?;
    let arguments = ["--mesh-config".into(), settings.into_os_string()];
    let server = Server::pilotfish_with(&options.pilotfish, &mesh, &arguments, base.join("log")).await?;
    let subject = Subject {
        way: Way::plain(server.xds),
        pid: Some(server.pid()),
        start: Some(server.start),
        edits: Edits::Files,
    };
    let mut results = measure(&options.plan, &subject, &folder, &Lines).await?;
    server.stop().await?;
    if !options.no_floor && !options.plan.quick {
        floor::fill(&mut results, options.plan.sizes.pods, broadcaster).await?;
    }
    Ok(results)
}

/// Prints tables and bars, and writes the JSON. Returns true if every bar passes.
///
/// # Errors
/// If the file cannot be written.
pub fn print(results: &Results, options: &Options) -> Result<bool> {
    let sizes = &options.plan.sizes;
    let bars = bars::bars(results, sizes);
    println!("{}{}", report::text(results, sizes), bar_lines(&bars));
    if let Some(path) = &options.json {
        let mut json = report::json(results, sizes);
        if let Some(all) = json.as_object_mut() {
            all.insert("bars".to_owned(), bars_json(&bars));
        }
        std::fs::write(path, format!("{json:#}\n"))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(bars.iter().all(Bar::passes))
}
