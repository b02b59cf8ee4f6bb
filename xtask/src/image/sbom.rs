//! Software bill of materials: every crate in the binary, with its version, licence and origin.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Recipe, build, licences};
use crate::{process, workspace};

/// Unique name of the file that cargo-cyclonedx writes for each manifest of the workspace.
const NAME: &str = "pilotfish.cdx";
/// Replacement of the checkout's path.
const SOURCE: &str = "/pilotfish";

/// Writes it into the recipe's output folder.
pub(super) fn make(recipe: &Recipe) -> Result<()> {
    let mut cyclonedx = process::command(workspace::tools().join("cargo-cyclonedx/bin/cargo-cyclonedx"));
    cyclonedx.args(["cyclonedx", "--quiet", "--format", "json", "--spec-version", "1.5"]);
    cyclonedx.args(["--target", &build::triple(), "--override-filename", NAME]);
    cyclonedx.arg("--manifest-path").arg(recipe.source.join("crates/pilotfish/Cargo.toml"));
    cyclonedx.env("SOURCE_DATE_EPOCH", recipe.epoch.to_string()).current_dir(&recipe.source);
    let written = process::output(&mut cyclonedx);
    let text = fs::read_to_string(recipe.source.join("crates/pilotfish").join(format!("{NAME}.json")));
    // Each member of the workspace has one; they are removed even if the tool failed half-way.
    remove_all(&recipe.source)?;
    written?;
    let text = text.context("cargo-cyclonedx wrote no file")?;
    fs::write(recipe.sbom(), text.replace(&*recipe.source.to_string_lossy(), SOURCE))
        .context("cannot write the bill of materials")
}

fn remove_all(source: &Path) -> Result<()> {
    for folder in workspace::packages()?.into_values() {
        let _ = fs::remove_file(source.join(folder).join(format!("{NAME}.json")));
    }
    Ok(())
}

/// Finds crates of the binary that are missing in the list, and paths of this machine.
pub(super) fn findings(recipe: &Recipe) -> Result<Vec<String>> {
    let text = fs::read_to_string(recipe.sbom()).context("cannot read the bill of materials")?;
    let sbom: Value = serde_json::from_str(&text).context("the bill of materials is no JSON")?;
    let listed: Vec<(&str, &str)> = sbom["components"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|component| Some((component["name"].as_str()?, component["version"].as_str()?)))
        .collect();
    let mut wrong: Vec<String> = licences::packages(recipe)?
        .iter()
        .filter(|package| package.name != "pilotfish")
        .filter(|package| !listed.contains(&(&*package.name, &*package.version)))
        .map(|package| format!("the bill of materials leaves out {} {}", package.name, package.version))
        .collect();
    if text.contains(&*recipe.source.to_string_lossy()) {
        wrong.push("the bill of materials holds a path of this machine".into());
    }
    Ok(wrong)
}
