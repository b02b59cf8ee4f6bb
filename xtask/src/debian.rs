//! Files of Debian's packages for `cargo xtask tools`: downloaded and unpacked, never installed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::kubernetes::link;
use crate::process;
use crate::tools::retry;

const APT_HINT: &str = "hint: on a machine without apt, put the program on the PATH (etcd can also be named \
    by KUBEBUILDER_ASSETS), or what is missing into target/tools";

/// Unpacks packages into an empty folder, without their dependencies.
///
/// # Errors
/// When a package is unavailable.
pub(crate) fn unpack(folder: &Path, names: &[&str]) -> Result<()> {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).context("cannot make a folder for the package")?;
    let mut download = process::command("apt-get");
    download.args(["download", "--quiet"]).args(names).current_dir(folder);
    if process::output(&mut download).is_err() {
        // Without downloaded package lists, apt finds no package.
        retry(process::command("apt-get").args(["update", "--quiet"]), APT_HINT)?;
        retry(&mut download, APT_HINT)?;
    }
    let files = fs::read_dir(folder)?.filter_map(Result::ok).map(|entry| entry.path());
    let files: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|it| it == "deb")).collect();
    if files.len() < names.len() {
        bail!("apt-get downloaded {} of {} packages", files.len(), names.len());
    }
    for file in files {
        process::output(process::command("dpkg-deb").arg("-x").arg(&file).arg(folder))?;
        fs::remove_file(&file).context("cannot remove a package that is unpacked")?;
    }
    Ok(())
}

/// Extracts one file of a package, whose path has the suffix `end`.
///
/// # Errors
/// When the package is unavailable, or does not contain such a file.
pub(crate) fn bring_file(folder: &Path, name: &str, end: &str, place: &Path) -> Result<()> {
    let package = folder.join(format!("{name}-package"));
    unpack(&package, &[name])?;
    let Some(found) = find(&package, end) else { bail!("the package {name} holds no {end}") };
    fs::rename(found, place).with_context(|| format!("cannot make {}", place.display()))?;
    fs::remove_dir_all(&package).context("cannot remove the unpacked package")
}

/// Redirects links with absolute targets into the unpacked packages, if those contain the target.
///
/// # Errors
/// When a folder cannot be read, or a link cannot be created.
pub(crate) fn lead_links_back(folder: &Path, package: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let (path, kind) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))?;
        if kind.is_dir() {
            lead_links_back(&path, package)?;
        } else if kind.is_symlink() {
            let target = fs::read_link(&path)?;
            let inside = target.strip_prefix("/").map(|inside| package.join(inside));
            if let Ok(inside) = inside
                && inside.exists()
            {
                link(&inside, &path)?;
            }
        }
    }
    Ok(())
}

/// First file below a folder whose path has that suffix.
fn find(folder: &Path, end: &str) -> Option<PathBuf> {
    fs::read_dir(folder).ok()?.filter_map(Result::ok).find_map(|entry| {
        let path = entry.path();
        match entry.file_type().ok()?.is_dir() {
            true => find(&path, end),
            false => path.ends_with(end).then_some(path),
        }
    })
}
