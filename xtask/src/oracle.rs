//! `cargo xtask oracle`: compares Pilotfish's resources with istiod's in the cases of `oracle/`, except for
//! known differences.
//!
//! `oracle/ask.py` requests them from the executable over the wire; the tool `oracle` of the testkit
//! compares.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use crate::workspace::Profile;
use crate::{process, tools, workspace};

/// Options of `cargo xtask oracle`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    compare: Compare,
    /// Ask in this form of ADS, whatever the case says: delta or sotw
    #[arg(long, value_name = "FORM", value_parser = ["delta", "sotw"])]
    mode: Option<String>,
    /// Folder for what Pilotfish sent: CASE.PROXY.json
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Cases at a time
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Write each case to a real API server and read it from there, instead of reading its files
    #[arg(long, conflicts_with_all = ["mode", "jobs", "binary"])]
    live: bool,
    /// Build profile of Pilotfish
    #[arg(long, value_enum, default_value = "dev")]
    profile: Profile,
    /// Ask this executable instead of building one
    #[arg(long, value_name = "FILE", conflicts_with = "profile")]
    binary: Option<PathBuf>,
}

/// Cases for both the requests and the comparison.
#[derive(clap::Args, Default)]
struct Which {
    /// Cases whose name matches, for example 'vs-*'; may repeat
    #[arg(long, value_name = "PATTERN")]
    only: Vec<String>,
}

/// Output of the comparison.
#[derive(clap::Args)]
struct Compare {
    /// Rows of each list of differences
    #[arg(long, value_name = "N", default_value_t = 20)]
    most: usize,
    /// No line for cases that are equal
    #[arg(long)]
    summary: bool,
}

/// Runs the task. `Ok(false)` unless exactly the known differences were found.
///
/// # Errors
/// When nothing can be built or the tools are missing.
pub(crate) fn run(args: &Args) -> Result<bool> {
    let mut comparer = process::cargo();
    comparer.args(["run", "--quiet", "--locked", "--package", "pilotfish-testkit", "--bin", "oracle", "--"]);
    let here = std::env::current_dir()?;
    let keep = args.keep.as_ref().map(|folder| here.join(folder));
    if args.live {
        if let Some(folder) = keep {
            comparer.arg("--keep").arg(folder);
        }
        return live(&mut comparer, &args.which, &args.compare);
    }
    let binary = match &args.binary {
        Some(binary) => here.join(binary),
        None => build(args.profile)?,
    };
    let ask = |ask: &mut Command| {
        if let Some(mode) = &args.mode {
            ask.args(["--mode", mode]);
        }
        if let Some(jobs) = args.jobs {
            ask.args(["--jobs", &jobs.to_string()]);
        }
    };
    over_the_wire(&binary, comparer, keep, &args.which, &args.compare, ask)
}

/// Step of `cargo xtask test`: the oracle over the wire, with executables that are already built.
///
/// # Errors
/// When the tools are missing.
pub(crate) fn step(binary: &Path) -> Result<bool> {
    over_the_wire(binary, built_comparer(), None, &Which::default(), &Compare::SHORT, |_| {})
}

/// Step of `cargo xtask test`: the oracle through a real API server.
///
/// # Errors
/// When the tools are missing.
pub(crate) fn live_step() -> Result<bool> {
    live(&mut built_comparer(), &Which::default(), &Compare::SHORT)
}

/// Built together with the other executables; a separate build would use fewer features of its dependencies
/// and build them again.
fn built_comparer() -> Command {
    process::command(Profile::Dev.folder().join("oracle"))
}

fn live(comparer: &mut Command, which: &Which, compare: &Compare) -> Result<bool> {
    tools::ensure(&["etcd", "kube-apiserver"])?;
    which.add_to(comparer);
    compare.add_to(comparer);
    process::succeeds(comparer.arg("--live"))
}

fn over_the_wire(
    binary: &Path,
    mut comparer: Command,
    keep: Option<PathBuf>,
    which: &Which,
    compare: &Compare,
    more: impl Fn(&mut Command),
) -> Result<bool> {
    tools::ensure(&["python"])?;
    let folder = keep.unwrap_or_else(|| workspace::root().join("target/tmp/oracle"));
    let mut ask = ask(binary, &folder)?;
    which.add_to(&mut ask);
    more(&mut ask);
    let answered = process::succeeds(&mut ask)?;
    which.add_to(&mut comparer);
    compare.add_to(&mut comparer);
    let equal = process::succeeds(comparer.arg("--dumps").arg(&folder))?;
    Ok(answered && equal)
}

fn build(profile: Profile) -> Result<PathBuf> {
    let mut build = process::cargo();
    build.args(["build", "--package", "pilotfish", "--bin", "pilotfish", "--profile", profile.name()]);
    process::check(&mut build)?;
    Ok(profile.folder().join("pilotfish"))
}

fn ask(binary: &Path, into: &Path) -> Result<Command> {
    let oracle = workspace::root().join("oracle");
    let Some(binary) = binary.to_str().filter(|path| !path.contains(['\'', '{', '}'])) else {
        bail!("the path {} cannot be put into a command line", binary.display());
    };
    let start = format!(
        "'{binary}' serve {{config}} {{mesh}} {{networks}} \
         --xds-address 127.0.0.1:{{xds}} --admin-address 127.0.0.1:{{admin}}"
    );
    let mut command = process::command(tools::python());
    command.arg(oracle.join("ask.py")).arg("--start").arg(start).arg("--into").arg(into);
    command.arg(oracle.join("cases"));
    Ok(command)
}

impl Which {
    fn add_to(&self, command: &mut Command) {
        for pattern in &self.only {
            command.args(["--only", pattern]);
        }
    }
}

impl Compare {
    const SHORT: Self = Self { most: 10, summary: true };

    fn add_to(&self, command: &mut Command) {
        command.args(["--most", &self.most.to_string()]);
        if self.summary {
            command.arg("--summary");
        }
    }
}
