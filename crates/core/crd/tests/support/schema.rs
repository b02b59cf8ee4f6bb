//! What an API server does with an object of a definition: it drops nulls, prunes fields that the schema does
//! not name, and validates. Only what our definitions use is known here; anything else in a schema is
//! reported.

use regex::Regex;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// The documents of a YAML text as JSON, by the rules of YAML 1.2: `y` and `n` are texts.
pub(crate) fn documents(text: &str) -> Vec<Value> {
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_multiple_with_options(text, options).expect("YAML")
}

/// The verdict on an object.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// Fields that were dropped because the schema does not name them.
    pub(crate) pruned: Vec<String>,
    /// Why the object is refused.
    pub(crate) refused: Vec<String>,
}

impl Verdict {
    pub(crate) fn is_clean(&self) -> bool {
        self.pruned.is_empty() && self.refused.is_empty()
    }
}

/// Takes an object as an API server would that has `definition`.
pub(crate) fn submit(definition: &Value, object: &Value) -> Verdict {
    let mut object = object.clone();
    let fields = object.as_object_mut().expect("an object");
    for own in ["apiVersion", "kind", "metadata"] {
        fields.remove(own);
    }
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let mut verdict = Verdict::default();
    drop_nulls(&mut object);
    prune(schema, &mut object, "", &mut verdict.pruned);
    validate(schema, &object, "", &mut verdict.refused);
    verdict
}

/// Fields that are null count as not written where the schema does not allow null, which ours never does.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

fn prune(schema: &Value, value: &mut Value, at: &str, pruned: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            let named = schema["properties"].as_object();
            let others = schema.get("additionalProperties");
            let keeps = schema["x-kubernetes-preserve-unknown-fields"] == true;
            fields.retain(|name, _| {
                let known = keeps || others.is_some() || named.is_some_and(|named| named.contains_key(name));
                if !known {
                    pruned.push(format!("{at}.{name}"));
                }
                known
            });
            for (name, value) in fields {
                let inner = named.and_then(|named| named.get(name)).or(others);
                if let Some(inner) = inner {
                    prune(inner, value, &format!("{at}.{name}"), pruned);
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                prune(&schema["items"], item, &format!("{at}[{index}]"), pruned);
            }
        }
        _ => {}
    }
}

fn validate(schema: &Value, value: &Value, at: &str, refused: &mut Vec<String>) {
    let Some(rules) = schema.as_object() else { return };
    for (rule, wanted) in rules {
        if let Some(why) = broken(rule, wanted, schema, value) {
            refused.push(format!("{at}: {why}"));
        }
    }
    let others = schema.get("additionalProperties");
    if let Value::Object(fields) = value {
        for (name, value) in fields {
            if let Some(inner) = schema["properties"].get(name).or(others) {
                validate(inner, value, &format!("{at}.{name}"), refused);
            }
        }
    }
    if let (Value::Array(items), Some(inner)) = (value, schema.get("items")) {
        for (index, item) in items.iter().enumerate() {
            validate(inner, item, &format!("{at}[{index}]"), refused);
        }
    }
}

/// What is wrong with a value by one rule of its schema.
fn broken(rule: &str, wanted: &Value, schema: &Value, value: &Value) -> Option<String> {
    let good = match rule {
        "type" => has_type(wanted.as_str().expect("a type"), value),
        "enum" => wanted.as_array().expect("names").contains(value),
        "required" => wanted.as_array().expect("names").iter().all(|name| {
            value.as_object().is_none_or(|fields| fields.contains_key(name.as_str().expect("a name")))
        }),
        "not" => !holds(wanted, value),
        "anyOf" => wanted.as_array().expect("schemas").iter().any(|schema| holds(schema, value)),
        "minimum" => value.as_f64().is_none_or(|value| value >= wanted.as_f64().expect("a number")),
        "maximum" => value.as_f64().is_none_or(|value| value <= wanted.as_f64().expect("a number")),
        "minItems" => value.as_array().is_none_or(|items| items.len() as u64 >= wanted.as_u64().unwrap()),
        "maxItems" => value.as_array().is_none_or(|items| items.len() as u64 <= wanted.as_u64().unwrap()),
        "maxProperties" => {
            value.as_object().is_none_or(|fields| fields.len() as u64 <= wanted.as_u64().unwrap())
        }
        "minLength" => {
            value.as_str().is_none_or(|text| text.chars().count() as u64 >= wanted.as_u64().unwrap())
        }
        "pattern" => {
            let pattern = Regex::new(wanted.as_str().expect("a pattern")).expect("a pattern");
            value.as_str().is_none_or(|text| pattern.is_match(text))
        }
        "format" => has_format(wanted.as_str().expect("a format"), value),
        "x-kubernetes-int-or-string" => value.is_string() || value.is_i64(),
        "x-kubernetes-validations" => rules_hold(wanted, value),
        "description"
        | "properties"
        | "additionalProperties"
        | "items"
        | "x-kubernetes-preserve-unknown-fields"
        | "x-kubernetes-list-type"
        | "x-kubernetes-list-map-keys" => true,
        unknown => panic!("{unknown} in a schema is not known here: {schema}"),
    };
    (!good).then(|| format!("{value} breaks {rule}: {wanted}"))
}

