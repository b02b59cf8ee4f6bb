//! BIND for tests of DNS, as part of `cargo xtask tools`: its server, and the program that changes its zones.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::kubernetes::link;
use crate::netfilter::system;
use crate::tools::make_executable;
use crate::{debian, process};

/// Executables with their paths in the packages.
const PROGRAMS: [(&str, &str); 2] = [("named", "usr/sbin/named"), ("nsupdate", "usr/bin/nsupdate")];
/// Debian's packages of these and their libraries, as of Debian 12.
const PACKAGES: [&str; 14] = [
    "bind9",
    "bind9-dnsutils",
    "bind9-libs",
    "bind9-utils",
    "libfstrm0",
    "libicu72",
    "libjemalloc2",
    "libjson-c5",
    "liblmdb0",
    "libmaxminddb0",
    "libnghttp2-14",
    "libprotobuf-c1",
    "libuv1",
    "libxml2",
];

/// Brings a folder with the programs: those of the machine, or else Debian's packages, unpacked and not
/// installed.
///
/// # Errors
/// When there are neither.
pub(crate) fn bring(folder: &Path) -> Result<()> {
    let place = folder.join("bind");
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(&place).context("cannot make a folder for the programs")?;
    let found: Vec<_> = PROGRAMS.iter().filter_map(|(name, _)| system(name)).collect();
    if found.len() == PROGRAMS.len() {
        return PROGRAMS.iter().zip(&found).try_for_each(|((name, _), found)| link(found, &place.join(name)));
    }
    let root = place.join("root");
    debian::unpack(&root, &PACKAGES).context("hint: or install bind9 and its nsupdate on the machine")?;
    PROGRAMS.iter().try_for_each(|(name, inside)| wrap(&place, name, &root.join(inside)))?;
    process::output(process::command(place.join("named")).arg("-V")).map(drop)
}

/// Wraps a program so that it finds the libraries of the unpacked packages.
fn wrap(place: &Path, name: &str, program: &Path) -> Result<()> {
    if !program.exists() {
        bail!("the packages hold no {}", program.display());
    }
    let libraries = fs::read_dir(place.join("root/usr/lib"))?
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .find(|path| path.join("libuv.so.1").exists())
        .context("the packages hold no libuv")?;
    // Relative to the script: the folder of tools may be moved, or be a link.
    let inside = |path: &Path| path.strip_prefix(place).map(|path| path.display().to_string());
    let text = format!(
        "#!/bin/sh\nhere=$(dirname -- \"$(readlink -f -- \"$0\")\")\n\
         LD_LIBRARY_PATH=\"$here/{}\" exec \"$here/{}\" \"$@\"\n",
        inside(&libraries)?,
        inside(program)?,
    );
    let path = place.join(name);
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    make_executable(&path)
}
