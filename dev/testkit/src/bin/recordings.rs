//! Lists what differs between two sets of recordings, by field: the work list of a new version of istiod.
#![allow(clippy::print_stdout, reason = "a command-line tool")]

use anyhow::Result;
use clap::Parser;
use pilotfish_testkit::oracle::{self, Recordings};
use std::path::PathBuf;

/// Lists which resources of which cases differ between two sets of recordings, grouped by field.
///
/// Example: recordings old/cases
#[derive(Parser)]
struct Args {
    /// Folder with the cases of the older version.
    old: PathBuf,
    /// Folder with the cases of the newer version.
    #[arg(default_value_os_t = oracle::cases_folder())]
    new: PathBuf,
    /// Resources listed for each field.
    #[arg(long, default_value_t = 20)]
    most: usize,
}

fn main() -> Result<()> {
    let args = Args::parse();
    print!("{}", Recordings::between(&args.old, &args.new)?.list(args.most));
    Ok(())
}
