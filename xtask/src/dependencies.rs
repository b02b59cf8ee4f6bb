//! Unused dependencies, which would be compiled, audited and updated for no reason.
//!
//! The check is textual. It searches for the crate's identifier in the Rust files of the package that names
//! it: `[dependencies]` in `src`, `[build-dependencies]` in `build.rs`, `[dev-dependencies]` in every file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::workspace;

/// A dependency that no source file names, with the reason to keep it.
struct Allowed {
    package: &'static str,
    dependency: &'static str,
    /// Shown when the entry is no longer needed.
    reason: &'static str,
}

const ALLOWED: &[Allowed] = &[Allowed {
    package: "pilotfish-protogen",
    dependency: "envoy-types",
    reason: "puts the crate that ships Envoy's .proto files into the lock file",
}];

/// Section of a manifest with dependencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Section {
    Normal,
    Build,
    Dev,
}

/// One dependency in a manifest.
#[derive(Debug)]
struct Dependency {
    name: String,
    /// Identifier in source files: `rustls-webpki` is `webpki`.
    identifier: String,
    section: Section,
    features: BTreeSet<String>,
}

/// A package of the workspace with the text of its Rust files.
#[derive(Default)]
struct Package {
    name: String,
    dependencies: Vec<Dependency>,
    /// Texts by path relative to the package.
    sources: BTreeMap<PathBuf, String>,
}

/// Checks the workspace. Returns unused dependencies, one sentence each.
///
/// # Errors
/// When `cargo metadata` fails or a file cannot be read.
pub(crate) fn check() -> Result<Vec<String>> {
    let metadata = workspace::metadata(&[])?;
    let mut packages = read(&metadata).context("`cargo metadata` printed an unexpected form")?;
    for (package, folder) in &mut packages {
        read_sources(folder, Path::new(""), &mut package.sources)?;
    }
    let packages: Vec<Package> = packages.into_iter().map(|(package, _)| package).collect();
    let manifest = workspace::root().join("Cargo.toml");
    let manifest = std::fs::read_to_string(&manifest).context("cannot read the workspace's Cargo.toml")?;
    let mut found: Vec<String> = packages.iter().flat_map(|package| package.findings(ALLOWED)).collect();
    found.extend(unused_by_all(&manifest, &packages));
    Ok(found)
}

/// Packages of the workspace with their folders.
fn read(metadata: &Value) -> Option<Vec<(Package, PathBuf)>> {
    let members: BTreeSet<&str> =
        metadata["workspace_members"].as_array()?.iter().filter_map(Value::as_str).collect();
    let identifiers = identifiers(metadata)?;
    let mut packages = Vec::new();
    for package in metadata["packages"].as_array()? {
        if !members.contains(package["id"].as_str()?) {
            continue;
        }
        let dependencies: Option<Vec<Dependency>> =
            package["dependencies"].as_array()?.iter().map(|entry| dependency(entry, &identifiers)).collect();
        let folder = Path::new(package["manifest_path"].as_str()?).parent()?.to_path_buf();
        let name = package["name"].as_str()?.to_owned();
        packages.push((Package { name, dependencies: dependencies?, ..Package::default() }, folder));
    }
    Some(packages)
}

/// Identifier of each package that has a library, by the package's name.
fn identifiers(metadata: &Value) -> Option<BTreeMap<&str, &str>> {
    let mut identifiers = BTreeMap::new();
    for package in metadata["packages"].as_array()? {
        let targets = package["targets"].as_array()?;
        let library = targets.iter().find(|target| {
            let kinds = target["kind"].as_array().into_iter().flatten();
            kinds.filter_map(Value::as_str).any(|kind| kind == "proc-macro" || kind.ends_with("lib"))
        });
        if let Some(library) = library {
            identifiers.insert(package["name"].as_str()?, library["name"].as_str()?);
        }
    }
    Some(identifiers)
}

fn dependency(entry: &Value, identifiers: &BTreeMap<&str, &str>) -> Option<Dependency> {
    let name = entry["name"].as_str()?;
    let identifier = entry["rename"].as_str().or_else(|| identifiers.get(name).copied()).unwrap_or(name);
    let section = match entry["kind"].as_str() {
        Some("dev") => Section::Dev,
        Some("build") => Section::Build,
        _ => Section::Normal,
    };
    let features =
        entry["features"].as_array()?.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    Some(Dependency { name: name.to_owned(), identifier: identifier.replace('-', "_"), section, features })
}

/// Adds the Rust files of a folder recursively.
fn read_sources(root: &Path, folder: &Path, sources: &mut BTreeMap<PathBuf, String>) -> Result<()> {
    let shown = root.join(folder);
    let entries = std::fs::read_dir(&shown).with_context(|| format!("cannot read {}", shown.display()))?;
    for entry in entries {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            read_sources(root, &path, sources)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            read_source(root, &path, sources)?;
        }
    }
    Ok(())
}

