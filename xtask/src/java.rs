//! Java for `cargo xtask tools`: a JDK, and the compiled Java projects of the tests.
//!
//! A project is a folder `crates/pilotfish/tests/java/NAME` with a `pom.xml`, which pins every version, and
//! sources. Maven compiles it to `target/tools/java/NAME/classes` and copies the jars that it runs with to
//! `target/tools/java/NAME/lib`.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::kubernetes::{link, on_path};
use crate::{debian, process, tools, workspace};

/// Java release for machines without one; the projects need this one or newer.
const RELEASE: u32 = 17;

const MAVEN_HINT: &str = "hint: install Maven (Debian and Ubuntu have it in the package maven); it must \
    reach a Maven repository, and its own settings (settings.xml, MAVEN_OPTS) are respected";

/// Brings `java/jdk`: a link to the JDK of the machine, else Debian's packages, unpacked and not installed.
///
/// # Errors
/// When neither is available.
pub(crate) fn bring_jdk(folder: &Path) -> Result<()> {
    let place = folder.join("java/jdk");
    let parent = folder.join("java");
    fs::create_dir_all(&parent).with_context(|| format!("cannot make {}", parent.display()))?;
    if let Some(home) = machines_jdk() {
        return link(&home, &place);
    }
    let package = parent.join("debian");
    let _ = fs::remove_dir_all(&package);
    let names = [format!("openjdk-{RELEASE}-jre-headless"), format!("openjdk-{RELEASE}-jdk-headless")];
    debian::unpack(&package, &names.each_ref().map(String::as_str))?;
    let homes = fs::read_dir(package.join("usr/lib/jvm")).context("the packages hold no JDK")?;
    let homes = homes.filter_map(Result::ok).map(|entry| entry.path());
    let Some(home) = homes.into_iter().find(|home| home.join("bin/javac").is_file()) else {
        bail!("the packages hold no bin/javac");
    };
    debian::lead_links_back(&home, &package)?;
    link(&home, &place)?;
    release_of(&place).map(drop).context("the unpacked JDK does not run")
}

/// Home of a sufficiently new JDK on the machine.
fn machines_jdk() -> Option<PathBuf> {
    let named = std::env::var_os("JAVA_HOME").map(PathBuf::from);
    // The program on the path is a link into its JDK.
    let on_path = on_path("javac").and_then(|javac| fs::canonicalize(javac).ok());
    let found = on_path.and_then(|javac| Some(javac.parent()?.parent()?.to_path_buf()));
    named.into_iter().chain(found).find(|home| release_of(home).is_ok_and(|release| release >= RELEASE))
}

/// Release of the JDK in a folder, such as `17`.
fn release_of(home: &Path) -> Result<u32> {
    let printed = process::output(process::command(home.join("bin/javac")).arg("-version"))?;
    let release = parse_release(&printed);
    release.with_context(|| format!("`javac -version` printed {:?}", printed.trim()))
}

/// Parses the release in `javac 17.0.15`.
fn parse_release(printed: &str) -> Option<u32> {
    printed.trim().strip_prefix("javac ")?.split(['.', '-', '+']).next()?.parse().ok()
}

/// Stamp of a project: a hash of its files. Empty for a missing project.
pub(crate) fn content(name: &str) -> String {
    let folder = project(name);
    let mut hasher = DefaultHasher::new();
    for file in files(&folder) {
        file.strip_prefix(&folder).unwrap_or(&file).hash(&mut hasher);
        fs::read(&file).unwrap_or_default().hash(&mut hasher);
    }
    format!("sources {:016x}", hasher.finish())
}

fn project(name: &str) -> PathBuf {
    workspace::root().join("crates/pilotfish/tests/java").join(name)
}

/// Files below a folder, sorted.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
        match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            true => found.extend(files(&entry.path())),
            false => found.push(entry.path()),
        }
    }
    found.sort();
    found
}

/// Compiles a project and brings its runtime jars.
///
/// # Errors
/// When Maven is missing, a jar is unavailable, or the project does not compile.
pub(crate) fn bring_project(folder: &Path, name: &str) -> Result<()> {
    let place = folder.join("java").join(name);
    // Classes and jars of other versions are replaced as a whole.
    let _ = fs::remove_dir_all(&place);
    copy(&project(name), &place)?;
    let mut build = process::command("mvn");
    build.current_dir(&place).env("JAVA_HOME", folder.join("java/jdk"));
    build.args(["--batch-mode", "--quiet", "compile", "dependency:copy-dependencies"]);
    build.arg("-DincludeScope=runtime").arg(format!("-DoutputDirectory={}", place.join("lib").display()));
    tools::retry(&mut build, MAVEN_HINT)?;
    fs::rename(place.join("target/classes"), place.join("classes"))
        .with_context(|| format!("Maven compiled nothing of {name}"))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    for file in files(from) {
        let place = to.join(file.strip_prefix(from)?);
        if let Some(parent) = place.parent() {
            fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
        }
        fs::copy(&file, &place).with_context(|| format!("cannot copy {}", file.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_is_read_from_what_the_compiler_prints() {
        assert_eq!(parse_release("javac 17.0.15\n"), Some(17));
        assert_eq!(parse_release("javac 21\n"), Some(21));
        assert_eq!(parse_release("javac 25-ea\n"), Some(25));
        // Java 8 and before.
        assert_eq!(parse_release("javac 1.8.0_292"), Some(1));
        assert_eq!(parse_release("Unrecognized option"), None);
    }

    #[test]
    fn every_project_pins_what_it_uses() {
        let folder = project("");
        let projects = fs::read_dir(&folder).expect("there are projects").filter_map(Result::ok);
        let mut seen = 0;
        for project in projects.map(|entry| entry.path()) {
            let pom = fs::read_to_string(project.join("pom.xml")).expect("a project has a pom.xml");
            for open in ["LATEST", "RELEASE", "SNAPSHOT", "<version>[", "<version>("] {
                assert!(!pom.contains(open), "{} has a version {open}", project.display());
            }
            let plugins = pom.split("<plugin>").skip(1);
            for plugin in plugins.filter_map(|plugin| plugin.split("</plugin>").next()) {
                assert!(plugin.contains("<version>"), "{}: not pinned:{plugin}", project.display());
            }
            seen += 1;
        }
        assert!(seen > 0);
    }
}
