//! Objects with one change each.

use serde_json::{Value, json};

/// What was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Change {
    /// A field that no kind has was added.
    UnknownField,
    /// A value was replaced by one of another type.
    OtherType,
    /// A number was put in quotes.
    NumberAsText,
    /// A text was replaced by another one.
    OtherText,
    /// A number was replaced by 0.
    Zero,
    /// A number was replaced by one that no field takes.
    Huge,
    /// A field was set to null, which is the same as to remove it.
    Null,
    /// An item of a list was replaced by null.
    NullItem,
    /// A list was emptied.
    Emptied,
    /// A field was removed.
    Removed,
}

/// Every change to every field of `spec`, with the place that was changed; places are alike for all items of
/// a list.
pub(crate) fn changes(object: &Value) -> Vec<(String, Change, Value)> {
    let mut found = Vec::new();
    let mut pointers = Vec::new();
    places(object.get("spec").unwrap_or(&Value::Null), "/spec", "spec", &mut pointers);
    for (pointer, place) in pointers {
        let Some(value) = object.pointer(&pointer) else { continue };
        for (change, with) in replacements(value) {
            let item = change == Change::Null && place.ends_with("[]");
            let change = if item { Change::NullItem } else { change };
            let mut changed = object.clone();
            *changed.pointer_mut(&pointer).expect("it is there") = with;
            found.push((place.clone(), change, changed));
        }
        if let Some((parent, field)) = pointer.rsplit_once('/') {
            let mut changed = object.clone();
            if let Some(fields) = changed.pointer_mut(parent).and_then(Value::as_object_mut) {
                fields.remove(&field.replace("~1", "/").replace("~0", "~"));
                found.push((place.clone(), Change::Removed, changed));
            }
        }
    }
    found
}

fn places(value: &Value, pointer: &str, place: &str, found: &mut Vec<(String, String)>) {
    found.push((pointer.to_owned(), place.to_owned()));
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let escaped = name.replace('~', "~0").replace('/', "~1");
                places(value, &format!("{pointer}/{escaped}"), &format!("{place}.{name}"), found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                places(item, &format!("{pointer}/{index}"), &format!("{place}[]"), found);
            }
        }
        _ => {}
    }
}

fn replacements(value: &Value) -> Vec<(Change, Value)> {
    match value {
        Value::Object(fields) => {
            let mut more = fields.clone();
            more.insert("noSuchField".into(), json!({"a": 1}));
            vec![
                (Change::UnknownField, Value::Object(more)),
                (Change::OtherType, json!([])),
                (Change::Null, Value::Null),
            ]
        }
        Value::Array(_) => vec![
            (Change::OtherType, json!({"a": "b"})),
            (Change::Emptied, json!([])),
            (Change::Null, Value::Null),
        ],
        Value::String(_) => vec![
            (Change::OtherType, json!(7)),
            (Change::OtherText, json!("no such")),
            (Change::Null, Value::Null),
        ],
        Value::Number(number) => vec![
            (Change::OtherType, json!({})),
            (Change::NumberAsText, json!(number.to_string())),
            (Change::Zero, json!(0)),
            (Change::Huge, json!(5_000_000_000_u64)),
        ],
        Value::Bool(_) => vec![(Change::OtherType, json!("true")), (Change::Null, Value::Null)],
        Value::Null => Vec::new(),
    }
}
