//! Meaning of an instance's metadata.

use std::collections::BTreeMap;

/// The label with the cluster of an instance.
pub const CLUSTER_LABEL: &str = "nacos.io/cluster";
/// The default cluster of instances.
pub const DEFAULT_CLUSTER: &str = "DEFAULT";
/// Maximum weight in Nacos.
pub const MAX_WEIGHT: f64 = 10_000.0;
/// Metadata keys for a second, gRPC port, as written by Spring Boot starters.
const GRPC_PORT_KEYS: [&str; 3] = ["gRPC_port", "gRPC.port", "grpc.port"];

/// Returns the gRPC port in the metadata, if it is not the instance's port.
#[must_use]
pub fn grpc_port(port: u32, metadata: &BTreeMap<String, String>) -> Option<u32> {
    let given = GRPC_PORT_KEYS.iter().find_map(|key| metadata.get(*key)?.trim().parse().ok());
    given.filter(|number| *number != port && (1..=65_535).contains(number))
}

/// Returns the protocol from the metadata: the key `protocol`, in the terms of Istio or Dubbo, else the keys
/// of Spring Cloud.
#[must_use]
pub fn protocol(metadata: &BTreeMap<String, String>) -> Option<&str> {
    let is = |key: &str, value: &str| metadata.get(key).is_some_and(|text| text.eq_ignore_ascii_case(value));
    match metadata.get("protocol").map(String::as_str) {
        // Triple is gRPC on the wire.
        Some("tri" | "triple") => Some("grpc"),
        Some("rest") => Some("http"),
        Some("dubbo" | "thrift") => Some("tcp"),
        Some(other) => Some(other),
        None if is("secure", "true") => Some("https"),
        None if is("preserved.register.source", "SPRING_CLOUD") => Some("http"),
        None => None,
    }
}
