//! Rules of scalar values (numbers, strings, durations, enums) and of the number of elements.

use super::{is_set, part};
use prost_reflect::{DynamicMessage, Kind, Value};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

type Check = Result<(), String>;
/// Comparison of a value with a limit.
type Holds = fn(f64, f64) -> bool;

/// Checks the number of elements in a list or map.
pub(super) fn count(count: usize, rules: &DynamicMessage) -> Check {
    for (kind, least, most) in [("repeated", "min_items", "max_items"), ("map", "min_pairs", "max_pairs")] {
        let Some(of_kind) = part(rules, kind) else { continue };
        let Some(of_kind) = of_kind.as_message() else { continue };
        if count == 0 && is_set(of_kind, "ignore_empty") {
            return Ok(());
        }
        bounds(count, of_kind, least, most, "elements")?;
    }
    Ok(())
}

/// Checks a value by `validate.FieldRules`.
pub(super) fn value(kind: &Kind, value: &Value, rules: &DynamicMessage) -> Check {
    for (field, of_kind) in rules.fields() {
        let Some(of_kind) = of_kind.as_message() else { continue };
        let inner = wrapped(value);
        let value = inner.as_ref().unwrap_or(value);
        match field.name() {
            "string" => value.as_str().map_or(Ok(()), |value| text(value, of_kind))?,
            "bytes" => value
                .as_bytes()
                .map_or(Ok(()), |value| bounds(value.len(), of_kind, "min_len", "max_len", "bytes"))?,
            "enum" => value.as_enum_number().map_or(Ok(()), |value| enumeration(value, kind, of_kind))?,
            "bool" => match part(of_kind, "const") {
                Some(only) if *only != *value => return Err("has a value that is not allowed".to_owned()),
                _ => {}
            },
            "duration" => duration(value, of_kind)?,
            _ => number(value).map_or(Ok(()), |value| range(value, of_kind, &|limit| number(limit), ""))?,
        }
    }
    Ok(())
}

/// Value inside a wrapper message (`UInt32Value`).
fn wrapped(value: &Value) -> Option<Value> {
    let message = value.as_message()?;
    let name = prost_reflect::ReflectMessage::descriptor(message).full_name().to_owned();
    let is_wrapper =
        name.starts_with("google.protobuf.") && name.ends_with("Value") && name != "google.protobuf.Value";
    is_wrapper.then(|| message.get_field_by_name("value").map(|value| value.into_owned()))?
}

/// Number of any type; integers are exact below 2^53, and no limit is larger.
#[allow(clippy::cast_precision_loss, reason = "limits are far below")]
fn number(value: &Value) -> Option<f64> {
    Some(match value {
        Value::I32(value) => f64::from(*value),
        Value::U32(value) => f64::from(*value),
        Value::I64(value) => *value as f64,
        Value::U64(value) => *value as f64,
        Value::F32(value) => f64::from(*value),
        Value::F64(value) => *value,
        _ => return None,
    })
}

/// Duration in seconds; `None` for other values.
#[allow(clippy::cast_precision_loss, reason = "limits are far below")]
fn seconds(value: &Value) -> Option<f64> {
    let message = value.as_message()?;
    let whole = message.get_field_by_name("seconds")?.as_i64()?;
    let nanos = message.get_field_by_name("nanos")?.as_i32()?;
    Some(whole as f64 + f64::from(nanos) / 1e9)
}

fn duration(value: &Value, rules: &DynamicMessage) -> Check {
    let Some(value) = seconds(value) else { return Ok(()) };
    if value < 0.0 {
        return Err("must not be below zero".to_owned());
    }
    range(value, rules, &seconds, "s")
}

fn range(value: f64, rules: &DynamicMessage, read: &dyn Fn(&Value) -> Option<f64>, unit: &str) -> Check {
    if value == 0.0 && is_set(rules, "ignore_empty") {
        return Ok(());
    }
    let limit = |name: &str| part(rules, name).and_then(|limit| read(&limit));
    let tests: [(&str, &str, Holds); 5] = [
        ("gt", "greater than", |value, limit| value > limit),
        ("gte", "at least", |value, limit| value >= limit),
        ("lt", "less than", |value, limit| value < limit),
        ("lte", "at most", |value, limit| value <= limit),
        ("const", "equal to", |value, limit| (value - limit).abs() < f64::EPSILON),
    ];
    for (name, words, holds) in tests {
        if let Some(limit) = limit(name).filter(|limit| !holds(value, *limit)) {
            return Err(format!("must be {words} {limit}{unit}"));
        }
    }
    let lists = |name: &str| {
        part(rules, name).and_then(|list| list.as_list().map(<[Value]>::to_vec)).unwrap_or_default()
    };
    let is_in =
        |list: &[Value]| list.iter().filter_map(read).any(|other| (value - other).abs() < f64::EPSILON);
    let (allowed, forbidden) = (lists("in"), lists("not_in"));
    if !allowed.is_empty() && !is_in(&allowed) || is_in(&forbidden) {
        return Err("has a value that is not allowed".to_owned());
    }
    Ok(())
}

