//! `cargo xtask fuzz`: coverage-guided fuzzing with libFuzzer, on the pinned toolchain.
//!
//! The instrumentation passes are part of LLVM, and available in a stable compiler; libFuzzer itself is C++
//! and is built by `libfuzzer-sys`. Builds use a separate folder, `target/fuzz`, since instrumented code is
//! of no use elsewhere.

mod choose;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use anyhow::{Context, Result, bail};

use crate::{process, workspace};

const PACKAGE: &str = "pilotfish-fuzz";
/// Instrumentation by the compiler: counters, a table of their locations, and the operands of comparisons.
const INSTRUMENTED: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cforce-frame-pointers=yes";
/// Maximum size of an input in bytes.
const LONGEST: usize = 4096;
/// Maximum number of inputs of a target in the repository.
const MOST_KEPT: usize = 40;

/// Options of `cargo xtask fuzz`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Targets, named as the folders in dev/fuzz/corpus; all without a name
    targets: Vec<String>,
    /// Duration for each target, in seconds
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u32,
    /// Targets at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    jobs: u16,
    /// Choose the inputs that reach most, and keep them in the repository
    #[arg(long)]
    keep: bool,
    /// Try this input on one target instead
    #[arg(long, value_name = "FILE", conflicts_with_all = ["keep", "jobs", "seconds"])]
    input: Option<PathBuf>,
}

/// Runs the task. `Ok(false)` when a failing input was found.
///
/// # Errors
/// When the fuzzer cannot be built or started, or there is no such target.
pub(crate) fn run(args: &Args) -> Result<bool> {
    let all = targets()?;
    if let Some(unknown) = args.targets.iter().find(|name| !all.contains(*name)) {
        bail!("there is no target {unknown}; there are {}", all.into_iter().collect::<Vec<_>>().join(", "));
    }
    let chosen: Vec<String> =
        if args.targets.is_empty() { all.into_iter().collect() } else { args.targets.clone() };
    let fuzzer = Fuzzer { program: build()? };
    if let Some(input) = &args.input {
        let [target] = &chosen[..] else { bail!("name the one target that the input is for") };
        let input = std::env::current_dir()?.join(input);
        return process::succeeds(fuzzer.command(target).arg("-timeout=60").arg(input));
    }
    let done = fuzzer.fuzz_all(&chosen, args)?;
    for line in &done {
        println!("{}", line.shown());
    }
    if args.keep {
        for target in &chosen {
            fuzzer.keep(target)?;
        }
    }
    Ok(done.iter().all(|run| run.found.is_none()))
}

/// Folder of the inputs in the repository, with a folder for each target.
fn kept() -> PathBuf {
    workspace::root().join("dev/fuzz/corpus")
}

fn targets() -> Result<BTreeSet<String>> {
    let folders = fs::read_dir(kept()).context("cannot read the corpus")?;
    folders.map(|folder| Ok(folder?.file_name().to_string_lossy().into_owned())).collect()
}

/// Folder of instrumented builds, and of all other output of fuzzing.
fn folder() -> PathBuf {
    workspace::target().join("fuzz")
}