/// Adds a Rust file, and those of other packages that it includes by `#[path = "..."]`.
fn read_source(root: &Path, path: &Path, sources: &mut BTreeMap<PathBuf, String>) -> Result<()> {
    let shown = root.join(path);
    let text = std::fs::read_to_string(&shown).with_context(|| format!("cannot read {}", shown.display()))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let elsewhere: Vec<PathBuf> = borrowed(&text).map(|file| folder.join(file)).collect();
    sources.insert(path.to_path_buf(), text);
    for path in elsewhere {
        if !sources.contains_key(&path) && root.join(&path).exists() {
            read_source(root, &path, sources)?;
        }
    }
    Ok(())
}

/// Files of other folders that a source file includes.
fn borrowed(text: &str) -> impl Iterator<Item = &str> {
    let attributes = text.lines().filter_map(|line| line.trim().strip_prefix("#[path = \""));
    attributes
        .filter_map(|rest| rest.split_once('"'))
        .map(|(file, _)| file)
        .filter(|file| file.starts_with(".."))
}

impl Package {
    fn findings(&self, allowed: &[Allowed]) -> Vec<String> {
        let mut found = Vec::new();
        for dependency in &self.dependencies {
            let name = &dependency.name;
            let allowed = allowed.iter().find(|entry| entry.package == self.name && entry.dependency == name);
            match (self.uses(dependency), allowed) {
                (true, Some(entry)) => found.push(format!(
                    "{} uses {name}: remove it from the allow list of dependencies.rs ({})",
                    self.name, entry.reason
                )),
                (false, None) => found.push(format!("{} {}", self.name, self.unused(dependency))),
                _ => {}
            }
            if self.repeats(dependency) {
                found.push(format!("{} names {name} among its dev-dependencies again", self.name));
            }
        }
        found
    }

    /// True if a source file that can use the dependency names it.
    fn uses(&self, dependency: &Dependency) -> bool {
        let sees = |path: &Path| match dependency.section {
            Section::Normal => path.starts_with("src"),
            Section::Build => path == Path::new("build.rs"),
            Section::Dev => path != Path::new("build.rs"),
        };
        let mut seeing = self.sources.iter().filter(|(path, _)| sees(path));
        seeing.any(|(_, text)| names(text, &dependency.identifier))
    }

    fn unused(&self, dependency: &Dependency) -> String {
        let Dependency { name, identifier, .. } = dependency;
        let elsewhere = self.sources.iter().find(|(_, text)| names(text, identifier));
        match (dependency.section, elsewhere) {
            (Section::Normal, Some((path, _))) => {
                format!("uses {name} only outside of src ({}): make it a dev-dependency", path.display())
            }
            _ => format!("does not use {name}"),
        }
    }

    /// True if a dev-dependency adds nothing to the normal dependency of that name.
    fn repeats(&self, dependency: &Dependency) -> bool {
        let same = |other: &&Dependency| other.section == Section::Normal && other.name == dependency.name;
        dependency.section == Section::Dev
            && self
                .dependencies
                .iter()
                .find(same)
                .is_some_and(|it| dependency.features.is_subset(&it.features))
    }
}

/// True if a source file names a crate: `ident::` at the start of a path, or a `use` of the crate itself.
fn names(text: &str, identifier: &str) -> bool {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.into_iter()
        .any(|line| line.match_indices(identifier).any(|(at, _)| is_name(line, at, identifier.len())))
}

fn is_name(line: &str, at: usize, length: usize) -> bool {
    let (before, after) = (line.get(..at).unwrap_or_default(), line.get(at + length..).unwrap_or_default());
    let in_word = |c: char| c.is_alphanumeric() || c == '_';
    if before.ends_with(in_word) || after.starts_with(in_word) {
        return false;
    }
    // `::tokio::spawn` begins with the crate, `prost::bytes::Bytes` does not.
    if before.strip_suffix("::").is_some_and(|path| path.ends_with(|c: char| in_word(c) || c == '>')) {
        return false;
    }
    let imported = ["use ", "use ::", "extern crate "].iter().any(|keyword| before.ends_with(keyword));
    after.starts_with("::") || imported && (after.starts_with(';') || after.starts_with(" as "))
}

