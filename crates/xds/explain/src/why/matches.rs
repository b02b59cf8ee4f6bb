//! Envoy's matching of routes with requests.

use super::{Way, list, number, text};
use regex::Regex;
use serde_json::Value;

/// Matches a request with a route's match; an error has the reason of a mismatch.
pub(super) fn of_route(wanted: &Value, way: &Way) -> Result<(), String> {
    path(wanted, way)?;
    for header in list(wanted, "/headers") {
        self::header(header, way)?;
    }
    for parameter in list(wanted, "/query_parameters") {
        let name = text(parameter, "/name");
        let value = way.request.parameter(name);
        let matches = match parameter.get("string_match") {
            Some(wanted) => value.is_some_and(|value| string(wanted, value)),
            None => value.is_some(),
        };
        if !matches {
            return Err(format!("the query parameter {name} does not match {}", shown(parameter)));
        }
    }
    let fraction = wanted.pointer("/runtime_fraction/default_value");
    if fraction.is_some_and(|fraction| number(fraction, "/numerator") == 0) {
        return Err("it is for none of the requests (runtime_fraction)".to_owned());
    }
    if wanted.get("dynamic_metadata").is_some() {
        return Err("it depends on metadata of other filters".to_owned());
    }
    Ok(())
}

fn path(wanted: &Value, way: &Way) -> Result<(), String> {
    let path = way.request.path_only();
    let ignores_case = wanted.get("case_sensitive").and_then(Value::as_bool) == Some(false);
    let folded = |text: &str| if ignores_case { text.to_ascii_lowercase() } else { text.to_owned() };
    let own = folded(path);
    let (matches, what) = if let Some(prefix) = wanted.get("prefix").and_then(Value::as_str) {
        (own.starts_with(&folded(prefix)), format!("prefix {prefix}"))
    } else if let Some(exact) = wanted.get("path").and_then(Value::as_str) {
        (own == folded(exact), format!("path {exact}"))
    } else if let Some(prefix) = wanted.get("path_separated_prefix").and_then(Value::as_str) {
        let rest = own.strip_prefix(&folded(prefix));
        (rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')), format!("prefix {prefix}"))
    } else if let Some(regex) = wanted.get("safe_regex") {
        let regex = text(regex, "/regex");
        (whole(regex, path), format!("regex {regex}"))
    } else if wanted.get("connect_matcher").is_some() {
        (way.request.method == "CONNECT", "CONNECT".to_owned())
    } else {
        (true, String::new())
    };
    if matches { Ok(()) } else { Err(format!("its {what} does not match the path {path}")) }
}

/// Matches a header with a `HeaderMatcher`; an error has the reason of a mismatch.
pub(super) fn header(wanted: &Value, way: &Way) -> Result<(), String> {
    let name = text(wanted, "/name").to_ascii_lowercase();
    let authority = way.authority();
    let value = match name.as_str() {
        ":method" => Some(way.request.method.as_str()),
        ":path" => Some(way.request.path.as_str()),
        ":authority" => Some(authority.as_str()),
        ":scheme" => Some(way.scheme()),
        _ => way.request.headers.iter().find(|(own, _)| *own == name).map(|(_, value)| value.as_str()),
    };
    let matches = if let Some(present) = wanted.get("present_match").and_then(Value::as_bool) {
        value.is_some() == present
    } else if let Some(wanted) = wanted.get("string_match") {
        value.is_some_and(|value| string(wanted, value))
    } else if let Some(regex) = wanted.get("safe_regex_match") {
        value.is_some_and(|value| whole(text(regex, "/regex"), value))
    } else if let Some(exact) = wanted.get("exact_match").and_then(Value::as_str) {
        value == Some(exact)
    } else if let Some(range) = wanted.get("range_match") {
        let number = value.and_then(|value| value.parse::<i64>().ok());
        let bound = |name: &str| range.get(name).and_then(Value::as_i64).unwrap_or_default();
        number.is_some_and(|number| (bound("start")..bound("end")).contains(&number))
    } else {
        value.is_some()
    };
    let inverted = wanted.get("invert_match").and_then(Value::as_bool).unwrap_or_default();
    if matches != inverted {
        return Ok(());
    }
    let own = value.map_or_else(|| "is not there".to_owned(), |value| format!("is {value:?}"));
    Err(format!("its header {name} is to match {}, and {own}", shown(wanted)))
}

/// Readable form of a matcher.
pub(super) fn shown(wanted: &Value) -> String {
    let not = wanted.get("invert_match").and_then(Value::as_bool).unwrap_or_default();
    let inner = wanted.get("string_match").unwrap_or(wanted);
    let text = ["exact", "prefix", "suffix", "contains"]
        .iter()
        .find_map(|kind| Some(format!("{kind} {:?}", inner.get(*kind)?.as_str()?)))
        .or_else(|| Some(format!("regex {:?}", inner.pointer("/safe_regex/regex")?.as_str()?)))
        .unwrap_or_else(|| "anything".to_owned());
    if not { format!("not {text}") } else { text }
}

/// Matches a value with a `StringMatcher`.
pub(super) fn string(wanted: &Value, value: &str) -> bool {
    let ignores_case = wanted.get("ignore_case").and_then(Value::as_bool).unwrap_or_default();
    let folded = |text: &str| if ignores_case { text.to_ascii_lowercase() } else { text.to_owned() };
    let own = folded(value);
    let of = |kind: &str| wanted.get(kind).and_then(Value::as_str).map(folded);
    if let Some(exact) = of("exact") {
        own == exact
    } else if let Some(prefix) = of("prefix") {
        own.starts_with(&prefix)
    } else if let Some(suffix) = of("suffix") {
        own.ends_with(&suffix)
    } else if let Some(part) = of("contains") {
        own.contains(&part)
    } else {
        whole(text(wanted, "/safe_regex/regex"), value)
    }
}

/// True if the whole text matches, as with RE2 in Envoy.
fn whole(regex: &str, value: &str) -> bool {
    Regex::new(&format!("^(?:{regex})$")).is_ok_and(|regex| regex.is_match(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::why::Request;
    use serde_json::json;

    fn way(path: &str, headers: &[&str]) -> Way {
        let headers: Vec<String> = headers.iter().map(|&header| header.to_owned()).collect();
        let request = Request::parse("web", path, "GET", &headers).unwrap();
        Way { request, port: 80, ..Way::default() }
    }

    #[test]
    fn paths_match_as_in_envoy() {
        for (wanted, path, matches) in [
            (json!({"prefix": "/a"}), "/ab?x", true),
            (json!({"path_separated_prefix": "/a"}), "/ab", false),
            (json!({"path_separated_prefix": "/a"}), "/a/b", true),
            (json!({"path": "/a"}), "/a?x=1", true),
            (json!({"path": "/A", "case_sensitive": false}), "/a", true),
            (json!({"path": "/A"}), "/a", false),
            (json!({"safe_regex": {"regex": "/a.*"}}), "/abc", true),
            (json!({"safe_regex": {"regex": "/a"}}), "/abc", false),
            (json!({"connect_matcher": {}}), "/", false),
        ] {
            assert_eq!(of_route(&wanted, &way(path, &[])).is_ok(), matches, "{wanted} {path}");
        }
    }

    #[test]
    fn headers_and_parameters_match_as_in_envoy() {
        for (header, given, matches) in [
            (json!({"name": "x", "string_match": {"exact": "a"}}), "x=a", true),
            (json!({"name": "x", "string_match": {"exact": "a"}}), "x=b", false),
            (json!({"name": "x", "string_match": {"exact": "a"}, "invert_match": true}), "y=1", true),
            (json!({"name": "x", "present_match": true}), "y=1", false),
            (json!({"name": ":method", "string_match": {"exact": "GET"}}), "y=1", true),
            (json!({"name": "x", "string_match": {"safe_regex": {"regex": "a+"}}}), "x=aa", true),
            (json!({"name": "x", "range_match": {"start": "1", "end": "3"}}), "x=b", false),
        ] {
            let wanted = json!({"prefix": "/", "headers": [header]});
            assert_eq!(of_route(&wanted, &way("/", &[given])).is_ok(), matches, "{wanted} {given}");
        }
        let wanted =
            json!({"prefix": "/", "query_parameters": [{"name": "v", "string_match": {"exact": "2"}}]});
        assert!(of_route(&wanted, &way("/?v=2", &[])).is_ok());
        let why = of_route(&wanted, &way("/?v=3", &[])).unwrap_err();
        assert_eq!(why, "the query parameter v does not match exact \"2\"");
    }
}
