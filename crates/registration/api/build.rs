//! Compiles the API's definition: the descriptor set, types and stubs. Without protoc.

use anyhow::{Context, Result};
use prost::Message;
use std::path::PathBuf;

/// Their comments are examples of JSON and HTTP; none is Rust.
const DEFINITION: &str = "pilotfish/registration/v1/registration.proto";

fn main() -> Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=proto");
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_imports(true).include_source_info(true).open_file(DEFINITION)?;
    // Options that extend descriptors are lost in prost's types: the encoded form keeps them.
    let out = PathBuf::from(std::env::var_os("OUT_DIR").context("OUT_DIR")?);
    std::fs::write(out.join("registration.fds"), compiler.encode_file_descriptor_set())?;
    let mut set = compiler.file_descriptor_set();
    // Only the API is code; annotations are data.
    for file in &mut set.file {
        if file.package() == "google.api" {
            file.message_type.clear();
            file.extension.clear();
        }
    }
    debug_assert!(set.encoded_len() > 0);
    let mut config = prost_build::Config::new();
    config.btree_map(["."]).enable_type_names();
    tonic_prost_build::configure()
        .build_transport(false)
        .codec_path("crate::codec::Codec")
        .emit_rerun_if_changed(false)
        .compile_fds_with_config(set, config)
        .context("generating types and stubs")
}
