//! A Kubernetes API server for `cargo xtask tools`: etcd, and kube-apiserver built from its module. Also
//! Helm, built likewise, which renders the chart, and a library that changes the clocks of programs.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::tools::{make_executable, retry};
use crate::{debian, process, workspace};

/// Release of Kubernetes; `xtask/kube-apiserver/go.mod` pins the same.
pub(crate) const KUBERNETES_VERSION: &str = "1.34.4";

/// Release of Helm. It pins its dependencies itself, and Go verifies it with the checksum database.
pub(crate) const HELM_VERSION: &str = "3.19.0";

/// Variable of the folder with both programs, as in other controller tests for Kubernetes.
const ASSETS: &str = "KUBEBUILDER_ASSETS";

/// Brings etcd: the one of `KUBEBUILDER_ASSETS` or of the machine, or else Debian's package, unpacked and not
/// installed.
pub(crate) fn bring_etcd(folder: &Path) -> Result<()> {
    let executable = folder.join("etcd");
    if let Some(found) = asset("etcd").or_else(|| on_path("etcd")) {
        return link(&found, &executable);
    }
    debian::bring_file(folder, "etcd-server", "bin/etcd", &executable)?;
    make_executable(&executable)
}

/// Brings etcd's own client: the one of the machine, or else Debian's package, unpacked and not installed.
pub(crate) fn bring_etcdctl(folder: &Path) -> Result<()> {
    let executable = folder.join("etcdctl");
    if let Some(found) = on_path("etcdctl") {
        return link(&found, &executable);
    }
    debian::bring_file(folder, "etcd-client", "bin/etcdctl", &executable)?;
    make_executable(&executable)
}

/// Brings a library that changes the clock of a program: Debian's package, unpacked and not installed.
pub(crate) fn bring_faketime(folder: &Path) -> Result<()> {
    let library = folder.join("libfaketime.so.1");
    let installed = fs::read_dir("/usr/lib").into_iter().flatten().filter_map(Result::ok);
    let installed = installed.map(|entry| entry.path().join("faketime/libfaketime.so.1"));
    match installed.into_iter().find(|path| path.exists()) {
        Some(found) => link(&found, &library),
        None => debian::bring_file(folder, "libfaketime", "faketime/libfaketime.so.1", &library),
    }
}

/// Brings kube-apiserver: the one of `KUBEBUILDER_ASSETS`, or else a build by Go, which takes minutes once.
pub(crate) fn bring_apiserver(folder: &Path) -> Result<()> {
    let executable = folder.join("kube-apiserver");
    if let Some(found) = asset("kube-apiserver") {
        return link(&found, &executable);
    }
    let flags = format!(
        "-s -w -X k8s.io/component-base/version.gitVersion=v{KUBERNETES_VERSION} \
         -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=34"
    );
    let mut build = process::command("go");
    build.current_dir(workspace::root().join("xtask/kube-apiserver"));
    build.args(["build", "-mod=readonly", "-trimpath", "-ldflags", &flags, "-o"]).arg(&executable);
    build.arg("k8s.io/kubernetes/cmd/kube-apiserver");
    retry(
        &mut build,
        "hint: Go 1.24 or newer and its module proxy are needed (GOPROXY, GOFLAGS and HTTPS_PROXY are \
         respected); or name a folder with kube-apiserver and etcd by KUBEBUILDER_ASSETS",
    )
}

/// Brings Helm, built by Go.
pub(crate) fn bring_helm(folder: &Path) -> Result<()> {
    let mut install = process::command("go");
    install.env("GOBIN", folder).args(["install", "-trimpath", "-ldflags", "-s -w"]);
    install.arg(format!("helm.sh/helm/v3/cmd/helm@v{HELM_VERSION}"));
    retry(
        &mut install,
        "hint: Go 1.24 or newer and its module proxy are needed (GOPROXY, GOFLAGS and HTTPS_PROXY are \
         respected)",
    )
}

/// Path of a program in the folder `KUBEBUILDER_ASSETS`.
fn asset(name: &str) -> Option<PathBuf> {
    let path = PathBuf::from(std::env::var_os(ASSETS)?).join(name);
    path.exists().then_some(path)
}

/// Path of a program of the machine.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(name))
        .find(|path| path.exists())
}

#[cfg(unix)]
pub(crate) fn link(found: &Path, place: &Path) -> Result<()> {
    let _ = fs::remove_file(place);
    std::os::unix::fs::symlink(found, place)
        .with_context(|| format!("cannot link {} to {}", place.display(), found.display()))
}

#[cfg(not(unix))]
pub(crate) fn link(found: &Path, place: &Path) -> Result<()> {
    fs::copy(found, place).map(drop).with_context(|| format!("cannot copy {}", found.display()))
}
