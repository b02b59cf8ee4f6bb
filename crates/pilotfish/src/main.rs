//! The `pilotfish` binary.

use clap::Parser;
use std::io::Write;
use std::process::ExitCode;

// Many small results of different ages: measured against the system's allocator in `docs/performance.md`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match pilotfish::cli::Cli::parse().run() {
        Ok(code) => code,
        Err(error) => {
            // The message is lost when stderr is closed.
            let _ = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::from(2)
        }
    }
}
