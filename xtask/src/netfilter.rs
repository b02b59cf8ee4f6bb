//! Tools for tests of interception, as part of `cargo xtask tools`: iptables and iproute2.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::kubernetes::{link, on_path};
use crate::process;
use crate::tools::{make_executable, retry};

const PROGRAMS: [&str; 6] =
    ["iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"];
/// Debian's packages of these and their libraries.
const PACKAGES: [&str; 8] = [
    "iptables",
    "libip4tc2",
    "libip6tc2",
    "libmnl0",
    "libnetfilter-conntrack3",
    "libnfnetlink0",
    "libnftnl11",
    "libxtables12",
];
/// Brings a folder with the programs: those of the machine, or else Debian's packages, unpacked and not
/// installed.
pub(crate) fn bring(folder: &Path) -> Result<()> {
    let place = folder.join("iptables");
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(place.join("root")).context("cannot make a folder for the packages")?;
    let found: Vec<PathBuf> = PROGRAMS.iter().filter_map(|name| system(name)).collect();
    if found.len() == PROGRAMS.len() {
        for (name, found) in PROGRAMS.iter().zip(&found) {
            link(found, &place.join(name))?;
        }
    } else {
        unpack(&place)?;
        for name in PROGRAMS {
            wrap(&place, name)?;
        }
    }
    let ip = system("ip").context("there is no `ip`\nhint: install iproute2")?;
    link(&ip, &place.join("ip"))
}

/// Path of a program of the machine. The folders of administrators are not always in PATH.
pub(crate) fn system(name: &str) -> Option<PathBuf> {
    let sbin = ["/usr/sbin", "/sbin"].map(|folder| Path::new(folder).join(name));
    on_path(name).or_else(|| sbin.into_iter().find(|path| path.exists()))
}

fn unpack(place: &Path) -> Result<()> {
    let mut download = process::command("apt-get");
    download.args(["download", "--quiet"]).args(PACKAGES).current_dir(place);
    if process::output(&mut download).is_err() {
        // Without downloaded package lists, apt finds no package.
        retry(process::command("apt-get").args(["update", "--quiet"]), HINT)?;
        retry(&mut download, HINT)?;
    }
    for entry in fs::read_dir(place)? {
        let path = entry?.path();
        if path.extension().is_some_and(|it| it == "deb") {
            process::output(process::command("dpkg-deb").arg("-x").arg(&path).arg(place.join("root")))?;
            fs::remove_file(&path).context("cannot remove an unpacked package")?;
        }
    }
    Ok(())
}

const HINT: &str = "hint: on a machine without apt, put iptables and iproute2 on the PATH";

/// Wraps a program so that it finds the libraries and extensions of the unpacked packages. All are one
/// program that is selected by its first argument.
fn wrap(place: &Path, name: &str) -> Result<()> {
    let root = place.join("root");
    let program = root.join("usr/sbin/xtables-nft-multi");
    if !program.exists() {
        bail!("the packages hold no {}", program.display());
    }
    let libraries = fs::read_dir(root.join("usr/lib"))?
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .find(|path| path.join("xtables").exists())
        .context("the packages hold no extensions of iptables")?;
    let text = format!(
        "#!/bin/sh\nLD_LIBRARY_PATH='{0}' XTABLES_LIBDIR='{0}/xtables' exec '{1}' {name} \"$@\"\n",
        libraries.display(),
        program.display(),
    );
    let path = place.join(name);
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    make_executable(&path)
}
