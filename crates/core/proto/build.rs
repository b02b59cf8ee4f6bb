//! Generates the Rust types of the part of Envoy's API that Pilotfish writes, from the committed descriptor
//! set.
//!
//! Map fields become `BTreeMap`s: equal messages have equal bytes in every process, which content-hash
//! versions need.

use anyhow::{Context, Result};
use prost::Message;
use prost_types::{FileDescriptorProto, FileDescriptorSet};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

/// Path prefixes below `envoy/` of files whose messages Pilotfish writes. Their imports are included.
const WANTED: &[&str] = &[
    "config/accesslog/v3",
    "config/bootstrap/v3",
    "config/cluster/v3",
    "config/core/v3",
    "config/endpoint/v3",
    "config/listener/v3",
    "config/rbac/v3",
    "config/route/v3",
    "config/trace/v3",
    "extensions/access_loggers/file",
    "extensions/access_loggers/filters/cel",
    "extensions/access_loggers/grpc",
    "extensions/access_loggers/open_telemetry",
    "extensions/access_loggers/stream",
    "extensions/clusters/dynamic_forward_proxy",
    "extensions/compression",
    "extensions/filters/http/compressor",
    "extensions/filters/http/cors",
    "extensions/filters/http/dynamic_forward_proxy",
    "extensions/filters/http/ext_authz",
    "extensions/filters/http/ext_proc",
    "extensions/filters/http/fault",
    "extensions/filters/http/grpc_stats",
    "extensions/filters/http/grpc_web",
    "extensions/filters/http/jwt_authn",
    "extensions/filters/http/lua",
    "extensions/filters/http/rbac",
    "extensions/filters/http/router",
    "extensions/filters/http/stateful_session",
    "extensions/filters/http/wasm",
    "extensions/filters/listener",
    "extensions/filters/network/dubbo_proxy",
    "extensions/filters/network/ext_authz",
    "extensions/filters/network/http_connection_manager",
    "extensions/filters/network/mongo_proxy",
    "extensions/filters/network/rbac",
    "extensions/filters/network/redis_proxy",
    "extensions/filters/network/sni_cluster",
    "extensions/filters/network/sni_dynamic_forward_proxy",
    "extensions/filters/network/tcp_proxy",
    "extensions/filters/network/wasm",
    "extensions/filters/udp/udp_proxy",
    "extensions/formatter",
    "extensions/http/header_formatters",
    "extensions/http/original_ip_detection",
    "extensions/http/stateful_session",
    "extensions/load_balancing_policies",
    "extensions/network/dns_resolver",
    "extensions/path/match/uri_template",
    "extensions/path/rewrite/uri_template",
    "extensions/request_id/uuid",
    "extensions/retry/host/previous_hosts",
    "extensions/retry/priority/previous_priorities",
    "extensions/tracers/opentelemetry",
    "extensions/transport_sockets/internal_upstream",
    "extensions/transport_sockets/proxy_protocol",
    "extensions/transport_sockets/quic",
    "extensions/transport_sockets/raw_buffer",
    "extensions/transport_sockets/tls",
    "extensions/upstreams/http/v3",
    "extensions/wasm",
    "service/discovery/v3",
];

fn main() -> Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=descriptors/envoy.fds.gz");
    let packed = std::fs::read("descriptors/envoy.fds.gz").context("reading the descriptor set")?;
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(&packed[..])
        .read_to_end(&mut bytes)
        .context("unpacking the descriptor set")?;
    let set = FileDescriptorSet::decode(&bytes[..]).context("decoding the descriptor set")?;
    prost_build::Config::new()
        .btree_map(["."])
        .enable_type_names()
        .include_file("types.rs")
        .compile_fds(closure(set))
        .context("generating types")
}

/// The wanted files and all of their imports, in the order of the set, without gRPC services.
fn closure(set: FileDescriptorSet) -> FileDescriptorSet {
    let by_name: BTreeMap<&str, &FileDescriptorProto> =
        set.file.iter().map(|file| (file.name(), file)).collect();
    let wanted = |name: &str| {
        name.strip_prefix("envoy/").is_some_and(|path| WANTED.iter().any(|prefix| path.starts_with(prefix)))
            || name.starts_with("xds/type/v3")
    };
    let mut open: Vec<&str> = by_name.keys().copied().filter(|name| wanted(name)).collect();
    let mut needed = BTreeSet::new();
    while let Some(name) = open.pop() {
        if let (true, Some(file)) = (needed.insert(name.to_owned()), by_name.get(name)) {
            open.extend(file.dependency.iter().map(String::as_str));
        }
    }
    let keep = |file: &FileDescriptorProto| needed.contains(file.name());
    let file = set.file.into_iter().filter(keep).map(|mut file| {
        file.service.clear();
        file
    });
    FileDescriptorSet { file: file.collect() }
}
