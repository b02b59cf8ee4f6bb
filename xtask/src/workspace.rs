//! Paths in the repository.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::process;

/// Root of the repository.
pub(crate) fn root() -> PathBuf {
    // Cargo sets the variable for the process it runs; a copied binary falls back to its build path.
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest.parent().map_or_else(|| manifest.clone(), Path::to_path_buf)
}

/// Build folder of Cargo.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// Folder of the tools for tests. Tests use this path, independent of the build folder.
pub(crate) fn tools() -> PathBuf {
    root().join("target").join("tools")
}

/// Output of `cargo metadata` for the workspace.
///
/// # Errors
/// When it fails, for example because `Cargo.lock` is out of date.
pub(crate) fn metadata(options: &[&str]) -> Result<Value> {
    let mut metadata = process::cargo();
    metadata.args(["metadata", "--format-version", "1", "--locked"]).args(options);
    serde_json::from_str(&process::output(&mut metadata)?).context("`cargo metadata` printed no JSON")
}

/// Folder of each package in the workspace, relative to the root, by the package's name.
///
/// # Errors
/// When `cargo metadata` fails or prints something unexpected.
pub(crate) fn packages() -> Result<BTreeMap<String, PathBuf>> {
    folders(&metadata(&["--no-deps"])?).context("`cargo metadata` printed an unexpected form")
}

/// Folders of packages in the output of `cargo metadata`.
pub(crate) fn folders(metadata: &Value) -> Option<BTreeMap<String, PathBuf>> {
    let root = Path::new(metadata["workspace_root"].as_str()?);
    let members: BTreeSet<&str> =
        metadata["workspace_members"].as_array()?.iter().filter_map(Value::as_str).collect();
    let packages = metadata["packages"].as_array()?.iter();
    let packages = packages.filter(|package| package["id"].as_str().is_some_and(|id| members.contains(id)));
    packages
        .map(|package| {
            let manifest = Path::new(package["manifest_path"].as_str()?);
            let folder = manifest.parent()?.strip_prefix(root).ok()?;
            Some((package["name"].as_str()?.to_owned(), folder.to_owned()))
        })
        .collect()
}

/// A build profile, as the flags of `cargo build` and the folder below the target folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Profile {
    /// Quick to build, for tests.
    Dev,
    Release,
}

impl Profile {
    /// Folder of the executables.
    pub(crate) fn folder(self) -> PathBuf {
        target().join(match self {
            Self::Dev => "debug",
            Self::Release => "release",
        })
    }

    /// Name for `cargo --profile`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Dev => "dev",
            Self::Release => "release",
        }
    }
}
