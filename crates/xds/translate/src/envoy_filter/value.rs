//! Values of patches: conversion of JSON to messages of any type that Envoy knows, with a deterministic
//! encoding.

use pilotfish_config::Duration;
use pilotfish_proto::pool;
use prost::encoding::{WireType, encode_key, encode_varint};
use prost_reflect::{
    DeserializeOptions, DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, ReflectMessage,
    Value,
};
use serde_json::Value as Json;
use std::collections::HashMap;

/// The message that may contain any other.
pub(super) const ANY: &str = "google.protobuf.Any";
/// Key of the type name in its JSON form.
const TYPE: &str = "@type";

/// Parses a message. Fields that Envoy does not know are ignored, as in Istio.
///
/// # Errors
/// If the JSON does not fit the message type.
pub(super) fn parse(type_name: &str, json: &Json) -> Result<DynamicMessage, String> {
    let descriptor =
        pool().get_message_by_name(type_name).ok_or_else(|| format!("unknown type {type_name}"))?;
    let mut json = json.clone();
    plain_durations(&descriptor, &mut json);
    let options = DeserializeOptions::new().deny_unknown_fields(false);
    DynamicMessage::deserialize_with_options(descriptor, json, &options).map_err(|error| error.to_string())
}

/// Converts durations from Go's syntax (`250ms`) to that of protobuf (`0.25s`).
fn plain_durations(descriptor: &MessageDescriptor, json: &mut Json) {
    let Json::Object(fields) = json else { return };
    if descriptor.full_name() == ANY {
        let inner = fields.get(TYPE).and_then(Json::as_str).and_then(by_url);
        if let Some(inner) = inner.filter(|inner| inner.full_name() != ANY) {
            plain_durations(&inner, json);
        }
        return;
    }
    for (name, value) in fields.iter_mut() {
        let field = descriptor.get_field_by_name(name).or_else(|| descriptor.get_field_by_json_name(name));
        if let Some(field) = field {
            plain_durations_in(&field, value);
        }
    }
}

fn plain_durations_in(field: &FieldDescriptor, json: &mut Json) {
    let Kind::Message(message) = field.kind() else { return };
    if field.is_map() {
        let Kind::Message(message) = message.map_entry_value_field().kind() else { return };
        let Json::Object(entries) = json else { return };
        entries.values_mut().for_each(|value| plain_duration(&message, value));
    } else if let Json::Array(items) = json {
        items.iter_mut().for_each(|item| plain_duration(&message, item));
    } else {
        plain_duration(&message, json);
    }
}

fn plain_duration(message: &MessageDescriptor, json: &mut Json) {
    match (message.full_name(), &*json) {
        ("google.protobuf.Duration", Json::String(text)) => {
            if let Ok(duration) = Duration::parse(text) {
                *json = Json::String(duration.to_string());
            }
        }
        _ => plain_durations(message, json),
    }
}

/// Returns the descriptor for a type URL.
fn by_url(url: &str) -> Option<MessageDescriptor> {
    pool().get_message_by_name(url.rsplit('/').next().unwrap_or(url))
}

/// Decodes the content of an `Any`.
pub(super) fn decode(url: &str, bytes: &[u8]) -> Option<DynamicMessage> {
    DynamicMessage::decode(by_url(url)?, bytes).ok()
}

/// Encodes a message with sorted map entries, so that equal messages have equal bytes.
pub(super) fn encode(message: &DynamicMessage) -> Vec<u8> {
    let mut out = Vec::new();
    if message.descriptor().full_name() == ANY {
        encode_any(message, &mut out);
        return out;
    }
    for (field, value) in message.fields() {
        match value {
            Value::Map(entries) => encode_map(&field, entries, &mut out),
            Value::Message(inner) => encode_inner(field.number(), &encode(inner), &mut out),
            Value::List(items) if matches!(field.kind(), Kind::Message(_)) => {
                let messages = items.iter().filter_map(Value::as_message);
                messages.for_each(|inner| encode_inner(field.number(), &encode(inner), &mut out));
            }
            _ => encode_alone(message.descriptor(), &field, value, &mut out),
        }
    }
    out
}

fn encode_inner(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// A field without messages inside: as the only one of its message, it is encoded as usual.
fn encode_alone(descriptor: MessageDescriptor, field: &FieldDescriptor, value: &Value, out: &mut Vec<u8>) {
    let mut alone = DynamicMessage::new(descriptor);
    alone.set_field(field, value.clone());
    out.extend(prost::Message::encode_to_vec(&alone));
}

fn encode_map(field: &FieldDescriptor, entries: &HashMap<MapKey, Value>, out: &mut Vec<u8>) {
    let Kind::Message(entry) = field.kind() else { return };
    let mut entries: Vec<(&MapKey, &Value)> = entries.iter().collect();
    entries.sort_by_key(|(key, _)| *key);
    for (key, value) in entries {
        let mut message = DynamicMessage::new(entry.clone());
        message.set_field(&entry.map_entry_key_field(), key.clone().into());
        message.set_field(&entry.map_entry_value_field(), value.clone());
        encode_inner(field.number(), &encode(&message), out);
    }
}

fn encode_any(message: &DynamicMessage, out: &mut Vec<u8>) {
    let (url, bytes) = (message.get_field_by_name("type_url"), message.get_field_by_name("value"));
    let (Some(url), Some(bytes)) = (url, bytes) else { return };
    let (Some(url), Some(bytes)) = (url.as_str(), bytes.as_bytes()) else { return };
    let inner = decode(url, bytes).map_or_else(|| bytes.to_vec(), |inner| encode(&inner));
    let any = pilotfish_proto::Any { type_url: url.to_owned(), value: inner };
    out.extend(prost::Message::encode_to_vec(&any));
}
