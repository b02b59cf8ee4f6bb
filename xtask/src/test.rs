//! `cargo xtask test`: every check of the repository, each as a step with its duration.
//!
//! All steps build with the dev profile and the same features, so that a clean clone compiles its
//! dependencies once (and once more, without code generation, for the lints). A failed step does not stop the
//! next ones, so that one run reports all problems.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::outcome::Outcome;
use crate::workspace::{self, Profile};
use crate::{
    arrows, circles, comments, dependencies, docs, image, lanes, modules, oracle, process, supply, tools,
};

/// Prefix of test targets that run real clients (Envoy, gRPC) from target/tools.
const REAL_CLIENTS: &str = "real_";

/// Options of `cargo xtask test`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Leave out the real clients and the oracle, and with them the tools
    #[arg(long)]
    fast: bool,
    /// Only this step, by the name that is printed; may repeat
    #[arg(long, value_name = "STEP", value_parser = STEPS)]
    only: Vec<String>,
    /// Also what takes too long for each change, some hours: every fuzz target, attacks and benches in full
    #[arg(long, conflicts_with = "fast")]
    nightly: bool,
}

/// Names of the steps.
const STEPS: [&str; 18] = [
    "tools",
    "format",
    "arrows",
    "dependencies",
    "modules",
    "supply chain",
    "lints",
    "build",
    "documents",
    "tests",
    "examples",
    "image",
    "real clients",
    "oracle",
    "oracle live",
    "fuzz",
    "attacks",
    "benches",
];

/// Benches by their arguments. Other options of `cargo xtask bench` measure parts of these, or need half an
/// hour of their own.
const BENCHES: [&[&str]; 6] =
    [&[], &["--mesh"], &["--scale"], &["--kubernetes"], &["--registration"], &["--certificates"]];

/// Executed steps, with their results.
#[derive(Default)]
struct Run {
    /// Steps to run; all if empty.
    only: Vec<String>,
    passed: u64,
    failed: u64,
    /// Failed tests with the first lines of what each says, for the end of the output: logs are cut there
    /// last.
    failures: Vec<String>,
    rows: Vec<(&'static str, bool, Duration)>,
}

impl Run {
    /// True if a step was selected.
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }

    /// Runs a step; returns true if it passed or was not selected.
    fn step(&mut self, name: &'static str, work: impl FnOnce() -> Result<Outcome>) -> bool {
        debug_assert!(cfg!(test) || STEPS.contains(&name), "{name} is not listed");
        if !self.wants(name) {
            return true;
        }
        eprintln!("\n==> {name}");
        let began = Instant::now();
        let outcome = work().unwrap_or_else(|error| {
            eprintln!("error: {error:#}");
            Outcome::of(false)
        });
        self.passed += outcome.passed;
        self.failed += outcome.failed;
        self.failures.extend(outcome.failures);
        let ok = outcome.failed == 0;
        self.rows.push((name, ok, began.elapsed()));
        ok
    }

    fn report(&self) -> bool {
        eprintln!();
        for (name, ok, took) in &self.rows {
            let state = if *ok { "ok    " } else { "FAILED" };
            eprintln!("{state}  {name:14} {:7.1} s", took.as_secs_f64());
        }
        self.failures.iter().for_each(|line| eprintln!("{line}"));
        let failed: Vec<&str> = self.rows.iter().filter(|row| !row.1).map(|row| row.0).collect();
        if !failed.is_empty() {
            eprintln!("failed: {}", failed.join(", "));
        }
        println!("{} passed, {} failed", self.passed, self.failed);
        self.failed == 0
    }
}

