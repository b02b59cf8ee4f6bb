//! Conversion of shapes to structural schemas (OpenAPI 3), limited to the features allowed in
//! CustomResourceDefinitions.

use super::trace::Shape;
use serde_json::{Map, Value, json};

/// Pattern of a duration that the reader accepts: Go's units, never negative.
const DURATION: &str = "^\\+?(0|(([0-9]+\\.?[0-9]*|\\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$";

/// Schema of a shape.
pub(super) fn schema(shape: &Shape) -> Value {
    match shape {
        Shape::Unknown | Shape::Any => json!({"x-kubernetes-preserve-unknown-fields": true}),
        Shape::Bool => json!({"type": "boolean"}),
        Shape::Integer(least, most) => integer(*least, *most),
        Shape::Number => json!({"type": "number", "format": "double"}),
        Shape::Text => json!({"type": "string"}),
        Shape::Special("Duration") => json!({"type": "string", "pattern": DURATION}),
        Shape::Special("Base64") => json!({"type": "string", "format": "byte"}),
        Shape::Special("IntOrString") => json!({"x-kubernetes-int-or-string": true}),
        Shape::Special(_) => json!({"type": "string"}),
        Shape::List(item) => json!({"type": "array", "items": schema(item)}),
        Shape::Map(value) if **value == Shape::Any => {
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
        }
        Shape::Map(value) => json!({"type": "object", "additionalProperties": schema(value)}),
        Shape::Fields(fields) => json!({"type": "object", "properties": properties(fields)}),
        Shape::Names(names) => json!({"type": "string", "enum": names}),
        Shape::OneOf(fields) => {
            json!({"type": "object", "maxProperties": 1, "properties": properties(fields)})
        }
    }
}

fn properties(fields: &[(&'static str, Shape)]) -> Map<String, Value> {
    fields.iter().map(|(name, shape)| ((*name).to_owned(), schema(shape))).collect()
}

/// Schema of an integer; bounds that the format does not imply are written out.
fn integer(least: i128, most: i128) -> Value {
    let small = least >= i128::from(i32::MIN) && most <= i128::from(i32::MAX);
    let mut schema = json!({"type": "integer", "format": if small { "int32" } else { "int64" }});
    if let (Ok(least), Some(fields)) = (i64::try_from(least), schema.as_object_mut()) {
        if least != i64::MIN {
            fields.insert("minimum".into(), least.into());
        }
        if let Ok(most) = i64::try_from(most)
            && most != i64::MAX
        {
            fields.insert("maximum".into(), most.into());
        }
    }
    schema
}
