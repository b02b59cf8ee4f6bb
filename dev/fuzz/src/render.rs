//! Renders values as JSON and as YAML, both in ASCII: YAML refuses some characters that JSON allows unescaped
//! (such as U+007F), and accepts all of them escaped.

use serde_json::Value;
use std::fmt::Write;

/// Renders a value as JSON.
pub(crate) fn json(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Array(items) => {
            out.push('[');
            out.push_str(&items.iter().map(json).collect::<Vec<_>>().join(","));
            out.push(']');
        }
        Value::Object(fields) => {
            let fields =
                fields.iter().map(|(name, value)| format!("{}:{}", quoted(name, false), json(value)));
            out.push('{');
            out.push_str(&fields.collect::<Vec<_>>().join(","));
            out.push('}');
        }
        Value::String(text) => out = quoted(text, false),
        scalar => out = scalar.to_string(),
    }
    out
}

/// Renders a value as YAML in block style.
pub(crate) fn yaml(value: &Value) -> String {
    let mut out = String::new();
    block(value, 0, &mut out);
    out
}

/// Writes a value that begins on its own line.
fn block(value: &Value, indent: usize, out: &mut String) {
    let line = " ".repeat(indent);
    match value {
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                let _ = write!(out, "{line}-");
                inner(item, indent, out);
            }
        }
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                let _ = write!(out, "{line}{}:", quoted(name, true));
                inner(value, indent, out);
            }
        }
        value => {
            let _ = writeln!(out, "{line}{}", scalar(value));
        }
    }
}

/// Writes a value after a `-` or a key.
fn inner(value: &Value, indent: usize, out: &mut String) {
    let is_block = match value {
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        _ => false,
    };
    if is_block {
        out.push('\n');
        block(value, indent + 1, out);
    } else {
        let _ = writeln!(out, " {}", scalar(value));
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text, true),
        Value::Array(_) => "[]".to_owned(),
        Value::Object(_) => "{}".to_owned(),
        other => other.to_string(),
    }
}

/// Quotes a text. YAML has one escape for characters that JSON writes as two.
fn quoted(text: &str, is_yaml: bool) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            ' '..='~' => out.push(c),
            c if is_yaml => {
                let _ = write!(out, "\\U{:08x}", u32::from(c));
            }
            c => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json as value;

    #[test]
    fn what_is_written_is_read_again() {
        let written =
            value!({"a": [{"b": [], "c\u{7f}": "\u{1f600}\n\"\\"}, [1, [true, null]], {}], "": -7, "d": 1.5});
        assert_eq!(serde_json::from_str::<Value>(&json(&written)).ok(), Some(written.clone()));
        let text = yaml(&written);
        assert!(
            text.is_ascii() && text.contains("\"c\\U0000007f\": \"\\U0001f600\\U0000000a\\\"\\\\\"\n"),
            "{text}"
        );
        assert!(text.contains("\"a\":\n -\n  \"b\": []\n"), "{text}");
    }
}
