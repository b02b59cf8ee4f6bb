//! Tasks of the repository, run as `cargo xtask TASK`.
//!
//! Tasks install all requirements other than Rust and Python into `target/tools`. Progress is printed to
//! stderr, results to stdout, and a failed task prints a hint.

// A command-line tool prints to the terminal.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod arrows;
mod attack;
mod bench;
mod bind;
mod chromium;
mod circles;
mod comments;
mod dashboard;
mod debian;
mod demo;
mod dependencies;
mod docs;
mod fuzz;
mod image;
mod java;
mod kubernetes;
mod lanes;
mod modules;
mod netfilter;
mod node;
mod oracle;
mod outcome;
mod process;
mod rnacos;
mod supply;
mod test;
mod tools;
mod workspace;
mod zookeeper;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

/// Command line of `cargo xtask`.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about = "Tasks of the Pilotfish repository")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(clap::Subcommand)]
enum Task {
    /// Bring what tests need (Envoy, a Python venv) into target/tools
    Tools(tools::Args),
    /// Check everything: format, arrows, dependencies and modules of crates, lints, documents, tests, real
    /// clients, oracle
    Test(test::Args),
    /// Compare what Pilotfish sends with the recorded cases of istiod
    Oracle(oracle::Args),
    /// Copy the libraries of the dashboard into the repository, at the locked versions
    Vendor(dashboard::Args),
    /// Try Pilotfish: bring an Envoy, serve the example, send traffic and show where it goes
    Demo(demo::Args),
    /// Attack Pilotfish in every way that is known, with honest proxies and an Envoy beside it
    Attack(attack::Args),
    /// Make the image: a static binary, what it is made of, and an OCI layout, in target/image
    Image(image::Args),
    /// Measure Pilotfish beside a server that only broadcasts, in one run
    Bench(bench::Args),
    /// Fuzz what reads input, guided by coverage
    Fuzz(fuzz::Args),
}

/// Names of all tasks.
fn tasks() -> Vec<String> {
    Cli::command().get_subcommands().map(|task| task.get_name().to_owned()).collect()
}

fn main() -> ExitCode {
    let done = match Cli::parse().task {
        Task::Tools(args) => tools::run(&args).map(|()| true),
        Task::Test(args) => test::run(&args),
        Task::Oracle(args) => oracle::run(&args),
        Task::Vendor(args) => dashboard::run(&args),
        Task::Demo(args) => demo::run(&args),
        Task::Attack(args) => attack::run(&args),
        Task::Image(args) => image::run(&args),
        Task::Bench(args) => bench::run(&args),
        Task::Fuzz(args) => fuzz::run(&args),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