/// Runs the task. `Ok(false)` when a step failed.
///
/// # Errors
/// Never: a step that cannot run counts as failed.
pub(crate) fn run(args: &Args) -> Result<bool> {
    let mut run = Run { only: args.only.clone(), ..Run::default() };
    let pilotfish = Profile::Dev.folder().join("pilotfish");
    // Downloads wait for servers, and builds for the processor: side by side they take less.
    let tools = (!args.fast && run.wants("tools")).then(|| std::thread::spawn(|| tools::ensure(&[])));
    run.step("format", || {
        let formatted = cargo(&["fmt", "--all", "--check"])?;
        let comments = Outcome::of_findings(&comments::check()?);
        Ok(Outcome::of(formatted.failed + comments.failed == 0))
    });
    run.step("arrows", || Ok(Outcome::of_findings(&arrows::check()?)));
    run.step("dependencies", || Ok(Outcome::of_findings(&dependencies::check()?)));
    run.step("modules", || {
        let (public, circles) = (modules::check()?, circles::check()?);
        Ok(Outcome::of_findings(&[public, circles].concat()))
    });
    run.step("lints", || {
        cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--quiet", "--", "-D", "warnings"])
    });
    let built = run.step("build", || cargo(&["build", "--workspace", "--all-targets", "--locked"]));
    if built {
        run.step("documents", || Ok(Outcome::of_findings(&docs::check(&pilotfish)?)));
        run.step("tests", || cargo_test(&without_real_clients(&test_targets()?)));
        run.step("examples", || cargo_test(&["--doc".to_owned()]));
    }
    let tools = tools.is_none_or(|tools| run.step("tools", || joined(tools).map(|()| Outcome::of(true))));
    if !args.fast {
        run.step("supply chain", || supply::step().map(Outcome::of));
    }
    if built && !args.fast {
        run.step("image", || image::step().map(Outcome::of));
        run.step("real clients", || real_clients(tools));
        run.step("oracle", || oracle::step(&pilotfish).map(Outcome::of));
        run.step("oracle live", || oracle::live_step().map(Outcome::of));
    }
    if args.nightly || !args.only.is_empty() {
        run.step("fuzz", || cargo(&["xtask", "fuzz"]));
        run.step("attacks", || cargo(&["xtask", "attack"]));
        run.step("benches", benches);
    }
    Ok(run.report())
}

/// Runs each bench, also after one that missed a bar.
fn benches() -> Result<Outcome> {
    let mut all = Outcome::default();
    for arguments in BENCHES {
        let one = cargo(&[&["xtask", "bench"], arguments].concat())?;
        all.passed += one.passed;
        all.failed += one.failed;
    }
    Ok(all)
}

fn joined(work: JoinHandle<Result<()>>) -> Result<()> {
    work.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn cargo(args: &[&str]) -> Result<Outcome> {
    process::succeeds(process::cargo().args(args)).map(Outcome::of)
}

fn real_clients(tools: bool) -> Result<Outcome> {
    if !tools {
        eprintln!("the tools are missing (see above), and tests that need them fail or are left out");
    }
    let targets = test_targets()?;
    let real: Vec<String> = targets.into_iter().filter(|name| name.starts_with(REAL_CLIENTS)).collect();
    if real.is_empty() {
        eprintln!("there is no test target whose name begins with {REAL_CLIENTS}");
        return Ok(Outcome::default());
    }
    let mut outcome = Outcome::default();
    let ok = lanes::run(&real, |line| outcome.count(line))?;
    Ok(outcome.of_process(ok))
}

/// Integration tests of the workspace, by name.
fn test_targets() -> Result<Vec<String>> {
    let metadata = workspace::metadata(&["--no-deps"])?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let targets = packages.flat_map(|package| package["targets"].as_array().into_iter().flatten());
    let tests =
        targets.filter(|target| target["kind"][0] == "test").filter_map(|target| target["name"].as_str());
    let mut names: Vec<String> = tests.map(str::to_owned).collect();
    names.sort();
    names.dedup();
    Ok(names)
}

fn without_real_clients(targets: &[String]) -> Vec<String> {
    let others: Vec<String> =
        targets.iter().filter(|name| !name.starts_with(REAL_CLIENTS)).cloned().collect();
    let mut args: Vec<String> = ["--lib", "--bins"].map(str::to_owned).to_vec();
    args.extend(of_targets(&others));
    args
}

fn of_targets(names: &[String]) -> Vec<String> {
    names.iter().flat_map(|name| ["--test".to_owned(), name.clone()]).collect()
}

/// Runs `cargo test` over the workspace and counts results from its output.
fn cargo_test(targets: &[String]) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut command = process::cargo();
    command.args(["test", "--workspace", "--locked", "--no-fail-fast"]).args(targets);
    let ok = process::watch(&mut command, |line| outcome.count(line))?;
    Ok(outcome.of_process(ok))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_clients_are_left_out_by_the_name_of_the_target() {
        let targets = ["real_envoy", "sequences"].map(str::to_owned);
        assert_eq!(without_real_clients(&targets), ["--lib", "--bins", "--test", "sequences"]);
    }

    fn passed(number: u64) -> Outcome {
        let mut outcome = Outcome::default();
        outcome.count(&format!("test result: ok. {number} passed; 0 failed"));
        outcome
    }

    #[test]
    fn a_step_that_cannot_run_is_a_failure_and_the_next_ones_still_run() {
        let mut run = Run::default();
        assert!(!run.step("first", || anyhow::bail!("no such program")));
        assert!(run.step("second", || Ok(passed(4))));
        assert!(!run.report());
        assert_eq!((run.passed, run.failed), (4, 1));
    }
}
