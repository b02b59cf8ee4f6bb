//! The image: an OCI layout of one layer, built by umoci without a daemon, from files with fixed owners,
//! modes and times.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Recipe, build};
use crate::{process, workspace};

/// Path of the executable for manifests and injected containers.
const BINARY: &str = "usr/local/bin/pilotfish";
const DOCUMENTS: &str = "usr/share/doc/pilotfish";
/// Path of trusted authorities for programs of Linux.
const CERTIFICATES: &str = "etc/ssl/certs/ca-certificates.crt";
/// Unprivileged user, who owns no file.
const USER: &str = "65532:65532";
/// Ports of `deploy/kubernetes/deployment.yaml`, and plaintext xDS.
const PORTS: [&str; 4] = ["15010/tcp", "15012/tcp", "15014/tcp", "15017/tcp"];

/// Writes it into the recipe's output folder.
pub(super) fn make(recipe: &Recipe) -> Result<()> {
    let tag = format!("{}:{}", recipe.layout().display(), env!("CARGO_PKG_VERSION"));
    let bundle = recipe.output.join("bundle");
    umoci(&["init", "--layout", &recipe.layout().to_string_lossy()])?;
    umoci(&["new", "--image", &tag])?;
    // Rootless: root owns the content, regardless of the building user.
    umoci(&["unpack", "--rootless", "--image", &tag, &bundle.to_string_lossy()])?;
    let root = bundle.join("rootfs");
    for (from, to, mode) in files(recipe)? {
        place(&from, &root.join(to), mode)?;
    }
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(recipe.epoch);
    fix(&root, time)?;
    let created = rfc3339(recipe.epoch)?;
    let history = ["--history.created", &*created, "--history.created_by", "cargo xtask image"];
    let mut repack = vec!["repack", "--image", &tag];
    repack.extend(history);
    let bundle_text = bundle.to_string_lossy();
    repack.push(&bundle_text);
    umoci(&repack)?;
    configure(&tag, &created)?;
    umoci(&["gc", "--layout", &recipe.layout().to_string_lossy()])?;
    fs::remove_dir_all(&bundle).context("cannot remove the unpacked image")
}

/// Files of the image: source, destination, mode.
fn files(recipe: &Recipe) -> Result<Vec<(PathBuf, String, u32)>> {
    let tools = workspace::tools();
    let document = |from: PathBuf, name: &str| (from, format!("{DOCUMENTS}/{name}"), 0o644);
    Ok(vec![
        (recipe.binary(), BINARY.into(), 0o755),
        (tools.join("cacert.pem"), CERTIFICATES.into(), 0o644),
        document(recipe.source.join("LICENSE"), "LICENSE"),
        document(recipe.licences(), "THIRD-PARTY-LICENSES"),
        document(
            build::sysroot()?.join("share/doc/rust/COPYRIGHT-library.html"),
            "rust-standard-library.html",
        ),
        document(tools.join("musl/usr/share/doc/musl-dev/copyright"), "musl-copyright"),
        document(recipe.sbom(), "pilotfish.cdx.json"),
    ])
}

fn configure(tag: &str, created: &str) -> Result<()> {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let entrypoint = format!("/{BINARY}");
    let mut arguments = vec!["config", "--image", tag, "--no-history", "--created", created];
    arguments.extend(["--os", "linux", "--architecture", architecture]);
    arguments.extend(["--config.user", USER, "--config.entrypoint", &entrypoint]);
    arguments.extend(PORTS.iter().flat_map(|port| ["--config.exposedports", port]));
    let labels = [
        concat!("org.opencontainers.image.version=", env!("CARGO_PKG_VERSION")),
        concat!("org.opencontainers.image.source=", env!("CARGO_PKG_REPOSITORY")),
        concat!("org.opencontainers.image.licenses=", env!("CARGO_PKG_LICENSE")),
    ];
    arguments.extend(labels.iter().flat_map(|label| ["--config.label", label]));
    umoci(&arguments)
}

fn umoci(arguments: &[&str]) -> Result<()> {
    let mut command: Command = process::command(workspace::tools().join("umoci"));
    process::output(command.args(arguments)).map(drop)
}

#[cfg(unix)]
fn place(from: &Path, to: &Path, mode: u32) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let folder = to.parent().context("a file of the image has no folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    fs::copy(from, to).with_context(|| format!("cannot copy {} into the image", from.display()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode)).context("cannot set the mode of a file")
}

#[cfg(not(unix))]
fn place(_from: &Path, _to: &Path, _mode: u32) -> Result<()> {
    anyhow::bail!("images are made on Linux")
}

/// Sets one time for everything below a folder, including it, and one mode for folders, independent of the
/// umask.
#[cfg(unix)]
fn fix(path: &Path, time: SystemTime) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    if path.is_dir() {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))
            .context("cannot set the mode of a folder")?;
        for entry in fs::read_dir(path).with_context(|| format!("cannot list {}", path.display()))? {
            fix(&entry?.path(), time)?;
        }
    }
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    file.set_modified(time).with_context(|| format!("cannot set the time of {}", path.display()))
}

#[cfg(not(unix))]
fn fix(_path: &Path, _time: SystemTime) -> Result<()> {
    anyhow::bail!("images are made on Linux")
}

/// Seconds since 1970 in the format of images.
fn rfc3339(epoch: u64) -> Result<String> {
    let mut date = process::command("date");
    date.args(["--utc", "--date", &format!("@{epoch}"), "+%Y-%m-%dT%H:%M:%SZ"]);
    Ok(process::output(&mut date)?.trim().to_owned())
}

/// Digest of the image in a registry.
pub(super) fn digest(layout: &Path) -> Result<String> {
    let index = fs::read(layout.join("index.json")).context("the layout has no index")?;
    let index: Value = serde_json::from_slice(&index).context("the index of the layout is no JSON")?;
    index["manifests"][0]["digest"]
        .as_str()
        .map(str::to_owned)
        .context("the index of the layout names no image")
}