fn enumeration(value: i32, kind: &Kind, rules: &DynamicMessage) -> Check {
    let is_known = kind.as_enum().is_none_or(|of| of.get_value(value).is_some());
    let list = |name: &str| -> Vec<i32> {
        let list =
            part(rules, name).and_then(|list| list.as_list().map(<[Value]>::to_vec)).unwrap_or_default();
        list.iter().filter_map(Value::as_i32).collect()
    };
    let (allowed, forbidden) = (list("in"), list("not_in"));
    let bad = is_set(rules, "defined_only") && !is_known
        || !allowed.is_empty() && !allowed.contains(&value)
        || forbidden.contains(&value)
        || part(rules, "const").and_then(|only| only.as_i32()).is_some_and(|only| only != value);
    if bad { Err("has a value that is not allowed".to_owned()) } else { Ok(()) }
}

fn bounds(count: usize, rules: &DynamicMessage, least: &str, most: &str, unit: &str) -> Check {
    let limit = |name: &str| {
        part(rules, name).and_then(|limit| limit.as_u64()).and_then(|limit| usize::try_from(limit).ok())
    };
    match (limit(least), limit(most)) {
        (Some(least), _) if count < least => Err(format!("must have at least {least} {unit}")),
        (_, Some(most)) if count > most => Err(format!("must have at most {most} {unit}")),
        _ => Ok(()),
    }
}

fn text(value: &str, rules: &DynamicMessage) -> Check {
    if value.is_empty() && is_set(rules, "ignore_empty") {
        return Ok(());
    }
    bounds(value.chars().count(), rules, "min_len", "max_len", "characters")?;
    bounds(value.len(), rules, "min_bytes", "max_bytes", "bytes")?;
    let holds = |name: &str, test: fn(&str, &str) -> bool| {
        part(rules, name).is_none_or(|other| other.as_str().is_none_or(|other| test(value, other)))
    };
    let list = |name: &str| -> Option<bool> {
        let list = part(rules, name)?;
        let list = list.as_list()?;
        (!list.is_empty()).then(|| list.iter().any(|other| other.as_str() == Some(value)))
    };
    let is_good = holds("const", |value, only| value == only)
        && holds("prefix", |value, prefix| value.starts_with(prefix))
        && holds("suffix", |value, suffix| value.ends_with(suffix))
        && holds("contains", |value, inside| value.contains(inside))
        && holds("not_contains", |value, inside| !value.contains(inside))
        && list("in") != Some(false)
        && list("not_in") != Some(true);
    if !is_good {
        return Err("has a value that is not allowed".to_owned());
    }
    let is_address = (!is_set(rules, "ip") || value.parse::<IpAddr>().is_ok())
        && (!is_set(rules, "ipv4") || value.parse::<Ipv4Addr>().is_ok())
        && (!is_set(rules, "ipv6") || value.parse::<Ipv6Addr>().is_ok());
    if !is_address {
        return Err("must be an IP address".to_owned());
    }
    header(value, rules)
}

/// Checks `well_known_regex`: header names (1) and values (2). Unless the rule is strict, only line breaks
/// are refused.
fn header(value: &str, rules: &DynamicMessage) -> Check {
    let Some(kind) = part(rules, "well_known_regex").and_then(|kind| kind.as_enum_number()) else {
        return Ok(());
    };
    let strict = part(rules, "strict").and_then(|strict| strict.as_bool()).unwrap_or(true);
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_|~`".contains(c);
    let is_good = match (kind, strict) {
        (1, true) => {
            let name = value.strip_prefix(':').unwrap_or(value);
            !name.is_empty() && name.chars().all(is_token)
        }
        (2, true) => value.chars().all(|c| c == '\t' || !c.is_control()),
        (1, false) => !value.is_empty() && !value.contains(['\0', '\r', '\n']),
        _ => !value.contains(['\0', '\r', '\n']),
    };
    if is_good { Ok(()) } else { Err("has characters that no header may have".to_owned()) }
}
