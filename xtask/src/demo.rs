//! `cargo xtask demo`: brings an Envoy and runs `pilotfish demo` with it.

use anyhow::Result;

use crate::{process, tools, workspace};

/// Options of `cargo xtask demo`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Passed on to `pilotfish demo`, as in `cargo xtask demo --rate 100`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    arguments: Vec<String>,
}

/// Builds without optimisation: the duration of the build matters more here than the speed of the demo.
pub(crate) fn run(args: &Args) -> Result<bool> {
    tools::ensure(&["envoy"])?;
    let mut cargo = process::cargo();
    cargo.args(["run", "--package", "pilotfish", "--", "demo", "--envoy"]);
    cargo.arg(workspace::tools().join("envoy")).args(&args.arguments).current_dir(workspace::root());
    process::succeeds(&mut cargo)
}
