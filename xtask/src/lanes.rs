//! Test targets side by side: most of the time of a real client is waiting.

use std::collections::VecDeque;
use std::io::Write as _;
use std::process::Stdio;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::process;

/// Number of test targets that run at the same time.
const LANES: usize = 2;

/// Targets that run alone, after the others: they measure, hold a mesh that takes both processors, or ask an
/// Envoy right after a change whether it does what Pilotfish says, before a busy Envoy has taken it in.
const ALONE: &[&str] = &[
    "real_attack",
    "real_dashboard",
    "real_why",
    "real_why_connections",
    "real_why_gateway",
    "real_why_policies",
];

/// Targets that take more than a minute, the longest first: begun last, one of them would run alone.
const LONG: &[&str] = &[
    "real_etcd",
    "real_clusters",
    "real_faults",
    "real_polaris",
    "real_nacos",
    "real_accept",
    "real_eureka",
    "real_skew",
    "real_definitions",
    "real_nacos_tls",
    "real_eureka_faults",
];

/// A finished test target.
struct Finished<'a> {
    target: &'a str,
    passed: bool,
    output: String,
    took: Duration,
}

/// Runs each target by `cargo test` and passes its output, line by line, to `on_line`. `Ok(false)` when one
/// failed.
///
/// # Errors
/// When Cargo cannot be started.
pub(crate) fn run(targets: &[String], mut on_line: impl FnMut(&str) + Send) -> Result<bool> {
    let (side_by_side, alone) = order(targets);
    let mut all_passed = true;
    let mut report = |done: &Finished| -> Result<()> {
        all_passed &= done.passed;
        done.output.lines().for_each(&mut on_line);
        let verdict = if done.passed { "ok" } else { "FAILED" };
        let mut out = std::io::stdout();
        writeln!(out, "{}\n{verdict}  {} {:.1} s", done.output, done.target, done.took.as_secs_f64())
            .context("cannot write to stdout")
    };
    side_by_side_in_lanes(side_by_side, &mut report)?;
    for target in alone {
        report(&test(target)?)?;
    }
    Ok(all_passed)
}

/// Targets for the lanes, long ones first, and targets that run alone.
fn order(targets: &[String]) -> (VecDeque<&str>, Vec<&str>) {
    let (alone, mut others): (Vec<&str>, Vec<&str>) =
        targets.iter().map(String::as_str).partition(|name| ALONE.contains(name));
    others.sort_by_key(|name| LONG.iter().position(|long| long == name).unwrap_or(LONG.len()));
    (others.into(), alone)
}

fn side_by_side_in_lanes<'a>(
    targets: VecDeque<&'a str>,
    report: &mut (impl FnMut(&Finished<'a>) -> Result<()> + Send),
) -> Result<()> {
    let (waiting, report) = (Mutex::new(targets), Mutex::new(report));
    let lane = || -> Result<()> {
        loop {
            let next = waiting.lock().expect("no lane panics").pop_front();
            let Some(target) = next else { return Ok(()) };
            eprintln!("begun   {target}");
            let done = test(target)?;
            report.lock().expect("no lane panics")(&done)?;
        }
    };
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES).map(|_| scope.spawn(lane)).collect();
        lanes.into_iter().try_for_each(|lane| lane.join().expect("no lane panics"))
    })
}

fn test(target: &str) -> Result<Finished<'_>> {
    let began = Instant::now();
    let mut command = process::cargo();
    command.args(["test", "--workspace", "--locked", "--no-fail-fast", "--test", target]);
    let name = process::shown(&command);
    let output = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .output()
        .with_context(|| format!("cannot start `{name}`"))?;
    let text = [output.stderr, output.stdout].concat();
    Ok(Finished {
        target,
        passed: output.status.success(),
        output: String::from_utf8_lossy(&text).into_owned(),
        took: began.elapsed(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_targets_come_first_and_measuring_ones_alone() {
        let targets = ["real_dns", "real_attack", "real_faults", "real_etcd"].map(str::to_owned);
        let (side_by_side, alone) = order(&targets);
        assert_eq!(side_by_side, ["real_etcd", "real_faults", "real_dns"]);
        assert_eq!(alone, ["real_attack"]);
    }
}
