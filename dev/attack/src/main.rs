//! Command line of the attacks; `cargo xtask attack` builds and runs it.

// A command-line tool prints to the terminal.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Parser, ValueEnum};
use pilotfish_attack::{Attack, Bounds, Options, all, head, run};

#[derive(Parser)]
#[command(about = "Attacks a Pilotfish, with honest proxies beside it")]
struct Args {
    /// Attacks to run; all when there is none
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// The pilotfish that is attacked
    #[arg(long, value_name = "FILE", required_unless_present = "list")]
    pilotfish: Option<PathBuf>,
    /// Duration of each attack in seconds [default: 10, in the short form 2]
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// Bounds for builds without optimisation on a busy machine, and memory looked at only after all attacks
    #[arg(long)]
    short: bool,
    /// Prints the names of the attacks
    #[arg(long)]
    list: bool,
    /// Format of the results
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Output,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

fn main() -> ExitCode {
    match attack(Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn attack(args: Args) -> Result<bool> {
    let attacks = chosen(&args.names)?;
    let (false, Some(pilotfish)) = (args.list, args.pilotfish) else {
        for attack in attacks {
            println!("{:26} {}", attack.name, attack.what);
        }
        return Ok(true);
    };
    let time = Duration::from_secs(args.seconds.unwrap_or(if args.short { 2 } else { 10 }));
    let bounds = if args.short { Bounds::SHORT } else { Bounds::FULL };
    let options = Options { pilotfish, attacks, time, bounds };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let in_json = args.output == Output::Json;
    eprintln!("{}", head());
    let report = runtime.block_on(run(&options, |row| eprintln!("{row}")))?;
    if in_json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        let missed = report.missed().count();
        println!("{} attacks, {missed} with a bound that was missed", options.attacks.len());
        for skipped in report.skipped() {
            println!("not tried: {skipped}");
        }
        if !report.envoy {
            println!("without Envoy: `cargo xtask tools` brings it");
        }
    }
    // A skipped attack does not pass.
    Ok(report.holds() && report.skipped().is_empty())
}

fn chosen(names: &[String]) -> Result<Vec<Attack>> {
    let attacks = all();
    if names.is_empty() {
        return Ok(attacks);
    }
    let mut found = Vec::new();
    for name in names {
        match attacks.iter().find(|attack| attack.name == name) {
            Some(attack) => found.push(*attack),
            None => bail!("there is no attack {name}; --list shows all"),
        }
    }
    Ok(found)
}
