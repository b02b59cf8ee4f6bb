//! `cargo xtask bench`: builds Pilotfish and the bench as they are shipped, and runs the bench.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Result;

use crate::workspace::Profile;
use crate::{process, tools};

/// The bench of a live cluster.
const EXAMPLE: &str = "bench_kubernetes";

/// Options of `cargo xtask bench`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Measure this executable instead of building one
    #[arg(long, value_name = "FILE")]
    pilotfish: Option<PathBuf>,
    /// Measure a live cluster instead: a real API server with etcd
    #[arg(long)]
    kubernetes: bool,
    /// Options of the bench itself; `-- --help` shows them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<OsString>,
}

/// Runs the task. `Ok(false)` when a bar was missed.
///
/// # Errors
/// When something cannot be built or started.
pub(crate) fn run(args: &Args) -> Result<bool> {
    let folder = Profile::Release.folder();
    let mut build = process::cargo();
    build.args(["build", "--release"]);
    if args.kubernetes {
        tools::ensure(&["etcd", "kube-apiserver"])?;
        build.args(["--package", "pilotfish", "--example", EXAMPLE]);
    } else {
        build.args(["--package", "pilotfish-bench"]);
    }
    let pilotfish = match &args.pilotfish {
        Some(path) => std::env::current_dir()?.join(path),
        None => {
            build.args(["--package", "pilotfish", "--bins"]);
            folder.join("pilotfish")
        }
    };
    process::check(&mut build)?;
    let mut bench = if args.kubernetes {
        process::command(folder.join("examples").join(EXAMPLE))
    } else {
        let mut bench = process::command(folder.join("pilotfish-bench"));
        bench.arg("compare");
        bench
    };
    bench.arg("--pilotfish").arg(pilotfish).args(&args.rest);
    process::succeeds(&mut bench)
}
