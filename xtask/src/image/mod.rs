//! `cargo xtask image`: a static binary, its bill of materials, and an image with nothing else, all
//! reproducible.
//!
//! ```text
//! build.rs     the binary, of musl, with no path of this machine in it
//! sbom.rs      what it is made of (CycloneDX), by cargo-cyclonedx
//! licences.rs  the licences of all that, for those who get the image
//! layout.rs    an OCI layout with these files, by umoci
//! repeat.rs    the same again from another folder, compared
//! ```

mod build;
mod layout;
mod licences;
mod repeat;
mod sbom;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::workspace::{self, Profile};
use crate::{process, tools};

/// Tools that an image needs.
const TOOLS: [&str; 4] = ["cargo-deny", "cargo-cyclonedx", "musl", "umoci"];

/// Options of `cargo xtask image`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Build profile of the binary; `dev` is for the tests
    #[arg(long, value_enum, default_value_t = Profile::Release)]
    profile: Profile,
    /// Make it a second time from a copy in another folder, and compare every byte
    #[arg(long)]
    check_reproducible: bool,
}

/// Input and output folders of an image.
struct Recipe {
    source: PathBuf,
    /// Build folder of Cargo.
    target: PathBuf,
    /// Folder of the finished image.
    output: PathBuf,
    profile: Profile,
    /// Seconds since 1970, used for every time in the output.
    epoch: u64,
}

impl Recipe {
    fn binary(&self) -> PathBuf {
        self.output.join("pilotfish")
    }

    fn sbom(&self) -> PathBuf {
        self.output.join("pilotfish.cdx.json")
    }

    fn licences(&self) -> PathBuf {
        self.output.join("THIRD-PARTY-LICENSES")
    }

    fn layout(&self) -> PathBuf {
        self.output.join("oci")
    }

    /// Builds everything, replacing earlier output.
    fn make(&self) -> Result<()> {
        let _ = fs::remove_dir_all(&self.output);
        fs::create_dir_all(&self.output)
            .with_context(|| format!("cannot make the folder {}", self.output.display()))?;
        build::make(self)?;
        sbom::make(self)?;
        licences::make(self)?;
        layout::make(self)
    }

    /// Problems of the output, one sentence each.
    fn findings(&self) -> Result<Vec<String>> {
        let mut wrong = build::findings(self)?;
        wrong.extend(sbom::findings(self)?);
        Ok(wrong)
    }
}

/// Runs the task. `Ok(false)` when the output has problems.
///
/// # Errors
/// When a tool is missing or fails.
pub(crate) fn run(args: &Args) -> Result<bool> {
    tools::ensure(&TOOLS)?;
    let recipe = Recipe {
        source: workspace::root(),
        target: workspace::target(),
        output: workspace::root().join("target/image"),
        profile: args.profile,
        epoch: epoch()?,
    };
    recipe.make()?;
    let mut wrong = recipe.findings()?;
    if args.check_reproducible {
        wrong.extend(repeat::findings(&recipe)?);
    }
    for line in &wrong {
        eprintln!("  {line}");
    }
    report(&recipe)?;
    Ok(wrong.is_empty())
}

/// Builds the image of the tests, and checks everything that does not need to run it.
///
/// # Errors
/// When a tool is missing or fails.
pub(crate) fn step() -> Result<bool> {
    run(&Args { profile: Profile::Dev, check_reproducible: false })
}

/// Time in all output: `SOURCE_DATE_EPOCH`, or else that of the last commit.
fn epoch() -> Result<u64> {
    let text = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text,
        Err(_) => process::output(process::command("git").args(["log", "-1", "--format=%ct"]))
            .context("hint: outside of a Git checkout, SOURCE_DATE_EPOCH names the time of the release")?,
    };
    text.trim().parse().with_context(|| format!("SOURCE_DATE_EPOCH is not a number of seconds: {text}"))
}

fn report(recipe: &Recipe) -> Result<()> {
    let digests = digests(&[recipe.binary(), recipe.sbom()])?;
    print!("{digests}");
    println!("{}  {}", layout::digest(&recipe.layout())?, recipe.layout().display());
    Ok(())
}

/// SHA-256 of files in the format of sha256sum.
fn digests(files: &[PathBuf]) -> Result<String> {
    process::output(process::command("sha256sum").args(files))
}

/// True if a file contains a text.
fn holds(file: &Path, text: &str) -> Result<bool> {
    let mut grep = process::command("grep");
    grep.args(["--quiet", "--text", "--fixed-strings", "-e", text]).arg(file);
    process::succeeds(&mut grep)
}