/// Whether a value satisfies a schema that only rules are in.
fn holds(schema: &Value, value: &Value) -> bool {
    let mut refused = Vec::new();
    validate(schema, value, "", &mut refused);
    refused.is_empty()
}

fn has_type(name: &str, value: &Value) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.as_f64().is_some_and(|value| value.fract() == 0.0),
        "number" => value.is_number(),
        unknown => panic!("there is no type {unknown}"),
    }
}

fn has_format(name: &str, value: &Value) -> bool {
    match name {
        "int32" => {
            value.as_f64().is_none_or(|value| (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&value))
        }
        "int64" => !value.is_number() || value.is_i64() || value.as_f64().is_some_and(|v| v.abs() < 9.2e18),
        "byte" => value.as_str().is_none_or(|text| {
            let text: String = text.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
            let digits =
                text.trim_end_matches('=').bytes().all(|c| c.is_ascii_alphanumeric() || b"+/".contains(&c));
            digits && text.len().is_multiple_of(4)
        }),
        "double" | "date-time" => true,
        unknown => panic!("there is no format {unknown}"),
    }
}

/// The one CEL rule that there is.
fn rules_hold(rules: &Value, value: &Value) -> bool {
    assert_eq!(rules[0]["rule"], "self.all(port, 0 < int(port) && int(port) <= 65535)", "an unknown rule");
    let port = |key: &String| key.parse::<u32>().is_ok_and(|port| (1..=65_535).contains(&port));
    value.as_object().is_none_or(|fields| fields.keys().all(port))
}

/// What an API server would not take about a schema: where it is not structural.
pub(crate) fn not_structural(schema: &Value, at: &str, wrong: &mut Vec<String>) {
    let fields = schema.as_object().expect("a schema is an object");
    let has = |name: &str| fields.contains_key(name);
    let keeps = schema["x-kubernetes-preserve-unknown-fields"] == true;
    if !has("type") && !keeps && !has("x-kubernetes-int-or-string") {
        wrong.push(format!("{at}: has no type"));
    }
    if has("properties") && has("additionalProperties") {
        wrong.push(format!("{at}: properties beside additionalProperties"));
    }
    if (has("properties") || has("additionalProperties")) && schema["type"] != "object" {
        wrong.push(format!("{at}: fields of what is no object"));
    }
    if has("items") != (schema["type"] == "array") {
        wrong.push(format!("{at}: items and type array go together"));
    }
    if let Some(keys) = schema["x-kubernetes-list-map-keys"].as_array() {
        let required: BTreeSet<_> = strings(&schema["items"]["required"]).into_iter().collect();
        for key in keys.iter().filter_map(Value::as_str).filter(|key| !required.contains(key)) {
            wrong.push(format!("{at}: the key {key} of a list is not required"));
        }
    }
    for name in strings(&schema["required"]) {
        if schema["properties"].get(name).is_none() {
            wrong.push(format!("{at}: {name} is required and is no field"));
        }
    }
    for junctor in ["not", "anyOf", "allOf", "oneOf"] {
        only_rules(&schema[junctor], &format!("{at}.{junctor}"), wrong);
    }
    let empty = Map::new();
    for (name, inner) in schema["properties"].as_object().unwrap_or(&empty) {
        not_structural(inner, &format!("{at}.{name}"), wrong);
    }
    for inner in ["items", "additionalProperties"] {
        if let Some(schema) = schema.get(inner) {
            not_structural(schema, &format!("{at}.{inner}"), wrong);
        }
    }
}

/// Below a junctor there are rules for values only, no types and no new fields.
fn only_rules(value: &Value, at: &str, wrong: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, inner) in fields {
                if matches!(name.as_str(), "type" | "description" | "additionalProperties" | "nullable") {
                    wrong.push(format!("{at}: {name} below a junctor"));
                }
                only_rules(inner, at, wrong);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| only_rules(item, at, wrong)),
        _ => {}
    }
}

fn strings(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}