/// Entries of `[workspace.dependencies]` that no package names.
fn unused_by_all(manifest: &str, packages: &[Package]) -> Vec<String> {
    let used: BTreeSet<&str> =
        packages.iter().flat_map(|package| &package.dependencies).map(|it| it.name.as_str()).collect();
    let lines = manifest.lines().skip_while(|line| line.trim() != "[workspace.dependencies]").skip(1);
    let entries = lines.take_while(|line| !line.starts_with('['));
    let keys = entries.filter_map(|line| line.split_once([' ', '.', '='])).map(|(key, _)| key);
    keys.filter(|key| !key.is_empty() && !key.starts_with('#') && !used.contains(key))
        .map(|key| format!("no package uses {key} of [workspace.dependencies]"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A package with dependencies (`name`, `name?` for dev, `name!` for build) and files.
    fn package(dependencies: &[&str], sources: &[(&str, &str)]) -> Package {
        let dependencies = dependencies.iter().map(|written| {
            let name = written.trim_end_matches(['?', '!']);
            let section = match written.chars().last() {
                Some('?') => Section::Dev,
                Some('!') => Section::Build,
                _ => Section::Normal,
            };
            let identifier = name.replace('-', "_");
            Dependency { name: name.to_owned(), identifier, section, features: BTreeSet::new() }
        });
        Package {
            name: "fish".to_owned(),
            dependencies: dependencies.collect(),
            sources: sources.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned())).collect(),
        }
    }

    #[test]
    fn a_crate_is_named_by_a_path_an_import_or_an_attribute() {
        for text in [
            "use tokio_util::sync::Token;",
            "use tokio_util;",
            "pub(crate) use tokio_util as util;",
            "extern crate tokio_util;",
            "let x = ::tokio_util::spawn();",
            "    #[tokio_util::main]",
            "#[derive(Debug, tokio_util::Error)]",
            "fn f() -> Vec<tokio_util::Token> {",
        ] {
            assert!(names(text, "tokio_util"), "{text}");
        }
    }

    #[test]
    fn other_words_and_comments_do_not_name_a_crate() {
        for text in [
            "// tokio_util::sync was slower",
            "/// See [`tokio_util::sync`].",
            "use my_tokio_util::sync;",
            "use tokio_utils::sync;",
            "use prost::tokio_util::Bytes;",
            "let tokio_util = 1;",
            "let x = tokio_util + 1;",
        ] {
            assert!(!names(text, "tokio_util"), "{text}");
        }
    }

    #[test]
    fn an_unused_dependency_is_found_in_each_section() {
        let found = package(&["a", "b?", "c!"], &[("src/lib.rs", "fn f() {}")]).findings(&[]);
        assert_eq!(found, ["fish does not use a", "fish does not use b", "fish does not use c"]);
    }

    #[test]
    fn each_section_counts_the_files_that_can_see_it() {
        let sources = [("src/lib.rs", "use a::A;"), ("tests/t.rs", "b::f();"), ("build.rs", "c::f();")];
        assert!(package(&["a", "b?", "c!"], &sources).findings(&[]).is_empty());
        assert_eq!(
            package(&["b", "a!"], &sources).findings(&[]),
            ["fish uses b only outside of src (tests/t.rs): make it a dev-dependency", "fish does not use a"]
        );
    }

    #[test]
    fn a_dev_dependency_must_add_a_feature_to_the_dependency_of_the_same_name() {
        let mut fish = package(&["a", "a?"], &[("src/lib.rs", "use a::A;")]);
        assert_eq!(fish.findings(&[]), ["fish names a among its dev-dependencies again"]);
        fish.dependencies[1].features.insert("test-util".to_owned());
        assert!(fish.findings(&[]).is_empty());
    }

    #[test]
    fn the_allow_list_excuses_what_is_unused_and_nothing_else() {
        let allowed = [Allowed { package: "fish", dependency: "a", reason: "links" }];
        assert!(package(&["a"], &[]).findings(&allowed).is_empty());
        assert_eq!(
            package(&["a"], &[("src/lib.rs", "use a::A;")]).findings(&allowed),
            ["fish uses a: remove it from the allow list of dependencies.rs (links)"]
        );
    }

    #[test]
    fn an_entry_of_the_workspace_that_no_package_names_is_found() {
        let manifest = "[workspace]\nx = 1\n[workspace.dependencies]\nfish = { path = \"f\" }\n\n# Note = 1\nb.version = \"1\"\n\
                        c=\"2\"\n[profile.dev]\ndebug = 1\n";
        let found = unused_by_all(manifest, &[package(&["b"], &[])]);
        assert_eq!(
            found,
            [
                "no package uses fish of [workspace.dependencies]",
                "no package uses c of [workspace.dependencies]"
            ]
        );
    }

    #[test]
    fn files_of_other_packages_are_found_by_their_path_attribute() {
        let text =
            "#[path = \"support/x.rs\"]\nmod x;\n    #[path = \"../../other/tests/y.rs\"]\n    mod y;\n";
        assert_eq!(borrowed(text).collect::<Vec<_>>(), ["../../other/tests/y.rs"]);
    }

    #[test]
    fn the_identifier_is_the_name_of_the_library() {
        let metadata = json!({
            "workspace_members": ["id"],
            "packages": [
                {"id": "id", "name": "fish", "manifest_path": "/x/fish/Cargo.toml", "targets": [], "dependencies": [
                    {"name": "rustls-webpki", "kind": null, "rename": null, "features": ["std"]},
                    {"name": "not-downloaded", "kind": "dev", "rename": null, "features": []},
                    {"name": "old", "kind": "build", "rename": "new-name", "features": []},
                ]},
                {"id": "w", "name": "rustls-webpki", "targets": [{"kind": ["lib"], "name": "webpki"}]},
            ],
        });
        let packages = read(&metadata).expect("the form of cargo metadata");
        let (fish, folder) = &packages[0];
        assert_eq!((packages.len(), folder.as_path()), (1, Path::new("/x/fish")));
        let identifiers: Vec<(&str, Section)> =
            fish.dependencies.iter().map(|it| (it.identifier.as_str(), it.section)).collect();
        assert_eq!(
            identifiers,
            [("webpki", Section::Normal), ("not_downloaded", Section::Dev), ("new_name", Section::Build)]
        );
    }
}
