//! rnacos for `cargo xtask tools`: a server that is compatible with Nacos. Nacos itself is only published as
//! a separate distribution.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::{process, tools};

pub(crate) const VERSION: &str = "0.8.8";

const HINT: &str =
    "hint: cargo must reach a registry of crates; its own settings (config.toml) are respected";

/// Builds `rnacos/bin/rnacos` from the registry of crates, with little optimisation to shorten the build: 5
/// to 20 minutes.
///
/// # Errors
/// When it cannot be built.
pub(crate) fn bring(folder: &Path) -> Result<()> {
    let place = folder.join("rnacos");
    if is_pinned(&place).is_ok() {
        return Ok(());
    }
    let build = folder.join("rnacos-build");
    let mut install = process::cargo();
    install
        .args(["install", "--locked", "--quiet", "--force", "--version", VERSION, "--root"])
        .arg(&place)
        .arg("rnacos");
    install.env("CARGO_TARGET_DIR", &build);
    for (setting, value) in
        [("LTO", "off"), ("OPT_LEVEL", "1"), ("CODEGEN_UNITS", "16"), ("DEBUG", "false"), ("STRIP", "true")]
    {
        install.env(format!("CARGO_PROFILE_RELEASE_{setting}"), value);
    }
    tools::retry(&mut install, HINT)?;
    fs::remove_dir_all(&build).context("cannot remove what the build left")?;
    is_pinned(&place)
}

/// Checks that it runs on this machine and has the pinned version.
fn is_pinned(place: &Path) -> Result<()> {
    let executable = place.join("bin/rnacos");
    let printed = process::output(process::command(&executable).arg("--version"))?;
    if printed.trim() != format!("rnacos {VERSION}") {
        bail!("{} is not rnacos {VERSION}; it prints: {}", executable.display(), printed.trim());
    }
    Ok(())
}
