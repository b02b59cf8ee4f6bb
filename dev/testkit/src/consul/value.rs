//! JSON values of requests and responses.

use serde_json::{Map, Value, json};

/// Field by its name in any case, with or without underscores, as agents accept it [agent/service, register].
pub(super) fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    let object = value.as_object()?;
    object.get(name).or_else(|| {
        let same = |key: &str| {
            let plain = key.chars().filter(|c| *c != '_');
            plain.map(|c| c.to_ascii_lowercase()).eq(name.chars().map(|c| c.to_ascii_lowercase()))
        };
        object.iter().find(|(key, _)| same(key)).map(|(_, value)| value)
    })
}

pub(super) fn text_of<'a>(value: &'a Value, name: &str) -> &'a str {
    field(value, name).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn object(value: &Value, name: &str) -> Value {
    field(value, name).filter(|value| value.is_object()).cloned().unwrap_or_else(|| json!({}))
}

pub(super) fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn first<'a>(texts: &[&'a str]) -> &'a str {
    texts.iter().find(|text| !text.is_empty()).copied().unwrap_or_default()
}

/// True if both are equal except for indexes, so that a write changes nothing.
pub(super) fn same(old: Option<&Value>, new: &Value) -> bool {
    let plain = |value: &Value| {
        let mut object = value.as_object().cloned().unwrap_or_default();
        object.remove("CreateIndex");
        object.remove("ModifyIndex");
        object
    };
    old.is_some_and(|old| plain(old) == plain(new))
}

pub(super) fn stamp(value: &mut Value, old: Option<&Value>, index: u64) {
    let created = old.and_then(|old| old.get("CreateIndex")).cloned().unwrap_or_else(|| json!(index));
    value["CreateIndex"] = created;
    value["ModifyIndex"] = json!(index);
}

pub(super) fn service_value(payload: &Value, id: &str, name: &str) -> Value {
    let tags = field(payload, "Tags").filter(|tags| tags.is_array()).cloned().unwrap_or_else(|| json!([]));
    let weights = object(payload, "Weights");
    let weight = |name: &str| field(&weights, name).and_then(Value::as_u64).unwrap_or(1);
    let mut tagged = Map::new();
    for (name, address) in object(payload, "TaggedAddresses").as_object().into_iter().flatten() {
        let port = field(address, "Port").and_then(Value::as_u64).unwrap_or_default();
        tagged.insert(name.clone(), json!({"Address": text_of(address, "Address"), "Port": port}));
    }
    let mut service = json!({
        "ID": id, "Service": name, "Tags": tags, "Address": text_of(payload, "Address"),
        "TaggedAddresses": tagged, "Meta": object(payload, "Meta"),
        "Port": field(payload, "Port").and_then(Value::as_u64).unwrap_or_default(),
        "Weights": {"Passing": weight("Passing"), "Warning": weight("Warning")},
        "EnableTagOverride": field(payload, "EnableTagOverride").and_then(Value::as_bool).unwrap_or_default(),
        "Proxy": object(payload, "Proxy"), "Connect": object(payload, "Connect"),
    });
    // Only included if it is set.
    if !text_of(payload, "Kind").is_empty() {
        service["Kind"] = json!(text_of(payload, "Kind"));
    }
    if let Some(locality) = field(payload, "Locality").filter(|locality| locality.is_object()) {
        service["Locality"] = locality.clone();
    }
    service
}
