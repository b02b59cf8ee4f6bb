//! `cargo xtask attack`: builds Pilotfish and its attackers, and runs the attacks.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Result;

use crate::workspace::Profile;
use crate::{process, tools};

/// Options of `cargo xtask attack`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Attacks to run; all when there is none
    #[arg(value_name = "NAME")]
    names: Vec<OsString>,
    /// Duration of each attack in seconds [default: 10, in the short form 2]
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// The form that is a test: builds without optimisation, and bounds for a busy machine
    #[arg(long)]
    short: bool,
    /// Attack this executable instead of building one
    #[arg(long, value_name = "FILE")]
    pilotfish: Option<PathBuf>,
    /// Only print the names of the attacks
    #[arg(long)]
    list: bool,
    /// Format of the results: text or json
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<OsString>,
}

impl Args {
    /// Arguments for the attackers.
    fn handed_on(&self) -> Vec<OsString> {
        let mut args = self.names.clone();
        if let Some(seconds) = self.seconds {
            args.extend(["--seconds".into(), seconds.to_string().into()]);
        }
        if let Some(output) = &self.output {
            args.extend(["--output".into(), output.clone()]);
        }
        let flags = [("--short", self.short), ("--list", self.list)];
        args.extend(flags.into_iter().filter(|(_, given)| *given).map(|(flag, _)| flag.into()));
        args
    }
}

/// Runs the task. `Ok(false)` when a bound was missed.
///
/// # Errors
/// When something cannot be built or started.
pub(crate) fn run(args: &Args) -> Result<bool> {
    let profile = if args.short { Profile::Dev } else { Profile::Release };
    let mut build = process::cargo();
    build.arg("build").args((!args.short).then_some("--release"));
    build.args(["--package", "pilotfish-attack", "--bins"]);
    let pilotfish = match &args.pilotfish {
        Some(path) => std::env::current_dir()?.join(path),
        None => {
            build.args(["--package", "pilotfish"]);
            profile.folder().join("pilotfish")
        }
    };
    if !args.list {
        // For an Envoy with traffic, and for attacks on webhooks and tokens of an API server.
        tools::ensure(&["envoy", "etcd", "kube-apiserver"])?;
    }
    process::check(&mut build)?;
    let mut attack = process::command(profile.folder().join("pilotfish-attack"));
    attack.args(args.handed_on());
    if !args.list {
        attack.arg("--pilotfish").arg(pilotfish);
    }
    process::succeeds(&mut attack)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_is_handed_on() {
        let args = Args {
            names: vec!["limits".into()],
            seconds: Some(3),
            short: true,
            pilotfish: None,
            list: false,
            output: Some("json".into()),
        };
        assert_eq!(args.handed_on(), ["limits", "--seconds", "3", "--output", "json", "--short"]);
    }
}
