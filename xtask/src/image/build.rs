//! The binary: static, so that it needs no other file, and reproducible.
//!
//! Sources of differences are eliminated: paths of the machine are mapped to fixed ones, no time is included,
//! the number of parallel codegen units is fixed, and the versions of the compiler and of crates are pinned.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{Recipe, holds};
use crate::workspace::Profile;
use crate::{process, supply, tools, workspace};

/// Separator of compiler flags in one variable; flags may contain spaces.
const SEPARATOR: &str = "\x1f";

/// Target triple of the binary.
pub(super) fn triple() -> String {
    format!("{}-unknown-linux-musl", std::env::consts::ARCH)
}

/// Builds it into the recipe's output folder.
pub(super) fn make(recipe: &Recipe) -> Result<()> {
    let triple = triple();
    let sysroot = sysroot()?;
    ensure_target(&sysroot, &triple)?;
    let mut cargo = process::cargo();
    cargo.current_dir(&recipe.source);
    cargo.args(["build", "--locked", "--package", "pilotfish", "--bin", "pilotfish", "--target", &triple]);
    cargo.arg("--target-dir").arg(&recipe.target).args(["--profile", recipe.profile.name()]);
    let paths = fixed_paths(recipe, &sysroot)?;
    let flags: Vec<String> = paths.iter().map(|path| format!("--remap-path-prefix={path}")).collect();
    cargo.env_remove("RUSTFLAGS").env("CARGO_ENCODED_RUSTFLAGS", flags.join(SEPARATOR));
    let suffix = triple.replace('-', "_");
    cargo.env(format!("CC_{suffix}"), "cc").env(format!("CFLAGS_{suffix}"), c_flags(&paths)?);
    cargo.env("SOURCE_DATE_EPOCH", recipe.epoch.to_string()).env("CARGO_INCREMENTAL", "0");
    match recipe.profile {
        Profile::Release => cargo.env("CARGO_PROFILE_RELEASE_STRIP", "symbols"),
        Profile::Dev => {
            cargo.env("CARGO_PROFILE_DEV_STRIP", "symbols").env("CARGO_PROFILE_DEV_DEBUG", "false")
        }
    };
    process::check(&mut cargo)?;
    let folder = match recipe.profile {
        Profile::Release => "release",
        Profile::Dev => "debug",
    };
    let built = recipe.target.join(&triple).join(folder).join("pilotfish");
    fs::copy(&built, recipe.binary()).with_context(|| format!("cannot copy {}", built.display()))?;
    Ok(())
}

/// Finds paths of this machine in the binary.
pub(super) fn findings(recipe: &Recipe) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for (path, _) in machine_paths(recipe, &sysroot()?)? {
        if holds(&recipe.binary(), &path.to_string_lossy())? {
            wrong.push(format!("the binary holds a path of this machine: {}", path.display()));
        }
    }
    Ok(wrong)
}

/// Folders of this machine, and their replacements in the output. Later ones are within earlier ones.
fn machine_paths(recipe: &Recipe, sysroot: &Path) -> Result<[(PathBuf, &'static str); 4]> {
    Ok([
        (supply::cargo_home()?, "/cargo"),
        (sysroot.to_owned(), "/rust"),
        (recipe.source.clone(), "/pilotfish"),
        (recipe.target.clone(), "/pilotfish/target"),
    ])
}

/// These mappings as `FROM=TO`, for the compilers of Rust and of C.
fn fixed_paths(recipe: &Recipe, sysroot: &Path) -> Result<Vec<String>> {
    let paths = machine_paths(recipe, sysroot)?;
    Ok(paths.iter().map(|(from, to)| format!("{}={to}", from.display())).collect())
}

/// Flags for C code: uses the headers of musl and of the compiler, and none of the machine's library.
fn c_flags(paths: &[String]) -> Result<String> {
    let musl = supply::musl_headers(&workspace::tools().join("musl"));
    let own = process::output(process::command("cc").arg("-print-file-name=include"))
        .context("hint: a C compiler is needed; Debian and Ubuntu have it in the package gcc")?;
    let mut flags = vec!["-nostdinc".to_owned()];
    flags.extend([own.trim(), &*musl.to_string_lossy()].map(|folder| format!("-isystem {folder}")));
    flags.extend(paths.iter().map(|path| format!("-ffile-prefix-map={path}")));
    Ok(flags.join(" "))
}

/// Folder of the pinned compiler.
pub(super) fn sysroot() -> Result<PathBuf> {
    let printed = process::output(process::command("rustc").args(["--print", "sysroot"]))?;
    Ok(PathBuf::from(printed.trim()))
}

/// Installs the standard library for the target if it is missing. It belongs to the toolchain, not to
/// `target/tools`.
fn ensure_target(sysroot: &Path, triple: &str) -> Result<()> {
    if sysroot.join("lib/rustlib").join(triple).join("lib").exists() {
        return Ok(());
    }
    let hint = "hint: without rustup, install Rust's standard library for this target beside the compiler";
    tools::retry(process::command("rustup").args(["target", "add", triple]), hint)
}
