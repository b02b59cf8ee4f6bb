//! Packs the files below `assets/` into the crate: compressed, and under a path that changes with their
//! content.

use anyhow::{Context, Result};
use flate2::{Compression, GzBuilder};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// The page, which names the others by their path.
const INDEX: &str = "index.html";
/// Placeholder in the page for the path of the other files.
const PLACE: &str = "{{assets}}";
/// Placeholder in the page for the modules that a browser preloads.
const PRELOAD: &str = "<!-- preload -->";

fn main() -> Result<()> {
    println!("cargo::rerun-if-changed=assets");
    let folder = Path::new("assets");
    let mut files = BTreeMap::new();
    collect(folder, folder, &mut files)?;
    let version = format!("{:016x}", hash(&files));
    let index = files.get_mut(INDEX).context("there is no index.html")?;
    let text = String::from_utf8(std::mem::take(index)).context("index.html is not UTF-8")?;
    let modules = files.keys().filter(|path| path.starts_with("js/"));
    let preload: String =
        modules.map(|path| format!("<link rel=\"modulepreload\" href=\"{version}/{path}\">\n")).collect();
    let text = text.replace(PLACE, &version).replace(PRELOAD, preload.trim_end());
    files.insert(INDEX.to_owned(), text.into_bytes());
    write(&files, &version)
}

/// All files below a folder, by their path with `/`.
fn collect(root: &Path, folder: &Path, files: &mut BTreeMap<String, Vec<u8>>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect(root, &path, files)?;
            continue;
        }
        let parts: Vec<_> = path.strip_prefix(root)?.iter().map(|part| part.to_string_lossy()).collect();
        files.insert(parts.join("/"), fs::read(&path)?);
    }
    Ok(())
}

/// FNV-1a: the same on every machine and with every compiler.
fn hash(files: &BTreeMap<String, Vec<u8>>) -> u64 {
    let bytes = files
        .iter()
        .flat_map(|(path, bytes)| path.bytes().chain([0]).chain(bytes.iter().copied()).chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn write(files: &BTreeMap<String, Vec<u8>>, version: &str) -> Result<()> {
    let out = PathBuf::from(env::var_os("OUT_DIR").context("no OUT_DIR")?);
    let mut table =
        format!("pub(super) const VERSION: &str = \"{version}\";\npub(super) static ASSETS: &[Asset] = &[\n");
    for (number, (path, bytes)) in files.iter().enumerate() {
        // No time and no name of a machine: the same files make the same bytes.
        let mut gzip = GzBuilder::new().mtime(0).operating_system(255).write(Vec::new(), Compression::best());
        gzip.write_all(bytes)?;
        let name = format!("{number}.gz");
        fs::write(out.join(&name), gzip.finish()?)?;
        writeln!(
            table,
            "Asset {{ path: {path:?}, length: {}, gzip: include_bytes!(concat!(env!(\"OUT_DIR\"), \
             \"/{name}\")) }},",
            bytes.len()
        )?;
    }
    table.push_str("];\n");
    fs::write(out.join("assets.rs"), table).context("cannot write the table of files")
}
