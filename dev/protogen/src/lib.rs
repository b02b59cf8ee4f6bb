//! Compiles the `.proto` files of Envoy's API into one descriptor set, and those of Istio's into another.
//!
//! `pilotfish-proto` generates its Rust types from that set and answers reflection from it, so neither a
//! build nor a user needs `protoc` or the `.proto` files. They come from the `envoy-types` crate, which ships
//! them; the crate's own Rust types are not used because their map fields are hash maps: equal messages would
//! not have equal bytes.

use anyhow::{Context, Result};
use flate2::{Compression, write::GzEncoder};
use prost::Message;
use prost_types::FileDescriptorProto;
use protox::file::{File, FileResolver, GoogleFileResolver};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

pub mod istio;

/// Path of the descriptor set, relative to this crate.
#[must_use]
pub fn target() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/core/proto/descriptors/envoy.fds.gz")
}

/// The descriptor set of all of Envoy's v3 API, with the options of fields and without comments, compressed.
///
/// # Errors
/// When the crate with the sources cannot be found or a file does not compile.
pub fn generate() -> Result<Vec<u8>> {
    let proto = sources()?.join("proto");
    let mut roots: Vec<PathBuf> = subfolders(&proto)?;
    roots.push(proto.join("cel-spec/proto"));
    let mut files = Vec::new();
    for (root, folder) in [("data-plane-api", "envoy"), ("xds", "xds"), ("xds", "udpa")] {
        let root = proto.join(root);
        collect(&root.join(folder), &root, &mut files)?;
    }
    files.sort();
    pack(&compile(&files, &Sources { roots })?)
}

fn pack(set: &[u8]) -> Result<Vec<u8>> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(set)?;
    Ok(gzip.finish()?)
}

/// Compiles all files; each comes after its imports.
///
/// A file that fails among all gets a compiler of its own: the compiler looks relative names up in every
/// package that it has seen, so a file may fail because of a package that it does not import.
fn compile(files: &[PathBuf], sources: &Sources) -> Result<Vec<u8>> {
    let compiler = || {
        let mut compiler = protox::Compiler::with_file_resolver(sources.clone());
        compiler.include_imports(true);
        compiler
    };
    let mut together = compiler();
    let mut alone = Vec::new();
    for file in files {
        let name = file.to_str().context("a file name is UTF-8")?;
        if together.open_file(name).is_err() {
            alone.push(name);
        }
    }
    let mut found = Found::default();
    found.add(&together)?;
    for name in alone {
        let mut compiler = compiler();
        compiler.open_file(name).with_context(|| format!("compiling {name}"))?;
        found.add(&compiler)?;
    }
    Ok(found.set.encode_to_vec())
}

/// A `FileDescriptorSet` whose files stay encoded: `prost_types` would drop the options that are extensions,
/// and the rules of what values a field may have are such (`validate.rules`).
#[derive(Clone, PartialEq, Message)]
struct EncodedSet {
    #[prost(bytes = "vec", repeated, tag = "1")]
    file: Vec<Vec<u8>>,
}

/// The files of several compilers, each once.
#[derive(Default)]
struct Found {
    names: BTreeSet<String>,
    set: EncodedSet,
}

impl Found {
    fn add(&mut self, compiler: &protox::Compiler) -> Result<()> {
        for file in EncodedSet::decode(&*compiler.encode_file_descriptor_set())?.file {
            if self.names.insert(FileDescriptorProto::decode(&*file)?.name().to_owned()) {
                self.set.file.push(file);
            }
        }
        Ok(())
    }
}

/// Reads files below the roots, and Google's own from the compiler.
#[derive(Clone)]
struct Sources {
    roots: Vec<PathBuf>,
}

impl FileResolver for Sources {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        if name.starts_with("google/protobuf/") {
            return GoogleFileResolver::new().open_file(name);
        }
        let Some(path) = self.roots.iter().map(|root| root.join(name)).find(|path| path.is_file()) else {
            return GoogleFileResolver::new().open_file(name);
        };
        let text = std::fs::read_to_string(&path).map_err(protox::Error::new)?;
        // Relative to `envoy.extensions`, but the compiler takes the nearer package
        // `envoy.extensions.clusters.common`.
        let text = text
            .replace(" common.dynamic_forward_proxy.", " .envoy.extensions.common.dynamic_forward_proxy.");
        File::from_source(name, &text)
    }
}

/// The folder of the crate that ships the `.proto` files, as cargo fetched it.
fn sources() -> Result<PathBuf> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--all-features", "--locked", "--manifest-path"])
        .arg(&manifest)
        .output()
        .context("running cargo metadata")?;
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)))?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let path = packages
        .iter()
        .find(|package| package["name"] == "envoy-types")
        .and_then(|package| package["manifest_path"].as_str())
        .context("envoy-types is not in the lock file")?;
    Ok(Path::new(path).parent().context("a manifest lies in a folder")?.to_owned())
}

fn subfolders(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        found.push(entry?.path());
    }
    found.sort();
    Ok(found)
}

/// Adds every `.proto` file below `folder`, named relative to `root`.
fn collect(folder: &Path, root: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for path in subfolders(folder)? {
        if path.is_dir() {
            collect(&path, root, files)?;
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            files.push(path.strip_prefix(root)?.to_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_committed_set_is_current() {
        let unzip = |bytes: &[u8]| {
            let mut out = Vec::new();
            std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(bytes), &mut out).unwrap();
            out
        };
        let committed = std::fs::read(super::target()).unwrap();
        let fresh = super::generate().unwrap();
        assert!(unzip(&committed) == unzip(&fresh), "run `cargo run -p pilotfish-protogen`");
    }
}
