//! Libraries of the dashboard: npm packages with the hashes of `xtask/dashboard/package-lock.json`, of which
//! `cargo xtask vendor` copies a few files into the repository. Builds do not need npm.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::{node, process, tools, workspace};

const LOCK: &str = include_str!("../dashboard/package-lock.json");

/// Copied files: paths in the packages, and below the dashboard's `assets/vendor`.
const FILES: &[(&str, &str)] = &[
    ("@dagrejs/dagre/LICENSE", "dagre/LICENSE"),
    ("@dagrejs/dagre/dist/dagre.esm.js", "dagre/dagre.esm.js"),
    ("uplot/LICENSE", "uplot/LICENSE"),
    ("uplot/dist/uPlot.iife.min.js", "uplot/uPlot.iife.min.js"),
    ("uplot/dist/uPlot.min.css", "uplot/uPlot.min.css"),
];

/// Options of `cargo xtask vendor`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Say what differs, and copy nothing
    #[arg(long)]
    check: bool,
}

/// Packages of the lock file, and a hash of the whole file.
pub(crate) fn locked() -> String {
    node::stamp(LOCK)
}

/// Installs the locked packages into `target/tools/dashboard`.
///
/// # Errors
/// When npm is missing, or the packages are unavailable or differ from the lock file.
pub(crate) fn bring(folder: &Path) -> Result<()> {
    node::system_node()?;
    let place = folder.join("dashboard");
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(&place).with_context(|| format!("cannot make the folder {}", place.display()))?;
    for file in ["package.json", "package-lock.json"] {
        let from = workspace::root().join("xtask/dashboard").join(file);
        fs::copy(&from, place.join(file)).with_context(|| format!("cannot copy {}", from.display()))?;
    }
    let mut install = process::command("npm");
    // Scripts of packages do not run.
    install
        .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"])
        .current_dir(&place);
    tools::retry(&mut install, node::NPM_HINT)
}

/// Copies the files of the packages into the repository, or lists those that differ.
///
/// # Errors
/// When the packages are unavailable, or do not contain a file.
pub(crate) fn run(args: &Args) -> Result<bool> {
    tools::ensure(&["dashboard"])?;
    let packages = workspace::tools().join("dashboard/node_modules");
    let vendor = workspace::root().join("crates/operate/dashboard/assets/vendor");
    let mut same = true;
    for (from, to) in FILES {
        let (from, to) = (packages.join(from), vendor.join(to));
        let bytes = fs::read(&from).with_context(|| format!("the packages hold no {}", from.display()))?;
        if fs::read(&to).is_ok_and(|known| known == bytes) {
            continue;
        }
        same = false;
        if args.check {
            eprintln!("{} is not what the package holds", to.display());
            continue;
        }
        let Some(folder) = to.parent() else { bail!("{} has no folder", to.display()) };
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        fs::write(&to, bytes).with_context(|| format!("cannot write {}", to.display()))?;
        println!("{}", to.display());
    }
    Ok(same || !args.check)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn every_package_of_the_dashboard_is_locked_with_its_hash() {
        let lock: Value = serde_json::from_str(LOCK).expect("a lock file is JSON");
        let packages = lock["packages"].as_object().expect("packages by folder");
        for (folder, package) in packages.iter().filter(|(folder, _)| !folder.is_empty()) {
            assert!(package["integrity"].is_string(), "{folder} has no hash");
        }
    }

    #[test]
    fn what_is_copied_is_there_with_its_licence() {
        let vendor = workspace::root().join("crates/operate/dashboard/assets/vendor");
        for (_, to) in FILES {
            assert!(vendor.join(to).exists(), "{to}");
            let folder = Path::new(to).parent().expect("a folder");
            assert!(vendor.join(folder).join("LICENSE").exists(), "{to} has no licence");
        }
    }
}
