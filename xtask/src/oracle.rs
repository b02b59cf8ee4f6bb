//! `cargo xtask oracle`: how much of what Pilotfish sends is what istiod sends, on the cases of `oracle/`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use crate::workspace::Profile;
use crate::{process, tools, workspace};

/// Options of `cargo xtask oracle`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Cases whose name matches, for example 'vs-*'; may repeat
    #[arg(long, value_name = "PATTERN")]
    only: Vec<String>,
    /// Ask in this form of ADS, whatever the case says: delta or sotw
    #[arg(long, value_name = "FORM", value_parser = ["delta", "sotw"])]
    mode: Option<String>,
    /// Rows of each list of differences
    #[arg(long, value_name = "N", default_value_t = 20)]
    most: usize,
    /// Share of equal resources that counts as a pass, 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    min: f64,
    /// The same for the areas k8s, se, we, vs and dr
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    min_everyday: f64,
    /// Folder for what Pilotfish sent: CASE.PROXY.json
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// File for the result as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Cases at a time
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// No line for cases that are equal
    #[arg(long)]
    summary: bool,
    /// Write each case to a real API server and read it from there, instead of reading its files
    #[arg(long, conflicts_with_all = ["mode", "json", "jobs", "binary"])]
    live: bool,
    /// How Pilotfish is built
    #[arg(long, value_enum, default_value = "dev")]
    profile: Profile,
    /// Score this executable instead of building one
    #[arg(long, value_name = "FILE", conflicts_with = "profile")]
    binary: Option<PathBuf>,
}

/// Runs the task. `Ok(false)` when the score is below the minimum.
///
/// # Errors
/// When Pilotfish cannot be built or the tools are missing.
pub(crate) fn run(args: &Args) -> Result<bool> {
    if args.live {
        return live(args);
    }
    let binary = match &args.binary {
        Some(binary) => std::env::current_dir()?.join(binary),
        None => build(args.profile)?,
    };
    tools::ensure(&["python"])?;
    process::succeeds(&mut score(&binary, args)?)
}

/// The oracle as a step of `cargo xtask test`, on an executable that is built already.
///
/// # Errors
/// When the tools are missing.
pub(crate) fn step(binary: &Path, min: f64, min_everyday: f64) -> Result<bool> {
    let args = Args {
        only: Vec::new(),
        mode: None,
        most: 10,
        min,
        min_everyday,
        keep: None,
        json: None,
        jobs: None,
        summary: true,
        live: false,
        profile: Profile::Dev,
        binary: None,
    };
    tools::ensure(&["python"])?;
    process::succeeds(&mut score(binary, &args)?)
}

/// The oracle through a real API server, as a step of `cargo xtask test`.
///
/// # Errors
/// When the tools are missing or nothing can be built.
pub(crate) fn live_step(min: f64) -> Result<bool> {
    tools::ensure(&["etcd", "kube-apiserver"])?;
    // Built with everything else; alone it would be built again, with fewer features of what it depends on.
    let mut command = process::command(Profile::Dev.folder().join("oracle"));
    command.args(["--live", "--min", &min.to_string(), "--most", "10"]);
    process::succeeds(&mut command)
}

fn live(args: &Args) -> Result<bool> {
    tools::ensure(&["etcd", "kube-apiserver"])?;
    let mut command = process::cargo();
    command.args([
        "run",
        "--quiet",
        "--locked",
        "--package",
        "pilotfish-testkit",
        "--bin",
        "oracle",
        "--",
        "--live",
    ]);
    command.args(["--min", &args.min.to_string(), "--most", &args.most.to_string()]);
    for pattern in &args.only {
        command.args(["--only", pattern]);
    }
    if let Some(folder) = &args.keep {
        command.arg("--keep").arg(std::env::current_dir()?.join(folder));
    }
    process::succeeds(&mut command)
}

fn build(profile: Profile) -> Result<PathBuf> {
    let mut build = process::cargo();
    build.args(["build", "--package", "pilotfish", "--bin", "pilotfish", "--profile", profile.name()]);
    process::check(&mut build)?;
    Ok(profile.folder().join("pilotfish"))
}

fn score(binary: &Path, args: &Args) -> Result<Command> {
    let oracle = workspace::root().join("oracle");
    let Some(binary) = binary.to_str().filter(|path| !path.contains(['\'', '{', '}'])) else {
        bail!("the path {} cannot be put into a command line", binary.display());
    };
    let start = format!(
        "'{binary}' serve {{config}} {{mesh}} {{networks}} \
         --xds-address 127.0.0.1:{{xds}} --admin-address 127.0.0.1:{{admin}}"
    );
    let mut command = process::command(tools::python());
    command.arg(oracle.join("score.py")).arg("--start").arg(start);
    command.args(["--most", &args.most.to_string(), "--min", &args.min.to_string()]);
    command.args(["--min-everyday", &args.min_everyday.to_string()]);
    for pattern in &args.only {
        command.args(["--only", pattern]);
    }
    if let Some(mode) = &args.mode {
        command.args(["--mode", mode]);
    }
    if let Some(jobs) = args.jobs {
        command.args(["--jobs", &jobs.to_string()]);
    }
    if args.summary {
        command.arg("--summary");
    }
    // Given relative to where the task was started, which need not be the root.
    let here = std::env::current_dir()?;
    for (flag, path) in [("--keep", &args.keep), ("--json", &args.json)] {
        if let Some(path) = path {
            command.arg(flag).arg(here.join(path));
        }
    }
    command.arg(oracle.join("cases"));
    Ok(command)
}