fn build() -> Result<PathBuf> {
    let version = process::output(process::command("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc names no host")?;
    let mut build = process::cargo();
    build.args(["build", "--locked", "--profile", "fuzz", "--package", PACKAGE, "--features", "libfuzzer"]);
    // With a target, build scripts and macros are compiled without these flags.
    build.args(["--target", host]).env("CARGO_TARGET_DIR", folder()).env("RUSTFLAGS", INSTRUMENTED);
    build.env_remove("CARGO_ENCODED_RUSTFLAGS");
    process::check(&mut build)?;
    Ok(folder().join(host).join("fuzz").join(PACKAGE))
}

struct Fuzzer {
    program: PathBuf,
}

/// Result of fuzzing one target.
struct Run {
    target: String,
    executions: u64,
    coverage: u64,
    features: u64,
    /// Input that failed, if any.
    found: Option<PathBuf>,
    log: PathBuf,
}

impl Run {
    fn shown(&self) -> String {
        let Self { target, executions, coverage, features, .. } = self;
        let reached =
            format!("{target:13} {executions:9} executions, {coverage:6} edges, {features:6} features");
        match &self.found {
            None => reached,
            Some(input) => format!(
                "{reached}\n  FOUND, see {}; again with\n  cargo xtask fuzz {target} --input {}",
                self.log.display(),
                input.display()
            ),
        }
    }
}

impl Fuzzer {
    fn command(&self, target: &str) -> Command {
        let mut command = process::command(&self.program);
        command.env("PILOTFISH_FUZZ_TARGET", target).env("RUST_BACKTRACE", "1");
        command
    }

    /// Fuzzes some targets, a limited number at a time.
    fn fuzz_all(&self, targets: &[String], args: &Args) -> Result<Vec<Run>> {
        let waiting = Mutex::new(targets.iter());
        let next = || waiting.lock().ok().and_then(|mut waiting| waiting.next());
        let worker = || -> Result<Vec<Run>> {
            let mut done = Vec::new();
            while let Some(target) = next() {
                done.push(self.fuzz(target, args.seconds)?);
            }
            Ok(done)
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..args.jobs).map(|_| scope.spawn(worker)).collect();
            let mut all = Vec::new();
            for worker in workers {
                let done: Result<Vec<Run>> = worker.join().unwrap_or_else(|_| bail!("a worker ended early"));
                all.extend(done?);
            }
            Ok(all)
        })
    }

    fn fuzz(&self, target: &str, seconds: u32) -> Result<Run> {
        let (found, log) = (folder().join("found").join(target), folder().join(format!("{target}.log")));
        fs::create_dir_all(&found).with_context(|| format!("cannot make {}", found.display()))?;
        let before = files(&found)?;
        let reached = working(target)?;
        eprintln!("{target}: {seconds} s, {}", log.display());
        let mut command = self.command(target);
        command.args([
            format!("-max_total_time={seconds}"),
            format!("-max_len={LONGEST}"),
            format!("-artifact_prefix={}/", found.display()),
        ]);
        command.args(["-rss_limit_mb=2048", "-timeout=25", "-print_final_stats=1", "-report_slow_units=5"]);
        command.arg(reached).arg(kept().join(target));
        let output = fs::File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        command.stdout(Stdio::null()).stderr(output);
        let is_quiet = process::succeeds(&mut command)?;
        let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        let found = files(&found)?.into_iter().find(|file| {
            let is_slow =
                file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("slow-unit"));
            !before.contains(file) && !is_slow
        });
        if !is_quiet && found.is_none() {
            bail!("the fuzzer of {target} failed without an input, see {}", log.display());
        }
        let (coverage, features) = reach(&text);
        Ok(Run { target: target.to_owned(), executions: executions(&text), coverage, features, found, log })
    }

    /// Selects inputs to keep from those of the repository and new ones.
    fn keep(&self, target: &str) -> Result<()> {
        let (control, merged) =
            (folder().join(format!("{target}.merge")), folder().join("merged").join(target));
        if control.exists() {
            fs::remove_file(&control)?;
        }
        if merged.exists() {
            fs::remove_dir_all(&merged)?;
        }
        fs::create_dir_all(&merged)?;
        let mut command = self.command(target);
        let mut flag = OsString::from("-merge_control_file=");
        flag.push(&control);
        command.args(["-merge=1", "-rss_limit_mb=2048", "-timeout=25"]).arg(format!("-max_len={LONGEST}"));
        command.arg(flag).arg(&merged).arg(working(target)?).arg(kept().join(target));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        process::check(&mut command)?;
        let chosen = choose::inputs(&fs::read_to_string(&control)?, MOST_KEPT)?;
        let texts = chosen.iter().map(|file| {
            let name = file.file_name().context("an input without a name")?;
            Ok((name.to_owned(), fs::read(file)?))
        });
        let texts: Vec<(OsString, Vec<u8>)> = texts.collect::<Result<_>>()?;
        for file in files(&kept().join(target))? {
            fs::remove_file(file)?;
        }
        for (name, text) in &texts {
            fs::write(kept().join(target).join(name), text)?;
        }
        println!("{target:13} {} inputs are kept", texts.len());
        Ok(())
    }
}

/// Folder in which the fuzzer stores inputs with new features.
fn working(target: &str) -> Result<PathBuf> {
    let folder = folder().join("corpus").join(target);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

fn files(folder: &Path) -> Result<BTreeSet<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    entries.map(|entry| Ok(entry?.path())).collect()
}

/// Number after the last occurrence of a word.
fn last_number(log: &str, word: &str) -> Option<u64> {
    let after = log.rsplit_once(word)?.1.trim_start();
    after.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn executions(log: &str) -> u64 {
    // After a crash there are no statistics, only the last line of progress.
    let progress =
        || log.lines().rev().find_map(|line| line.strip_prefix('#')?.split('\t').next()?.parse().ok());
    last_number(log, "stat::number_of_executed_units:").or_else(progress).unwrap_or_default()
}

/// Numbers of covered edges and features.
fn reach(log: &str) -> (u64, u64) {
    let number = |word| last_number(log, word).unwrap_or_default();
    (number(" cov: "), number(" ft: "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_the_log() {
        let log = "INFO: seed corpus\n#2\tINITED cov: 10 ft: 11 corp: 1/1b exec/s: 0 rss: 30Mb\n\
                   #4096\tpulse  cov: 120 ft: 340 corp: 7/90b lim: 4096 exec/s: 2048 rss: 40Mb\n";
        assert_eq!((executions(log), reach(log)), (4096, (120, 340)));
        let ended = format!("{log}stat::number_of_executed_units: 5000\nstat::peak_rss_mb: 40\n");
        assert_eq!(executions(&ended), 5000);
        assert_eq!((executions(""), reach("")), (0, (0, 0)));
    }

    #[test]
    fn there_are_targets_and_a_few_inputs_of_each() {
        let targets = targets().unwrap();
        assert!(targets.contains("yaml"));
        for target in targets {
            let inputs = files(&kept().join(&target)).unwrap();
            assert!((1..=MOST_KEPT).contains(&inputs.len()), "{target}: {} inputs", inputs.len());
            for input in inputs {
                assert!(fs::metadata(&input).unwrap().len() <= LONGEST as u64, "{}", input.display());
            }
        }
    }
}
