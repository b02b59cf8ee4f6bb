//! ZooKeeper for `cargo xtask tools`: the jars of Debian's packages, unpacked and not installed.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::debian;

/// Packages of the server and of its libraries.
const PACKAGES: &[&str] = &[
    "libzookeeper-java",
    "libcommons-cli-java",
    "libcommons-io-java",
    "libdropwizard-metrics-java",
    "libjackson2-annotations-java",
    "libjackson2-core-java",
    "libjackson2-databind-java",
    "libnetty-java",
    "libslf4j-java",
    "libsnappy-java",
];
const JARS: &[&str] = &[
    "zookeeper",
    "zookeeper-jute",
    "commons-cli",
    "commons-io",
    "jackson-annotations",
    "jackson-core",
    "jackson-databind",
    "metrics-core",
    "netty-buffer",
    "netty-codec",
    "netty-common",
    "netty-handler",
    "netty-resolver",
    "netty-transport",
    "netty-transport-native-epoll",
    "netty-transport-native-unix-common",
    "slf4j-api",
    "slf4j-simple",
    "snappy-java",
];

/// Installs `zookeeper`: a folder with the server's jar and its dependencies.
///
/// # Errors
/// When the packages are unavailable, or lack a jar.
pub(crate) fn bring(folder: &Path) -> Result<()> {
    let (package, place) = (folder.join("zookeeper-package"), folder.join("zookeeper"));
    debian::unpack(&package, PACKAGES)?;
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(&place).with_context(|| format!("cannot make {}", place.display()))?;
    for jar in JARS {
        // The names without a version are links to those with one; the copy is the file.
        let name = format!("{jar}.jar");
        let from = package.join("usr/share/java").join(&name);
        fs::copy(&from, place.join(&name)).with_context(|| format!("the packages hold no {name}"))?;
    }
    fs::remove_dir_all(&package).context("cannot remove the unpacked packages")
}
