//! Values that many kinds have: durations, shares, HTTP headers, matches on text.

use super::names::quoted;
use super::{format, regex};
use crate::path::Path;
use crate::problem::Checker;
use crate::{Duration, StringMatch};

/// Checks a timeout or interval: whole milliseconds, at least one.
pub(in crate::validate) fn duration(value: Option<Duration>, at: &Path<'_>, checker: &mut Checker) {
    let Some(Duration(value)) = value else { return };
    if value.as_nanos() < 1_000_000 {
        checker.error(at, "must be at least 1ms");
    } else if value.subsec_nanos() % 1_000_000 != 0 {
        checker.warning(at, "has parts of a millisecond, finer than Istio supports");
    }
}

/// Checks a duration where 0 disables a feature.
pub(in crate::validate) fn duration_or_zero(value: Option<Duration>, at: &Path<'_>, checker: &mut Checker) {
    duration(value.filter(|value| *value != Duration::ZERO), at, checker);
}

pub(in crate::validate) fn percent(value: f64, at: &Path<'_>, checker: &mut Checker) {
    if !(0.0..=100.0).contains(&value) {
        checker.error(at, format!("{value} is not a percentage, must be 0 to 100"));
    }
}

/// Checks a percentage that proxies do not round down to zero.
pub(in crate::validate) fn fine_percent(value: f64, at: &Path<'_>, checker: &mut Checker) {
    if value > 0.0 && value < 0.0001 {
        checker.error(at, format!("{value} is not 0 and below 0.0001, the smallest percentage"));
    } else {
        percent(value, at, checker);
    }
}

/// Checks that a number is not negative.
pub(in crate::validate) fn not_negative(value: i32, at: &Path<'_>, checker: &mut Checker) {
    if value < 0 {
        checker.error(at, format!("{value} is negative"));
    }
}

/// Checks the status of a response.
pub(in crate::validate) fn http_status(status: i64, at: &Path<'_>, checker: &mut Checker) {
    if !(200..=599).contains(&status) {
        checker.error(at, format!("{status} is not the status of an answer, 200 to 599"));
    }
}

/// Checks the name of an HTTP header.
pub(in crate::validate) fn header_name(name: &str, at: &Path<'_>, checker: &mut Checker) {
    if name.is_empty() {
        checker.error(at, "the name of a header is empty");
    } else if !is_header_name(name) {
        checker.error(at, format!("{} is not the name of a header", quoted(name)));
    }
}

/// True if the text is an HTTP header name that Istio accepts.
pub(in crate::validate) fn is_header_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_'))
}

/// True if the header holds the host of the request.
pub(in crate::validate) fn is_authority(name: &str) -> bool {
    name.eq_ignore_ascii_case("host") || name.eq_ignore_ascii_case(":authority")
}

/// Checks a header value, with Envoy's `%VARIABLE%` and `%VARIABLE(arguments)%` in it; `%%` is a percent
/// sign.
pub(in crate::validate) fn header_value(value: &str, at: &Path<'_>, checker: &mut Checker) {
    /// Envoy's limit, in bytes.
    const LONGEST: usize = 16_384;
    if value.bytes().any(|c| (c < 0x20 && c != b'\t') || c == 0x7f) {
        checker.error(at, "a header value has no control characters");
    } else if value.len() > LONGEST {
        checker.error(at, format!("a header value has at most {LONGEST} characters"));
    } else if let Some(why) = format_problem(value) {
        checker.error(at, format!("{} is not a header value: {why}", quoted(value)));
    } else if let Some(why) = format::unknown_variable(value, &[]) {
        checker.error(at, format!("{} is not a header value: {why}", quoted(value)));
    }
}

/// Checks a text of an access log. Envoy has `REQ_WITHOUT_QUERY` by an extension that is sent along.
pub(in crate::validate) fn log_format(text: &str, at: &Path<'_>, checker: &mut Checker) {
    if let Some(why) = format::unknown_variable(text, &["REQ_WITHOUT_QUERY", "RESP_WITHOUT_QUERY"]) {
        checker.error(at, format!("{} is not the format of an access log: {why}", quoted(text)));
    }
}

