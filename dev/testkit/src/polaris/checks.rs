//! Validation before a write.

use super::element::{Element, is_name, number, text};
use serde_json::Value;

/// [rec instances-limits, services-create] Maximum lengths of names and texts.
pub(super) const MAX_SERVICE: usize = 128;
pub(super) const MAX_NAMESPACE: usize = 64;
pub(super) const MAX_HOST: usize = 128;
pub(super) const MAX_PROTOCOL: usize = 32;
pub(super) const MAX_VERSION: usize = 32;
pub(super) const MAX_LOGIC_SET: usize = 128;
pub(super) const MAX_METADATA: usize = 64;
pub(super) const MAX_METADATA_KEY: usize = 128;
pub(super) const MAX_METADATA_VALUE: usize = 4096;
/// [rec services-create] Maximum lengths of service fields.
pub(super) const MAX_PORTS: usize = 8192;
pub(super) const MAX_TEXT: usize = 1024;

pub(super) fn check_namespace_of(given: &Element) -> Option<u32> {
    let name = text(given, "namespace").unwrap_or_default();
    (!is_name(name) || name.len() > MAX_NAMESPACE).then_some(400_110)
}

pub(super) fn check_service_name(given: &Element, field: &str) -> Option<u32> {
    let name = text(given, field).unwrap_or_default();
    (!is_name(name) || name.len() > MAX_SERVICE).then_some(400_120)
}

/// [rec services-create] Validates the size of metadata. `with_empty` allows an empty key.
pub(super) fn check_metadata(given: &Element) -> Option<u32> {
    let metadata = given.get("metadata").and_then(Value::as_object)?;
    let is_long = |(key, value): (&String, &Value)| {
        key.len() > MAX_METADATA_KEY || value.as_str().is_none_or(|value| value.len() > MAX_METADATA_VALUE)
    };
    (metadata.len() > MAX_METADATA || metadata.iter().any(is_long)).then_some(400_150)
}

pub(super) fn check_service(given: &Element) -> Option<u32> {
    check_service_name(given, "name")
        .or_else(|| check_namespace_of(given))
        .or_else(|| check_metadata(given))
        .or_else(|| check_length(given, "ports", MAX_PORTS, 400_124))
        .or_else(|| check_length(given, "owners", MAX_TEXT, 400_121))
        .or_else(|| check_length(given, "comment", MAX_TEXT, 400_128))
}

pub(super) fn check_length(given: &Element, field: &str, most: usize, code: u32) -> Option<u32> {
    text(given, field).is_some_and(|text| text.len() > most).then_some(code)
}

pub(super) fn check_place(given: &Element) -> Option<u32> {
    // [rec instances-update] An id replaces the other key fields.
    if let Some(id) = text(given, "id") {
        return id.is_empty().then_some(400_130);
    }
    let host = text(given, "host").unwrap_or_default();
    check_service_name(given, "service")
        .or_else(|| check_namespace_of(given))
        .or_else(|| (host.is_empty() || host.len() > MAX_HOST).then_some(400_131))
        .or_else(|| number(given, "port").is_none_or(|port| port > 65_535).then_some(400_132))
}

pub(super) fn check_instance(given: &Element) -> Option<u32> {
    check_metadata(given)
        .or_else(|| check_place(given))
        .or_else(|| check_length(given, "protocol", MAX_PROTOCOL, 400_136))
        .or_else(|| check_length(given, "version", MAX_VERSION, 400_137))
        .or_else(|| check_length(given, "logic_set", MAX_LOGIC_SET, 400_138))
        .or_else(|| number(given, "weight").is_some_and(|weight| weight > 65_535).then_some(400_103))
}
