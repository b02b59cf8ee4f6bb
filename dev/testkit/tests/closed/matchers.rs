//! Envoy's matchers of texts, headers, addresses, paths and metadata, read from their JSON. What is not known
//! here fails the test.

use crate::call::Request;
use regex::Regex;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// What filters have found out about a request: by filter, then by key.
pub(crate) type Metadata = BTreeMap<String, Value>;

/// The one field that is set of a oneof, its name first.
pub(crate) fn only(value: &Value) -> (&str, &Value) {
    let fields = value.as_object().expect("an object");
    assert_eq!(fields.len(), 1, "one field: {value}");
    fields.iter().next().map(|(name, value)| (name.as_str(), value)).expect("a field")
}

pub(crate) fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}

pub(crate) fn items<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value[field].as_array().into_iter().flatten()
}

/// A StringMatcher.
pub(crate) fn string(matcher: &Value, text: &str) -> bool {
    let ignore_case = matcher["ignore_case"].as_bool().unwrap_or(false);
    let lower = |text: &str| if ignore_case { text.to_lowercase() } else { text.to_owned() };
    let fields = matcher.as_object().expect("a matcher");
    let (kind, pattern) = fields.iter().find(|(name, _)| *name != "ignore_case").expect("a pattern");
    let written = |pattern: &Value| lower(pattern.as_str().expect("a text"));
    match kind.as_str() {
        "exact" => lower(text) == written(pattern),
        "prefix" => lower(text).starts_with(&written(pattern)),
        "suffix" => lower(text).ends_with(&written(pattern)),
        "contains" => lower(text).contains(&written(pattern)),
        "safe_regex" => whole(pattern["regex"].as_str().expect("an expression"), text),
        other => panic!("no matcher {other} is known"),
    }
}

/// Whether an expression takes a text as a whole. The same few expressions are asked about very many texts.
fn whole(expression: &str, text: &str) -> bool {
    thread_local!(static KNOWN: RefCell<BTreeMap<String, Regex>> = RefCell::default());
    KNOWN.with_borrow_mut(|known| {
        let new = || Regex::new(&format!("^(?:{expression})$")).expect("an expression that Envoy takes");
        known.entry(expression.to_owned()).or_insert_with(new).is_match(text)
    })
}

/// A HeaderMatcher.
pub(crate) fn header(matcher: &Value, request: &Request) -> bool {
    let found = request.header(matcher["name"].as_str().expect("a name"));
    let matches = match (&matcher["present_match"], &matcher["string_match"]) {
        (Value::Bool(present), _) => found.is_some() == *present,
        (_, pattern @ Value::Object(_)) => found.is_some_and(|found| string(pattern, found)),
        _ => panic!("a header matcher that is not known: {matcher}"),
    };
    matches != matcher["invert_match"].as_bool().unwrap_or(false)
}

/// A CidrRange.
pub(crate) fn range(range: &Value, address: IpAddr) -> bool {
    let start: IpAddr = range["address_prefix"].as_str().expect("an address").parse().expect("an address");
    let length = range["prefix_len"].as_u64().unwrap_or(0);
    let bits = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => (u128::from(u32::from(ip)) << 96, 32),
        IpAddr::V6(ip) => (u128::from(ip), 128),
    };
    let ((start, width), (address, other)) = (bits(start), bits(address));
    let mask = if length == 0 { 0 } else { u128::MAX << (128 - length) };
    width == other && start & mask == address & mask
}

/// A path template: `*` for one element, `**` for any number.
pub(crate) fn template(template: &str, path: &str) -> bool {
    let element = |element: &str| match element {
        "*" => "[^/]+".to_owned(),
        "**" => ".*".to_owned(),
        text => regex::escape(text),
    };
    whole(&template.split('/').map(element).collect::<Vec<_>>().join("/"), path)
}

/// A MetadataMatcher.
pub(crate) fn metadata(matcher: &Value, metadata: &Metadata) -> bool {
    let mut found = metadata.get(matcher["filter"].as_str().expect("a filter"));
    for segment in items(matcher, "path") {
        found = found.and_then(|value| value.get(segment["key"].as_str().expect("a key")));
    }
    found.is_some_and(|found| value(&matcher["value"], found))
}

fn value(matcher: &Value, found: &Value) -> bool {
    match only(matcher) {
        ("string_match", pattern) => found.as_str().is_some_and(|text| string(pattern, text)),
        ("or_match", or) => items(or, "value_matchers").any(|one| value(one, found)),
        ("list_match", list) => {
            found.as_array().is_some_and(|all| all.iter().any(|item| value(&list["one_of"], item)))
        }
        (other, _) => panic!("no matcher {other} is known"),
    }
}
