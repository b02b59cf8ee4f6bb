//! Filter metadata of resources, for telemetry and tools like istioctl.

use pilotfish_model::ObjectKey;
use pilotfish_proto::envoy::config::core::v3::Metadata;
use pilotfish_proto::{ListValue, Struct, Value, ValueKind};

/// The key of Istio's metadata.
pub(crate) const ISTIO: &str = "istio";

/// A text as a protobuf value.
#[must_use]
pub(crate) fn text(text: &str) -> Value {
    Value { kind: Some(ValueKind::StringValue(text.to_owned())) }
}

/// A bool as a protobuf value.
#[must_use]
pub(crate) fn flag(flag: bool) -> Value {
    Value { kind: Some(ValueKind::BoolValue(flag)) }
}

/// A list as a protobuf value.
#[must_use]
pub(crate) fn list(values: Vec<Value>) -> Value {
    Value { kind: Some(ValueKind::ListValue(ListValue { values })) }
}

/// Fields as a protobuf struct.
pub(crate) fn fields<'a>(fields: impl IntoIterator<Item = (&'a str, Value)>) -> Struct {
    Struct { fields: fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect() }
}

/// Fields as a protobuf value.
pub(crate) fn record<'a>(entries: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
    Value { kind: Some(ValueKind::StructValue(fields(entries))) }
}

/// JSON as a protobuf value.
#[must_use]
pub(crate) fn json(value: &serde_json::Value) -> Value {
    use serde_json::Value as Json;
    let kind = match value {
        Json::Null => ValueKind::NullValue(0),
        Json::Bool(flag) => ValueKind::BoolValue(*flag),
        Json::Number(number) => ValueKind::NumberValue(number.as_f64().unwrap_or_default()),
        Json::String(text) => ValueKind::StringValue(text.clone()),
        Json::Array(items) => ValueKind::ListValue(ListValue { values: items.iter().map(json).collect() }),
        Json::Object(fields) => ValueKind::StructValue(Struct {
            fields: fields.iter().map(|(key, value)| (key.clone(), json(value))).collect(),
        }),
    };
    Value { kind: Some(kind) }
}

/// The path of an object in the API server: `config` in the metadata.
#[must_use]
pub(crate) fn config_path(key: &ObjectKey) -> String {
    let (group, kind) = (key.kind.group(), key.kind.kebab());
    format!("/apis/{group}/v1/namespaces/{}/{kind}/{}", key.namespace, key.name)
}

/// Adds a field to Istio's metadata.
pub(crate) fn set_istio(metadata: &mut Option<Metadata>, field: &str, value: Value) {
    let parts = &mut metadata.get_or_insert_default().filter_metadata;
    parts.entry(ISTIO.to_owned()).or_default().fields.insert(field.to_owned(), value);
}

/// Returns metadata with the name of the object from which a resource was generated.
#[must_use]
pub(crate) fn of_config(key: &ObjectKey) -> Option<Metadata> {
    let mut metadata = None;
    set_istio(&mut metadata, "config", text(&config_path(key)));
    metadata
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_model::Kind;

    #[test]
    fn objects_are_named_as_in_the_api() {
        let key = ObjectKey::new(Kind::DestinationRule, "shop", "catalog");
        assert_eq!(
            config_path(&key),
            "/apis/networking.istio.io/v1/namespaces/shop/destination-rule/catalog"
        );
    }
}
