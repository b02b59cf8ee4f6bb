//! Packages of gRPC for Node.js, as part of `cargo xtask tools`: the versions and hashes of
//! `xtask/node/package-lock.json`.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{process, tools, workspace};

const LOCK: &str = include_str!("../node/package-lock.json");
pub(crate) const NPM_HINT: &str =
    "hint: npm must reach a package registry; its own settings (.npmrc, HTTPS_PROXY) are respected";
/// Minimum major version of Node.js, which the locked packages are tested with.
const OLDEST: u32 = 18;

/// Packages of the npm lock file, and a hash of the whole file, which covers indirect ones.
pub(crate) fn locked() -> String {
    stamp(LOCK)
}

/// Packages and hash of a lock file.
pub(crate) fn stamp(lock: &str) -> String {
    let read: Value = serde_json::from_str(lock).unwrap_or_default();
    let direct = read["packages"][""]["dependencies"].as_object().into_iter().flatten();
    let named = direct.map(|(name, version)| format!("{name}@{}", version.as_str().unwrap_or("?")));
    let mut hasher = DefaultHasher::new();
    lock.hash(&mut hasher);
    format!("{} (lock {:016x})", named.collect::<Vec<_>>().join(" "), hasher.finish())
}

/// Checks that the machine's Node.js is new enough and has npm.
pub(crate) fn system_node() -> Result<()> {
    let hint = "hint: install Node with npm; Debian and Ubuntu have them in the packages nodejs and npm";
    let Ok(output) = process::output(process::command("node").arg("--version")) else {
        bail!("Node {OLDEST} or newer is needed, and there is no `node`\n{hint}");
    };
    let version = output.trim().trim_start_matches('v');
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_none_or(|major| major < OLDEST) {
        bail!("Node {OLDEST} or newer is needed, and `node` is {version}\n{hint}");
    }
    if process::output(process::command("npm").arg("--version")).is_err() {
        bail!("there is a `node`, but no `npm`\n{hint}");
    }
    Ok(())
}

/// Installs the locked packages into `target/tools/node`.
///
/// # Errors
/// When Node.js is missing, or the packages are unavailable.
pub(crate) fn bring(folder: &Path) -> Result<()> {
    system_node()?;
    let node = folder.join("node");
    // Packages of other versions, or of an incomplete installation, are replaced as a whole.
    let _ = fs::remove_dir_all(&node);
    fs::create_dir_all(&node).with_context(|| format!("cannot make the folder {}", node.display()))?;
    for file in ["package.json", "package-lock.json"] {
        let from = workspace::root().join("xtask/node").join(file);
        fs::copy(&from, node.join(file)).with_context(|| format!("cannot copy {}", from.display()))?;
    }
    let mut install = process::command("npm");
    // Scripts of packages do not run: the tests need plain JavaScript only.
    install
        .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"])
        .current_dir(&node);
    tools::retry(&mut install, NPM_HINT)?;
    let mut proof = process::command("node");
    proof.args(["-e", "require('@grpc/grpc-js-xds').register()"]).current_dir(&node);
    process::output(&mut proof).context("the Node packages were installed but cannot be loaded")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_package_is_locked_with_its_hash() {
        let lock: Value = serde_json::from_str(LOCK).expect("a lock file is JSON");
        let packages = lock["packages"].as_object().expect("packages by folder");
        for (folder, package) in packages.iter().filter(|(folder, _)| !folder.is_empty()) {
            assert!(package["integrity"].is_string(), "{folder} has no hash");
        }
        let direct = packages[""]["dependencies"].as_object().expect("dependencies");
        for (name, version) in direct {
            assert_eq!(
                &packages[&format!("node_modules/{name}")]["version"],
                version,
                "{name} is not pinned"
            );
        }
    }

    #[test]
    fn a_further_package_changes_the_stamp() {
        assert!(stamp(LOCK).starts_with("@grpc/grpc-js@"), "{}", stamp(LOCK));
        assert_ne!(stamp(LOCK), stamp(&LOCK.replacen("integrity", "", 1)));
    }
}