/// Checks the texts of a JSON access log.
pub(in crate::validate) fn log_labels(value: &serde_json::Value, at: &Path<'_>, checker: &mut Checker) {
    use serde_json::Value;
    match value {
        Value::String(text) => log_format(text, at, checker),
        Value::Object(fields) => {
            fields.iter().for_each(|(key, value)| log_labels(value, &at.key(key), checker))
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| log_labels(item, &at.index(index), checker));
        }
        _ => {}
    }
}

/// Checks a text that becomes a header on one line.
pub(in crate::validate) fn one_line(text: &str, at: &Path<'_>, checker: &mut Checker) {
    if text.contains(['\0', '\r', '\n']) {
        checker.error(at, "must not contain line breaks or zero bytes");
    }
}

/// Returns why Envoy cannot parse the value's variables.
fn format_problem(value: &str) -> Option<&'static str> {
    let mut rest = value;
    while let Some((_, after)) = rest.split_once('%') {
        if let Some(after) = after.strip_prefix('%') {
            rest = after;
            continue;
        }
        if after.is_empty() {
            return Some("write %% for a percent sign");
        }
        let end = after.find(['%', '(']);
        let Some((_, tail)) = end.and_then(|end| after.split_at_checked(end)) else {
            return Some("a %VARIABLE% is not closed");
        };
        rest = match tail.strip_prefix('(') {
            None => tail.get(1..).unwrap_or_default(),
            Some(arguments) => match after_arguments(arguments) {
                Ok(rest) => rest,
                Err(why) => return Some(why),
            },
        };
    }
    None
}

/// Returns the text after `arguments)%`. Arguments are plain text, or a list of texts in quotes.
fn after_arguments(arguments: &str) -> Result<&str, &'static str> {
    const OPEN: &str = "a %VARIABLE(...)% is not closed";
    let arguments = arguments.trim_start_matches(' ');
    let after = match arguments.strip_prefix('[') {
        None => after_text(arguments, ')').ok_or(OPEN)?,
        Some(list) => after_list(list)?,
    };
    match after.trim_start_matches(' ') {
        "" => Err(OPEN),
        after => after.strip_prefix('%').ok_or("a % must follow the ) of a variable"),
    }
}

fn after_list(mut list: &str) -> Result<&str, &'static str> {
    const OPEN: &str = "the [ of a variable is not closed";
    loop {
        let text = list.trim_start_matches(' ').strip_prefix('"').ok_or("a [ must be followed by \"...\"")?;
        let after = after_text(text, '"').ok_or(OPEN)?.trim_start_matches(' ');
        if let Some(after) = after.strip_prefix(',') {
            list = after;
            continue;
        }
        let after = after.strip_prefix(']').ok_or(OPEN)?.trim_start_matches(' ');
        return after.strip_prefix(')').ok_or("a ) must follow the ] of a variable");
    }
}

/// Returns the text after the first `end` without a `\` before it.
fn after_text(text: &str, end: char) -> Option<&str> {
    let mut escaped = false;
    for (index, c) in text.char_indices() {
        if !escaped && c == end {
            return text.get(index + c.len_utf8()..);
        }
        escaped = !escaped && c == '\\';
    }
    None
}

/// Checks a regular expression that Envoy will compile.
pub(in crate::validate) fn regular_expression(expression: &str, at: &Path<'_>, checker: &mut Checker) {
    // Envoy bounds the compiled size, which is not known here; Istio bounds the length instead.
    const LONGEST: usize = 1_024;
    if expression.is_empty() {
        checker.error(at, "a regular expression must not be empty");
    } else if expression.len() > LONGEST {
        checker.error(at, format!("a regular expression has at most {LONGEST} characters"));
    } else if let Some(why) = regex::refusal(expression) {
        checker.error(at, format!("{} is not a regular expression of RE2: {why}", quoted(expression)));
    }
}

/// Checks a text match that may be absent.
pub(in crate::validate) fn string_match(value: &StringMatch, at: &Path<'_>, checker: &mut Checker) {
    match value {
        StringMatch::Prefix(prefix) if prefix.is_empty() => {
            checker.error(&at.field("prefix"), "a prefix must not be empty");
        }
        StringMatch::Regex(expression) => regular_expression(expression, &at.field("regex"), checker),
        _ => {}
    }
}

