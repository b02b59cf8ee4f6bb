//! The `pilotfish` binary.

use clap::Parser;
use std::process::ExitCode;

// Many small results of different ages: measured against the system's allocator in `docs/performance.md`.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    pilotfish::cli::Cli::parse().run_to_end(&[])
}
