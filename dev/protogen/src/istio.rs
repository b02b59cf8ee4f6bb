//! Compiles the `.proto` files of Istio's API: the kinds that go over MCP.
//!
//! They come from the Go module `istio.io/api`, which Go's own client brings. Only what the wire needs
//! is kept of the files: names, numbers and types.

use crate::{Sources, compile};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The module and its version.
const MODULE: &str = "istio.io/api@v1.31.1";

/// The folders of the module with what is read or served.
const FOLDERS: &[&str] = &[
    "extensions/v1alpha1",
    "mcp/v1alpha1",
    "mesh/v1alpha1",
    "networking/v1alpha3",
    "networking/v1beta1",
    "security/v1beta1",
    "telemetry/v1alpha1",
];

/// Path of the descriptor set, relative to this crate.
#[must_use]
pub fn target() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/core/proto/descriptors/istio.fds.gz")
}

/// The descriptor set of Istio's API, compressed. It needs Go and its module proxy, unless the module is in
/// Go's cache.
///
/// # Errors
/// When the module cannot be had or a file does not compile.
pub fn generate() -> Result<Vec<u8>> {
    let root = module()?;
    let mut files = Vec::new();
    for folder in FOLDERS {
        crate::collect(&root.join(folder), &root, &mut files)?;
    }
    files.sort();
    let roots = vec![root.clone(), root.join("common-protos")];
    crate::pack(&compile(&files, &Sources { roots })?)
}

/// The folder of the module, as Go fetched it.
fn module() -> Result<PathBuf> {
    let output = Command::new("go")
        .args(["mod", "download", "-json", MODULE])
        .current_dir(std::env::temp_dir())
        .env("GO111MODULE", "on")
        .output()
        .context("running go mod download: Go is needed")?;
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("go mod download: {}", String::from_utf8_lossy(&output.stderr)))?;
    ensure!(answer["Error"].is_null(), "go mod download {MODULE}: {}", answer["Error"]);
    Ok(answer["Dir"].as_str().context("go mod download names no folder")?.into())
}
