//! Comparison of stored objects with applied ones.

use crate::merge::key_of;
use serde_json::{Map, Value};

/// Reduces a stored object to the fields of an applied one. Two projections are equal as long as nobody
/// changes these fields; defaults, other fields and the forms in which an API server stores values do not
/// matter.
pub(crate) fn project(applied: &Value, stored: &Value) -> Value {
    match (applied, stored) {
        (Value::Object(fields), Value::Object(stored)) => {
            let field =
                |(name, value): (&String, &Value)| Some((name.clone(), project(value, stored.get(name)?)));
            Value::Object(fields.iter().filter_map(field).collect::<Map<_, _>>())
        }
        (Value::Array(items), Value::Array(stored)) => match items.iter().find_map(key_of) {
            Some(key) => {
                let same = |item: &Value| stored.iter().find(|other| other.get(key) == item.get(key));
                Value::Array(items.iter().filter_map(|item| Some(project(item, same(item)?))).collect())
            }
            None => Value::Array(stored.clone()),
        },
        (_, stored) => stored.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_fields_that_were_applied_are_compared() {
        let applied =
            json!({"labels": {"a": "1"}, "spec": {"ports": [{"port": 80}, {"port": 90}], "args": ["x"]}});
        let stored = json!({"labels": {"a": "1", "b": "2"}, "status": {}, "spec": {
            "ports": [{"port": 90, "nodePort": 7}, {"port": 80}], "args": ["x"], "replicas": 1}});
        let first = project(&applied, &stored);
        assert_eq!(first, applied);
        for (pointer, value, is_same) in [
            ("/labels/b", json!("3"), true),
            ("/labels/a", json!("3"), false),
            ("/spec/replicas", json!(5), true),
            ("/spec/ports/0/nodePort", json!(8), true),
            ("/spec/ports/0/port", json!(91), false),
            ("/spec/args", json!(["x", "y"]), false),
        ] {
            let mut changed = stored.clone();
            *changed.pointer_mut(pointer).unwrap() = value;
            assert_eq!(project(&applied, &changed) == first, is_same, "{pointer}");
        }
    }
}