/// Checks a match on a header or query parameter, where the expression `*` matches if it is present.
pub(in crate::validate) fn value_match(value: &StringMatch, at: &Path<'_>, checker: &mut Checker) {
    match value {
        StringMatch::Regex(expression) if expression != "*" => {
            regular_expression(expression, &at.field("regex"), checker);
        }
        _ => {}
    }
}

/// Reports if more than one of the fields is set.
pub(in crate::validate) fn at_most_one(set: &[(&str, bool)], at: &Path<'_>, checker: &mut Checker) {
    let named: Vec<_> = set.iter().filter(|(_, set)| *set).map(|(name, _)| *name).collect();
    if named.len() > 1 {
        checker.error(at, format!("only one of {} may be set", named.join(", ")));
    }
}

/// Warns of fields that have no effect beside an earlier one of the list.
pub(in crate::validate) fn first_counts(fields: &[(&str, bool)], at: &Path<'_>, checker: &mut Checker) {
    let mut set = fields.iter().filter(|(_, set)| *set).map(|(name, _)| *name);
    let Some(first) = set.next() else { return };
    for field in set {
        checker.warning(&at.field(field), format!("has no effect beside {first}"));
    }
}

/// True if the text has at least one PEM block, and the content of each block is base64.
pub(in crate::validate) fn is_pem(text: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(text) else { return false };
    let mut blocks = text.split("-----BEGIN ").skip(1).peekable();
    blocks.peek().is_some()
        && blocks.all(|block| {
            let Some((_, rest)) = block.split_once("-----") else { return false };
            let Some((content, _)) = rest.split_once("-----END ") else { return false };
            let known = |c: u8| c.is_ascii_alphanumeric() || b"+/=\r\n\t :,-".contains(&c);
            !content.trim().is_empty() && content.bytes().all(known)
        })
}

/// Scheme of a URL with a host, in lower case.
pub(in crate::validate) fn url_scheme(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let letters = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'+' | b'-' | b'.');
    let plain = !scheme.is_empty() && scheme.bytes().all(letters);
    let printable = rest.bytes().all(|c| c > 0x20 && c != 0x7f);
    (plain && printable && (!host.is_empty() || scheme == "file")).then(|| scheme.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_values_are_read_as_envoy_does() {
        let good = [
            "",
            "plain",
            "100%%",
            "%HOSTNAME%",
            "a %REQ(X-A)% b %RESP(Y)%",
            "%UPSTREAM_METADATA([\"a\", \"b\"])%",
            "%START_TIME(%s)%",
            "%DYNAMIC_METADATA( [ \"a\" ] )%",
            "%REQ(a\\)b)%",
        ];
        for value in good {
            assert_eq!(format_problem(value), None, "{value}");
        }
        let wrong = [
            ("abc%", "write %% for a percent sign"),
            ("%START_TIME%%", "write %% for a percent sign"),
            ("abc%123", "a %VARIABLE% is not closed"),
            ("%REQ(X", "a %VARIABLE(...)% is not closed"),
            ("%REQ(X)", "a %VARIABLE(...)% is not closed"),
            ("%REQ(X)a%", "a % must follow the ) of a variable"),
            ("%M([a])%", "a [ must be followed by \"...\""),
            ("%M([\"a\")%", "the [ of a variable is not closed"),
            ("%M([\"a\"]x)%", "a ) must follow the ] of a variable"),
        ];
        for (value, expected) in wrong {
            assert_eq!(format_problem(value), Some(expected), "{value}");
        }
    }

    #[test]
    fn urls_have_a_scheme_and_a_host() {
        assert_eq!(url_scheme("https://a.b/c").as_deref(), Some("https"));
        assert_eq!(url_scheme("file:///a").as_deref(), Some("file"));
        for wrong in ["", "a.b/c", "http://", "://a", "http://a b"] {
            assert_eq!(url_scheme(wrong), None, "{wrong}");
        }
    }
}
