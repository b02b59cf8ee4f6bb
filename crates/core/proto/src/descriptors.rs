//! Descriptors of all of Envoy's API, for JSON views and for patches of types that are only known at run
//! time.

use base64::prelude::{BASE64_STANDARD as BASE64, Engine};
use prost::{Message, Name};
use prost_reflect::{
    DescriptorPool, DeserializeOptions, DynamicMessage, MessageDescriptor, ReflectMessage, Value as Reflected,
};
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorProto, MessageOptions};
use serde_json::{Map, Value};
use std::io::Read;
use std::sync::LazyLock;

static PACKED: &[u8] = include_bytes!("../descriptors/envoy.fds.gz");

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(PACKED).read_to_end(&mut bytes).expect("the committed set unpacks: tested");
    let mut pool = DescriptorPool::decode(&bytes[..]).expect("the committed set decodes: tested");
    for package in ["udpa.type.v1", "xds.type.v3"] {
        pool.add_file_descriptor_proto(typed_struct(package)).expect("its one import is in the set: tested");
    }
    pool.add_file_descriptor_proto(name_table()).expect("it imports nothing: tested");
    pool
});

/// `TypedStruct` of a package, which Envoy supports but does not have among its own `.proto` files.
fn typed_struct(package: &str) -> FileDescriptorProto {
    let fields = vec![
        field("type_url", 1, Type::String, None),
        field("value", 2, Type::Message, Some(".google.protobuf.Struct")),
    ];
    FileDescriptorProto {
        name: Some(format!("{}/typed_struct.proto", package.replace('.', "/"))),
        package: Some(package.to_owned()),
        dependency: vec!["google/protobuf/struct.proto".to_owned()],
        message_type: vec![message("TypedStruct", fields)],
        syntax: Some("proto3".to_owned()),
        ..FileDescriptorProto::default()
    }
}

/// `NameTable` of Istio's agent, which is not a part of Envoy's API.
fn name_table() -> FileDescriptorProto {
    const INFO: &str = ".istio.networking.nds.v1.NameTable.NameInfo";
    const ENTRY: &str = ".istio.networking.nds.v1.NameTable.TableEntry";
    let repeated = |field| FieldDescriptorProto { label: Some(Label::Repeated as i32), ..field };
    let text = |name, number| field(name, number, Type::String, None);
    let info = vec![
        repeated(text("ips", 1)),
        text("registry", 2),
        text("shortname", 3),
        text("namespace", 4),
        repeated(text("alt_hosts", 5)),
    ];
    let mut entry = message("TableEntry", vec![text("key", 1), field("value", 2, Type::Message, Some(INFO))]);
    entry.options = Some(MessageOptions { map_entry: Some(true), ..MessageOptions::default() });
    let mut table = message("NameTable", vec![repeated(field("table", 1, Type::Message, Some(ENTRY)))]);
    table.nested_type = vec![message("NameInfo", info), entry];
    FileDescriptorProto {
        name: Some("istio/networking/nds/v1/nds.proto".to_owned()),
        package: Some("istio.networking.nds.v1".to_owned()),
        message_type: vec![table],
        syntax: Some("proto3".to_owned()),
        ..FileDescriptorProto::default()
    }
}

fn field(name: &str, number: i32, kind: Type, type_name: Option<&str>) -> FieldDescriptorProto {
    FieldDescriptorProto {
        name: Some(name.to_owned()),
        number: Some(number),
        r#type: Some(kind as i32),
        label: Some(Label::Optional as i32),
        type_name: type_name.map(str::to_owned),
        ..FieldDescriptorProto::default()
    }
}

fn message(name: &str, field: Vec<FieldDescriptorProto>) -> DescriptorProto {
    DescriptorProto { name: Some(name.to_owned()), field, ..DescriptorProto::default() }
}

/// All messages of Envoy's v3 API and their imports. Unpacked on first use (about 10 ms, 10 MB).
#[must_use]
pub fn pool() -> &'static DescriptorPool {
    &POOL
}

/// Reason why a message cannot be converted to JSON.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// No descriptor of that name.
    #[error("unknown message type {0}")]
    UnknownType(String),
    /// The bytes are not a message of that type.
    #[error("malformed {type_name}")]
    Malformed {
        /// Full name of the message.
        type_name: String,
        source: prost::DecodeError,
    },
}

