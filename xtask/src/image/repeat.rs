//! Second build of the image, from a copy of the checkout in another folder and without a build cache.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{Recipe, digests, layout};
use crate::process;

/// Builds it again and lists differences.
///
/// # Errors
/// When it cannot be built.
pub(super) fn findings(first: &Recipe) -> Result<Vec<String>> {
    // With a path length unlike that of usual checkouts: a truncated or padded path would cause a difference.
    let place = std::env::temp_dir().join(format!("pilotfish-made-again-{}", std::process::id()));
    let result = compare(first, &place);
    let removed = fs::remove_dir_all(&place);
    let wrong = result?;
    removed.with_context(|| format!("cannot remove {}", place.display()))?;
    Ok(wrong)
}

fn compare(first: &Recipe, place: &Path) -> Result<Vec<String>> {
    let source = place.join("source");
    copy_checkout(&first.source, &source)?;
    let again = Recipe {
        target: place.join("built"),
        output: place.join("image"),
        source,
        profile: first.profile,
        epoch: first.epoch,
    };
    again.make()?;
    let mut wrong = Vec::new();
    for (one, other) in
        [(first.binary(), again.binary()), (first.sbom(), again.sbom()), (first.licences(), again.licences())]
    {
        if sha256(&one)? != sha256(&other)? {
            let name = one.file_name().unwrap_or_default().to_string_lossy().into_owned();
            wrong.push(format!("{name} differs when it is made again"));
        }
    }
    let (one, other) = (layout::digest(&first.layout())?, layout::digest(&again.layout())?);
    if one != other {
        wrong.push(format!("the image differs when it is made again: {one} and {other}"));
    }
    if wrong.is_empty() {
        eprintln!("made again in {}: every byte is the same", place.display());
    }
    Ok(wrong)
}

fn sha256(file: &PathBuf) -> Result<String> {
    let printed = digests(std::slice::from_ref(file))?;
    Ok(printed.split(' ').next().unwrap_or_default().to_owned())
}

/// Copies the tracked files in their current state, and new files that Git does not ignore.
fn copy_checkout(from: &Path, to: &Path) -> Result<()> {
    let mut list = process::command("git");
    list.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(from);
    let listed = process::output(&mut list).context("the second build is of a copy of what Git lists")?;
    for name in listed.split('\0').filter(|name| !name.is_empty()) {
        let (file, copy) = (from.join(name), to.join(name));
        // A deleted file is listed until the deletion is committed.
        if !file.exists() {
            continue;
        }
        if let Some(folder) = copy.parent() {
            fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        fs::copy(&file, &copy).with_context(|| format!("cannot copy {name}"))?;
    }
    Ok(())
}
