//! Envelope of MCP, and its content: conversion from protobuf to the JSON of configuration, and back.

use crate::kinds::McpKind;
use pilotfish_proto::istio_api;
use prost::{Message, Name};
use prost_reflect::{DeserializeOptions, DynamicMessage, Kind, MessageDescriptor};
use prost_types::{Any, Timestamp};
use serde_json::{Map, Number, Value};
use std::collections::BTreeMap;

/// `istio.mcp.v1alpha1.Resource`: envelope of an object.
#[derive(Clone, PartialEq, Message)]
pub struct Resource {
    /// Kubernetes metadata: name, version and more.
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<Metadata>,
    /// Content: the kind's message.
    #[prost(message, optional, tag = "2")]
    pub body: Option<Any>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Metadata {
    /// Namespace and name as `NAMESPACE/NAME`.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Creation time of the object.
    #[prost(message, optional, tag = "2")]
    pub create_time: Option<Timestamp>,
    /// Equal versions are equal objects.
    #[prost(string, tag = "3")]
    pub version: String,
    #[prost(btree_map = "string, string", tag = "4")]
    pub labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "5")]
    pub annotations: BTreeMap<String, String>,
}

impl Name for Resource {
    const NAME: &'static str = "Resource";
    const PACKAGE: &'static str = "istio.mcp.v1alpha1";
}

/// Prefix of the type URLs in an `Any`.
const PREFIX: &str = "type.googleapis.com/";

/// Reason why a resource cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResourceError {
    /// The envelope has another type.
    #[error("is a {0:?}, not an istio.mcp.v1alpha1.Resource")]
    Envelope(String),
    /// The envelope or the content is not protobuf of its type.
    #[error("the {part} does not decode: {reason}")]
    Malformed {
        /// Part: `envelope` or `body`.
        part: &'static str,
        /// Error of the decoder.
        reason: String,
    },
    /// The envelope has no content.
    #[error("has no body")]
    NoBody,
    /// The content is of another kind.
    #[error("has a body of type {found:?}, wanted is {wanted}")]
    OtherKind {
        /// Type URL of the received content.
        found: String,
        /// Message of the kind.
        wanted: &'static str,
    },
    /// JSON that is not valid content of the kind.
    #[error("is no {message}: {reason}")]
    Json {
        /// Message of the kind.
        message: &'static str,
        /// Error of the decoder.
        reason: String,
    },
}

/// Name of a message in a type URL, with or without prefix.
fn message_name(type_url: &str) -> &str {
    type_url.rsplit('/').next().unwrap_or(type_url)
}

fn cut(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(128).collect()
}

impl Resource {
    /// Decodes an envelope.
    ///
    /// # Errors
    /// If it has another type or is malformed.
    pub fn open(any: &Any) -> Result<Self, ResourceError> {
        if message_name(&any.type_url) != Self::full_name() {
            return Err(ResourceError::Envelope(cut(&any.type_url)));
        }
        Self::decode(&*any.value).map_err(|error| malformed("envelope", &error))
    }

    /// Encodes the envelope as an `Any`.
    #[must_use]
    pub fn into_any(self) -> Any {
        Any { type_url: format!("{PREFIX}{}", Self::full_name()), value: self.encode_to_vec() }
    }
}

fn malformed(part: &'static str, error: &prost::DecodeError) -> ResourceError {
    ResourceError::Malformed { part, reason: error.to_string() }
}

fn descriptor(kind: &McpKind) -> Option<MessageDescriptor> {
    istio_api::pool().get_message_by_name(kind.message)
}

/// Content of a kind as JSON, in the form of an API server.
///
/// # Errors
/// If it is of another kind or malformed.
pub fn body_to_json(kind: &McpKind, body: &Any) -> Result<Value, ResourceError> {
    let other = || ResourceError::OtherKind { found: cut(&body.type_url), wanted: kind.message };
    if !kind.is_message(message_name(&body.type_url)) {
        return Err(other());
    }
    let message = DynamicMessage::decode(descriptor(kind).ok_or_else(other)?, &*body.value);
    let message = message.map_err(|error| malformed("body", &error))?;
    let json = serde_json::to_value(&message)
        .map_err(|error| ResourceError::Malformed { part: "body", reason: error.to_string() })?;
    Ok(with_integers(json))
}

/// Converts whole numbers to integers: in a `Struct`, all numbers are floats.
fn with_integers(json: Value) -> Value {
    match json {
        Value::Number(number) => Value::Number(whole(&number).unwrap_or(number)),
        Value::Array(items) => items.into_iter().map(with_integers).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(name, value)| (name, with_integers(value))).collect()
        }
        other => other,
    }
}

fn whole(number: &Number) -> Option<Number> {
    /// Bound up to which floats represent every integer exactly.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let value =
        number.as_f64().filter(|value| number.is_f64() && value.fract() == 0.0 && value.abs() <= EXACT)?;
    format!("{value:.0}").parse::<i64>().ok().map(Number::from)
}