/// An encoded message as JSON with the field names of the `.proto` files, as in Envoy's `config_dump`. A
/// nested `Any` is decoded if its type is known, and shown as type URL and base64 otherwise; bytes are shown
/// as base64.
///
/// # Errors
/// If the type is unknown or the bytes are malformed.
pub fn to_json(type_url: &str, bytes: &[u8]) -> Result<Value, JsonError> {
    let message = decode(type_url, bytes)?;
    let mut json = message_json(&message);
    if let Value::Object(fields) = &mut json {
        fields.insert("@type".into(), Value::String(type_url.to_owned()));
    }
    Ok(json)
}

/// Reason why JSON is not a message.
#[derive(Debug, thiserror::Error)]
pub enum FromJsonError {
    /// No descriptor of that name.
    #[error("unknown message type {0}")]
    UnknownType(String),
    /// A field has another type.
    #[error(transparent)]
    Fields(#[from] serde_json::Error),
    /// The descriptor and the Rust type differ.
    #[error(transparent)]
    Message(#[from] prost::DecodeError),
}

/// A message from JSON, with the field names of the `.proto` files or those of protobuf's JSON. Unknown
/// fields are ignored.
///
/// # Errors
/// If a field has another type.
pub fn from_json<M: Message + Default + Name>(json: &Value) -> Result<M, FromJsonError> {
    let name = M::full_name();
    let descriptor = pool().get_message_by_name(&name).ok_or(FromJsonError::UnknownType(name))?;
    let options = DeserializeOptions::new().deny_unknown_fields(false);
    let message = DynamicMessage::deserialize_with_options(descriptor, json, &options)?;
    Ok(message.transcode_to()?)
}

fn decode(type_url: &str, bytes: &[u8]) -> Result<DynamicMessage, JsonError> {
    let name = type_url.rsplit('/').next().unwrap_or(type_url);
    let descriptor: MessageDescriptor =
        pool().get_message_by_name(name).ok_or_else(|| JsonError::UnknownType(name.to_owned()))?;
    DynamicMessage::decode(descriptor, bytes)
        .map_err(|source| JsonError::Malformed { type_name: name.to_owned(), source })
}

fn message_json(message: &DynamicMessage) -> Value {
    let descriptor = message.descriptor();
    match descriptor.full_name() {
        "google.protobuf.Any" => any_json(message),
        name if name.starts_with("google.protobuf.") => serde_json::to_value(message).unwrap_or(Value::Null),
        _ => {
            let mut fields = Map::new();
            for (field, value) in message.fields() {
                fields.insert(field.name().to_owned(), value_json(value, &field.kind()));
            }
            Value::Object(fields)
        }
    }
}

fn any_json(message: &DynamicMessage) -> Value {
    let text = |name| message.get_field_by_name(name);
    let (Some(url), Some(value)) = (text("type_url"), text("value")) else { return Value::Null };
    let (Some(url), Some(bytes)) = (url.as_str(), value.as_bytes()) else { return Value::Null };
    to_json(url, bytes).unwrap_or_else(|_| serde_json::json!({"@type": url, "@bytes": BASE64.encode(bytes)}))
}

fn value_json(value: &Reflected, kind: &prost_reflect::Kind) -> Value {
    match value {
        Reflected::Bool(v) => Value::Bool(*v),
        Reflected::I32(v) => Value::from(*v),
        Reflected::I64(v) => Value::from(*v),
        Reflected::U32(v) => Value::from(*v),
        Reflected::U64(v) => Value::from(*v),
        Reflected::F32(v) => Value::from(*v),
        Reflected::F64(v) => Value::from(*v),
        Reflected::String(v) => Value::String(v.clone()),
        Reflected::Bytes(v) => Value::String(BASE64.encode(v)),
        Reflected::EnumNumber(number) => enum_json(*number, kind),
        Reflected::Message(message) => message_json(message),
        Reflected::List(items) => Value::Array(items.iter().map(|item| value_json(item, kind)).collect()),
        Reflected::Map(entries) => map_json(entries, kind),
    }
}

fn enum_json(number: i32, kind: &prost_reflect::Kind) -> Value {
    let known = kind.as_enum().and_then(|e| e.get_value(number));
    known.map_or_else(|| Value::from(number), |value| Value::String(value.name().to_owned()))
}

fn map_json(
    entries: &std::collections::HashMap<prost_reflect::MapKey, Reflected>,
    kind: &prost_reflect::Kind,
) -> Value {
    let Some(entry) = kind.as_message() else { return Value::Null };
    let inner = entry.map_entry_value_field().kind();
    let mut fields = Map::new();
    for (key, value) in entries {
        let key = match key {
            prost_reflect::MapKey::String(text) => text.clone(),
            prost_reflect::MapKey::Bool(v) => v.to_string(),
            prost_reflect::MapKey::I32(v) => v.to_string(),
            prost_reflect::MapKey::I64(v) => v.to_string(),
            prost_reflect::MapKey::U32(v) => v.to_string(),
            prost_reflect::MapKey::U64(v) => v.to_string(),
        };
        fields.insert(key, value_json(value, &inner));
    }
    Value::Object(fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envoy::config::core::v3::{Metadata, Node};
    use crate::{any, envoy::config::cluster::v3::Cluster};
    #[test]
    fn nodes_of_bootstraps_are_read_and_unknown_fields_ignored() {
        let node = serde_json::json!({
            "id": "sidecar~10.0.0.1~web-0.shop~x", "user_agent_name": "envoy", "clientFeatures": ["a"], "newer": {"x": 1},
            "locality": {"region": "r"}, "metadata": {"LABELS": {"app": "web"}, "PORTS": [1, true]},
        });
        let read: Node = from_json(&node).unwrap();
        let back = to_json("type.googleapis.com/envoy.config.core.v3.Node", &read.encode_to_vec()).unwrap();
        assert_eq!(
            (&back["metadata"]["LABELS"]["app"], &back["locality"]["region"]),
            (&"web".into(), &"r".into())
        );
        assert_eq!((&*read.user_agent_name, &*read.client_features), ("envoy", &["a".to_owned()][..]));
        for wrong in
            [serde_json::json!({"id": 1}), serde_json::json!([]), serde_json::json!({"metadata": "x"})]
        {
            assert!(from_json::<Node>(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_message_reads_back_as_json() {
        let cluster = Cluster { name: "a".into(), metadata: Some(Metadata::default()), ..Default::default() };
        let packed = any(&cluster);
        let json = to_json(&packed.type_url, &packed.value).unwrap();
        assert_eq!(json["name"], "a");
        assert_eq!(json["@type"], "type.googleapis.com/envoy.config.cluster.v3.Cluster");
    }

    #[test]
    fn a_typed_struct_is_opened() {
        let value = crate::Struct {
            fields: [("a".to_owned(), crate::Value { kind: Some(crate::ValueKind::BoolValue(true)) })].into(),
        };
        let packed = crate::typed_struct("x/some.Type", value);
        let json = to_json(&packed.type_url, &packed.value).unwrap();
        assert_eq!(json["type_url"], "x/some.Type");
        assert_eq!(json["value"]["a"], true);
        let newer = packed.type_url.replace("udpa.type.v1", "xds.type.v3");
        assert_eq!(to_json(&newer, &packed.value).unwrap()["value"]["a"], true);
    }

    #[test]
    fn name_tables_are_shown() {
        let info = crate::istio::NameInfo { ips: vec!["10.1.0.1".into()], ..Default::default() };
        let table = crate::istio::NameTable { table: [("web.shop".to_owned(), info)].into() };
        let packed = any(&table);
        let json = to_json(&packed.type_url, &packed.value).unwrap();
        assert_eq!(json["table"], serde_json::json!({"web.shop": {"ips": ["10.1.0.1"]}}));
    }

    #[test]
    fn unknown_and_malformed_messages_are_errors() {
        assert!(matches!(to_json("x/unknown.Type", &[]), Err(JsonError::UnknownType(_))));
        let url = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
        assert!(matches!(to_json(url, &[0xff, 0xff]), Err(JsonError::Malformed { .. })));
    }

    #[test]
    fn equal_messages_have_equal_bytes() {
        let metadata = |names: [&str; 3]| Metadata {
            filter_metadata: names.into_iter().map(|n| (n.to_owned(), crate::Struct::default())).collect(),
            ..Default::default()
        };
        assert_eq!(metadata(["a", "b", "c"]).encode_to_vec(), metadata(["c", "a", "b"]).encode_to_vec());
    }
}
