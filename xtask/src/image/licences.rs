//! Licences of the crates in the binary. Most of them require that their text is distributed with it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{Recipe, build};
use crate::process;

/// Prefixes of files with a licence or a notice.
const BEGINNINGS: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"];

/// A crate in the binary.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
    /// Licence as an SPDX expression.
    licence: String,
    folder: PathBuf,
    is_ours: bool,
}

/// Writes them into the recipe's output folder.
pub(super) fn make(recipe: &Recipe) -> Result<()> {
    let mut text = String::from(
        "The crates that Pilotfish is built from, and their licences. Each text is given once.\n",
    );
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in packages(recipe)?.iter().filter(|package| !package.is_ours) {
        let title = format!("{} {}", package.name, package.version);
        text.push_str(&format!("\n{title}: {}", package.licence));
        for found in texts_of(&package.folder)? {
            texts.entry(found).or_default().insert(title.clone());
        }
    }
    text.push('\n');
    for (found, of) in &texts {
        let of = of.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        text.push_str(&format!("\n{}\n{of}\n\n{found}\n", "-".repeat(80)));
    }
    fs::write(recipe.licences(), text).context("cannot write the licences")
}

/// Texts in a crate's folder, trimmed, in the order of the files' names.
fn texts_of(folder: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
    files.retain(|path| path.is_file() && is_licence(path));
    files.sort();
    let read = |path: &PathBuf| {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(String::from_utf8_lossy(&bytes).replace("\r\n", "\n").trim().to_owned())
    };
    files.iter().map(read).collect()
}

fn is_licence(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
    BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
}

/// Crates in the binary, without those that only build scripts and tests use, by name and version.
pub(super) fn packages(recipe: &Recipe) -> Result<Vec<Package>> {
    let mut metadata = process::cargo();
    metadata.current_dir(&recipe.source).args(["metadata", "--format-version", "1", "--locked"]);
    metadata.args(["--filter-platform", &build::triple()]);
    let metadata: Value =
        serde_json::from_str(&process::output(&mut metadata)?).context("`cargo metadata` printed no JSON")?;
    packages_of(&metadata)
}

fn packages_of(metadata: &Value) -> Result<Vec<Package>> {
    let all: BTreeMap<&str, &Value> = metadata["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|it| Some((it["id"].as_str()?, it)))
        .collect();
    let nodes: BTreeMap<&str, &Value> = metadata["resolve"]["nodes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|it| Some((it["id"].as_str()?, it)))
        .collect();
    let root = all.iter().find(|(_, package)| package["name"] == "pilotfish");
    let Some((&root, _)) = root else { bail!("the workspace has no package `pilotfish`") };
    let mut seen = BTreeSet::from([root]);
    let mut open = vec![root];
    while let Some(id) = open.pop() {
        let dependencies = nodes.get(id).and_then(|node| node["deps"].as_array()).into_iter().flatten();
        let linked = dependencies.filter(|it| is_linked(it)).filter_map(|it| it["pkg"].as_str());
        open.extend(linked.filter(|id| seen.insert(id)));
    }
    let mut packages: Vec<Package> =
        seen.iter().filter_map(|id| all.get(id)).filter_map(|package| package_of(package)).collect();
    packages.sort();
    Ok(packages)
}

/// True if a dependency is not only one of build scripts or tests.
fn is_linked(dependency: &Value) -> bool {
    dependency["dep_kinds"].as_array().into_iter().flatten().any(|kind| kind["kind"].is_null())
}

fn package_of(package: &Value) -> Option<Package> {
    Some(Package {
        name: package["name"].as_str()?.to_owned(),
        version: package["version"].as_str()?.to_owned(),
        licence: package["license"].as_str().unwrap_or("see its text").to_owned(),
        folder: Path::new(package["manifest_path"].as_str()?).parent()?.to_owned(),
        is_ours: package["source"].is_null(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn package(name: &str) -> Value {
        json!({"id": name, "name": name, "version": "1.0.0", "license": "MIT", "source": "registry",
            "manifest_path": format!("/{name}/Cargo.toml")})
    }

    #[test]
    fn crates_of_build_scripts_and_tests_are_left_out() {
        let names = ["pilotfish", "linked", "deeper", "builds", "tests"];
        let metadata = json!({
            "packages": names.map(package),
            "resolve": {"nodes": [
                {"id": "pilotfish", "deps": [
                    {"pkg": "linked", "dep_kinds": [{"kind": null}]},
                    {"pkg": "builds", "dep_kinds": [{"kind": "build"}]},
                    {"pkg": "tests", "dep_kinds": [{"kind": "dev"}]},
                ]},
                {"id": "linked", "deps": [{"pkg": "deeper", "dep_kinds": [{"kind": "dev"}, {"kind": null}]}]},
            ]},
        });
        let packages = packages_of(&metadata).expect("it has a pilotfish");
        let found: Vec<&str> = packages.iter().map(|package| package.name.as_str()).collect();
        assert_eq!(found, ["deeper", "linked", "pilotfish"]);
    }

    #[test]
    fn licences_are_known_by_their_names() {
        for name in ["LICENSE", "LICENSE-MIT", "license.md", "NOTICE", "COPYING"] {
            assert!(is_licence(Path::new(name)), "{name}");
        }
        assert!(!is_licence(Path::new("README.md")));
    }
}