/// Adapts JSON to messages: an empty string means a match without a condition, which is an empty message.
fn fit(json: &Value, kind: &Kind) -> Value {
    let Kind::Message(message) = kind else { return json.clone() };
    if message.full_name().starts_with("google.protobuf.") {
        return json.clone();
    }
    let Value::Object(fields) = json else {
        return if json == "" { Value::Object(Map::new()) } else { json.clone() };
    };
    let mut fitted = Map::new();
    for (name, value) in fields {
        let Some(field) = message.get_field_by_json_name(name) else { continue };
        let kind = field.kind();
        let value = match (value, field.is_map()) {
            (Value::Object(entries), true) => {
                let inner = kind.as_message().map(|entry| entry.map_entry_value_field().kind());
                let each = |(key, value): (&String, &Value)| {
                    (key.clone(), inner.as_ref().map_or_else(|| value.clone(), |inner| fit(value, inner)))
                };
                Value::Object(entries.iter().map(each).collect())
            }
            (Value::Array(items), _) => items.iter().map(|item| fit(item, &kind)).collect(),
            (value, _) if value == "" && kind.as_message().is_some() => continue,
            (value, _) => fit(value, &kind),
        };
        fitted.insert(name.clone(), value);
    }
    Value::Object(fitted)
}

/// Encodes content of a kind from JSON. Fields that Istio's API does not have are left out. Map entries may
/// have any order, so versions are computed from the JSON and not from these bytes.
///
/// # Errors
/// If a value does not have the type of its field.
pub fn json_to_body(kind: &McpKind, json: &Value) -> Result<Any, ResourceError> {
    let wrong = |reason: String| ResourceError::Json { message: kind.message, reason };
    let descriptor = descriptor(kind).ok_or_else(|| wrong("there is no such message".to_owned()))?;
    let options = DeserializeOptions::new().deny_unknown_fields(false);
    let json = fit(json, &Kind::Message(descriptor.clone()));
    let message = DynamicMessage::deserialize_with_options(descriptor, &json, &options);
    let message = message.map_err(|error| wrong(error.to_string()))?;
    Ok(Any { type_url: format!("{PREFIX}{}", kind.message), value: message.encode_to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_model::Kind;
    use serde_json::json;

    #[test]
    fn content_survives_the_way_there_and_back() {
        for (kind, json) in [
            (
                Kind::ServiceEntry,
                json!({"hosts": ["a.example"], "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}],
                    "location": "MESH_INTERNAL", "resolution": "STATIC",
                    "endpoints": [{"address": "192.0.2.1", "weight": 3, "labels": {"a": "b"}}]}),
            ),
            (
                Kind::VirtualService,
                json!({"hosts": ["a"], "http": [{"match": [{"uri": {"prefix": "/"}}], "timeout": "1.500s",
                    "retries": {"attempts": 2, "perTryTimeout": "0.100s"}, "route": [{"destination": {"host": "b"}}]}]}),
            ),
            (
                Kind::EnvoyFilter,
                json!({"configPatches": [{"applyTo": "CLUSTER", "patch": {"operation": "MERGE",
                    "value": {"connect_timeout": "1s", "list": [true, null, "x"]}}}]}),
            ),
            (Kind::MeshConfig, json!({"trustDomain": "td", "defaultConfig": {"concurrency": 2}})),
        ] {
            let entry = McpKind::of(kind).unwrap();
            let body = json_to_body(entry, &json).unwrap();
            assert_eq!(body_to_json(entry, &body).unwrap(), json, "{kind}");
        }
    }

    #[test]
    fn what_is_not_of_its_type_is_an_error() {
        let entry = McpKind::of(Kind::ServiceEntry).unwrap();
        let body = |type_url: &str, value: &[u8]| Any { type_url: type_url.into(), value: value.into() };
        let read = |any| body_to_json(entry, &any);
        let sidecar = body("x/istio.networking.v1alpha3.Sidecar", &[]);
        assert!(matches!(read(sidecar), Err(ResourceError::OtherKind { .. })));
        let garbled = body("istio.networking.v1.ServiceEntry", &[0xff, 0xff]);
        assert!(matches!(read(garbled), Err(ResourceError::Malformed { part: "body", .. })));
        assert!(matches!(Resource::open(&body("x/y", &[])), Err(ResourceError::Envelope(_))));
        let garbled = body("istio.mcp.v1alpha1.Resource", &[0xff]);
        assert!(matches!(Resource::open(&garbled), Err(ResourceError::Malformed { part: "envelope", .. })));
        assert!(matches!(json_to_body(entry, &json!({"hosts": 1})), Err(ResourceError::Json { .. })));
        assert!(json_to_body(entry, &json!({"hosts": ["a"], "neverHeardOf": 1})).is_ok());
    }

    /// A field of a message that is bytes itself.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2];
        prost::encoding::encode_varint(bytes.len() as u64, &mut out);
        out.extend_from_slice(bytes);
        out
    }

    #[test]
    fn nesting_without_end_is_an_error() {
        let mut value = Vec::new();
        for _ in 0..5_000 {
            let entry = [field(1, b"a"), field(2, &value)].concat();
            value = field(5, &field(1, &entry));
        }
        // EnvoyFilter.config_patches.patch.value, a Struct.
        let fields = field(1, &[field(1, b"a"), field(2, &value)].concat());
        let value = field(4, &field(3, &field(2, &fields)));
        let type_url = "istio.networking.v1alpha3.EnvoyFilter".to_owned();
        let read = body_to_json(McpKind::of(Kind::EnvoyFilter).unwrap(), &Any { type_url, value });
        assert!(matches!(read, Err(ResourceError::Malformed { part: "body", .. })), "{read:?}");
    }
}
