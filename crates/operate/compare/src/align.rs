//! Details that an Envoy's dump cannot show, left out of both sides.

use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Leaves details out of a resource of a dump and of the same resource as it would be sent.
pub(crate) fn align(kind: &str, held: &mut Value, sent: &mut Value) {
    if kind == "endpoints" {
        locality_weights(held, sent);
    }
    let (of_held, of_sent) = (opaque(held), opaque(sent));
    for name in of_held.symmetric_difference(&of_sent) {
        without_content(held, name);
        without_content(sent, name);
    }
}

/// Leaves out the weights of localities that an Envoy does not use, and does not dump.
fn locality_weights(held: &Value, sent: &mut Value) {
    const WEIGHT: &str = "load_balancing_weight";
    let mut localities = held.get("endpoints").and_then(Value::as_array).into_iter().flatten();
    if localities.any(|locality| locality.get(WEIGHT).is_some()) {
        return;
    }
    let localities = sent.get_mut("endpoints").and_then(Value::as_array_mut).into_iter().flatten();
    for locality in localities.filter_map(Value::as_object_mut) {
        locality.remove(WEIGHT);
    }
}

/// Types of messages that are there as bytes only, since their descriptor is not known.
fn opaque(value: &Value) -> BTreeSet<String> {
    let mut types = BTreeSet::new();
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        match value {
            Value::Object(fields) => {
                if fields.contains_key("@bytes") {
                    types.extend(type_of(fields).map(str::to_owned));
                }
                open.extend(fields.values());
            }
            Value::Array(items) => open.extend(items),
            _ => {}
        }
    }
    types
}

/// Leaves out the fields of messages of a type.
fn without_content(value: &mut Value, name: &str) {
    match value {
        Value::Object(fields) if type_of(fields) == Some(name) => fields.retain(|field, _| field == "@type"),
        Value::Object(fields) => fields.values_mut().for_each(|value| without_content(value, name)),
        Value::Array(items) => items.iter_mut().for_each(|value| without_content(value, name)),
        _ => {}
    }
}

fn type_of(fields: &Map<String, Value>) -> Option<&str> {
    fields.get("@type").and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn messages_that_one_side_has_as_bytes_are_compared_by_type() {
        let filter = |content: Value| json!({"filters": [{"name": "alpn", "typed_config": content}]});
        let readable = filter(json!({"@type": "x/alpn", "alpn_override": ["h2"]}));
        let bytes = |bytes: &str| filter(json!({"@type": "x/alpn", "@bytes": bytes}));
        for (held, sent, equal) in [
            (readable.clone(), bytes("AA=="), true),
            (bytes("AA=="), readable.clone(), true),
            (bytes("AA=="), bytes("AQ=="), false),
            (readable, filter(json!({"@type": "x/other", "@bytes": "AA=="})), false),
        ] {
            let (mut a, mut b) = (held, sent);
            align("listeners", &mut a, &mut b);
            assert_eq!(a == b, equal, "{a} {b}");
        }
    }

    #[test]
    fn weights_of_localities_count_where_the_dump_has_them() {
        let assignment = |weights: &[u32]| json!({"endpoints": weights.iter().map(|n| json!({"load_balancing_weight": n})).collect::<Vec<_>>()});
        let without = json!({"endpoints": [{}, {}]});
        for (held, equal) in [(without, true), (assignment(&[1, 2]), true), (assignment(&[1, 3]), false)] {
            let (mut held, mut sent) = (held, assignment(&[1, 2]));
            align("endpoints", &mut held, &mut sent);
            assert_eq!(held == sent, equal, "{held}");
        }
    }
}
