//! Strategic merge of an overlay into an object.

use serde_json::{Map, Value};

/// Fields by which entries of lists are the same, the first one that an entry has. Lists whose entries have
/// none of them are replaced.
const KEYS: [&str; 7] = ["mountPath", "containerPort", "port", "topologyKey", "ip", "name", "devicePath"];

/// Field of an overlay with an instruction: `delete` or `replace`.
const DIRECTIVE: &str = "$patch";

/// Merges the fields of an overlay. `null` removes a field.
pub(crate) fn merge(object: &mut Map<String, Value>, overlay: &Map<String, Value>) {
    if directive(overlay) == Some("replace") {
        object.clear();
    }
    for (name, value) in overlay.iter().filter(|(name, _)| name.as_str() != DIRECTIVE) {
        match (object.get_mut(name), value) {
            (_, Value::Null) => drop(object.remove(name)),
            (Some(Value::Object(own)), Value::Object(fields)) => match directive(fields) {
                Some("delete") => drop(object.remove(name)),
                _ => merge(own, fields),
            },
            (Some(Value::Array(own)), Value::Array(items)) => merge_list(own, items),
            (_, value) => drop(object.insert(name.clone(), plain(value))),
        }
    }
}

/// Merges entries with the key of another one into that, and appends the others.
fn merge_list(own: &mut Vec<Value>, items: &[Value]) {
    let is_replaced = items.iter().any(|item| item.get(DIRECTIVE) == Some(&Value::from("replace")));
    let key = items.iter().chain(own.iter()).find_map(key_of);
    let Some(key) = key.filter(|_| !is_replaced) else {
        let items = items.iter().filter(|item| item.get(DIRECTIVE).is_none());
        *own = items.map(plain).collect();
        return;
    };
    for item in items {
        let place = own.iter().position(|other| other.get(key).is_some() && other.get(key) == item.get(key));
        let is_deleted = item.get(DIRECTIVE) == Some(&Value::from("delete"));
        match (place, item) {
            (Some(place), _) if is_deleted => drop(own.remove(place)),
            (None, _) if is_deleted => {}
            (Some(place), Value::Object(fields)) => {
                if let Some(Value::Object(known)) = own.get_mut(place) {
                    merge(known, fields);
                }
            }
            _ => own.push(plain(item)),
        }
    }
}

/// Returns the field by which an entry of a list is found again.
pub(crate) fn key_of(item: &Value) -> Option<&'static str> {
    KEYS.into_iter().find(|key| item.get(key).is_some())
}

fn directive(fields: &Map<String, Value>) -> Option<&str> {
    fields.get(DIRECTIVE).and_then(Value::as_str)
}

/// Copies a value without the instructions and removals in it.
fn plain(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut copy = Map::new();
            merge(&mut copy, fields);
            Value::Object(copy)
        }
        Value::Array(items) => {
            let is_kept = |item: &&Value| item.get(DIRECTIVE).is_none();
            Value::Array(items.iter().filter(is_kept).map(plain).collect())
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn overlays_merge_by_the_keys_of_lists() {
        let containers = json!({"containers": [{"name": "a", "image": "x", "ports": [{"containerPort": 1, "name": "p"}]}]});
        for (own, overlay, expected) in [
            (json!({"a": {"b": 1}}), json!({"a": {"c": 2}}), json!({"a": {"b": 1, "c": 2}})),
            (json!({"a": 1, "b": 2}), json!({"a": null, "c": null}), json!({"b": 2})),
            (
                containers.clone(),
                json!({"containers": [{"name": "a", "ports": [{"containerPort": 2}]}, {"name": "b"}]}),
                json!({"containers": [
                    {"name": "a", "image": "x", "ports": [{"containerPort": 1, "name": "p"}, {"containerPort": 2}]},
                    {"name": "b"},
                ]}),
            ),
            (
                containers.clone(),
                json!({"containers": [{"name": "a", "$patch": "delete"}]}),
                json!({"containers": []}),
            ),
            (
                containers,
                json!({"containers": [{"$patch": "replace"}, {"name": "b"}]}),
                json!({"containers": [{"name": "b"}]}),
            ),
            (
                json!({"ports": [{"name": "http", "port": 80}]}),
                json!({"ports": [{"port": 80, "nodePort": 30080}]}),
                json!({"ports": [{"name": "http", "port": 80, "nodePort": 30080}]}),
            ),
            (json!({"l": [1, 2]}), json!({"l": [3]}), json!({"l": [3]})),
            (json!({"a": {"b": 1}}), json!({"a": {"$patch": "replace", "c": 1}}), json!({"a": {"c": 1}})),
            (json!({}), json!({"a": {"b": null, "c": 1}}), json!({"a": {"c": 1}})),
            (json!({"a": [1]}), json!({"a": {"b": 1}}), json!({"a": {"b": 1}})),
        ] {
            let Value::Object(mut object) = own.clone() else { panic!("an object") };
            merge(&mut object, overlay.as_object().unwrap());
            assert_eq!(Value::Object(object), expected, "{own} with {overlay}");
        }
    }
}
