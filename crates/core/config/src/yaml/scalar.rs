//! Type of a scalar without quotes, as Kubernetes' tools read it (YAML 1.1, without base 60).

/// A scalar by type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scalar {
    Null,
    Bool(bool),
    Int(i64),
    /// An integer above the range of `Int`.
    Uint(u64),
    Float(f64),
    Text,
}

/// Returns the type and the value of a scalar without quotes.
pub(crate) fn resolve(text: &str) -> Scalar {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Scalar::Null,
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => return Scalar::Bool(true),
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => {
            return Scalar::Bool(false);
        }
        ".nan" | ".NaN" | ".NAN" => return Scalar::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Scalar::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Scalar::Float(f64::NEG_INFINITY),
        _ => {}
    }
    // For most texts, the first character excludes a number.
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        return Scalar::Text;
    }
    integer(text).or_else(|| float(text)).unwrap_or(Scalar::Text)
}

fn integer(text: &str) -> Option<Scalar> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let radix = |prefix: &str, radix| digits.strip_prefix(prefix).map(|rest| (rest, radix));
    let (digits, radix) = radix("0x", 16)
        .or_else(|| radix("0o", 8))
        .or_else(|| radix("0b", 2))
        .or_else(|| (digits.len() > 1).then(|| radix("0", 8)).flatten())
        .unwrap_or((digits, 10));
    if digits.is_empty() || !digits.bytes().all(|c| c.is_ascii_alphanumeric()) {
        return None;
    }
    let value = u64::from_str_radix(digits, radix).ok()?;
    if negative {
        return 0_i64.checked_sub_unsigned(value).map(Scalar::Int);
    }
    Some(i64::try_from(value).map_or(Scalar::Uint(value), Scalar::Int))
}

fn float(text: &str) -> Option<Scalar> {
    // Rust reads more than YAML does (`inf`, `nan`), but such text has letters other than `e`.
    let known = |c: u8| c.is_ascii_digit() || matches!(c, b'+' | b'-' | b'.' | b'e' | b'E');
    if !text.bytes().all(known) || !text.bytes().any(|c| c.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().map(Scalar::Float)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_have_the_types_that_kubernetes_gives_them() {
        let cases = [
            ("", Scalar::Null),
            ("~", Scalar::Null),
            ("true", Scalar::Bool(true)),
            ("off", Scalar::Bool(false)),
            ("y", Scalar::Text),
            ("0", Scalar::Int(0)),
            ("-5", Scalar::Int(-5)),
            ("+5", Scalar::Int(5)),
            ("010", Scalar::Int(8)),
            ("089", Scalar::Float(89.0)),
            ("0x1F", Scalar::Int(31)),
            ("18446744073709551615", Scalar::Uint(u64::MAX)),
            ("-9223372036854775808", Scalar::Int(i64::MIN)),
            ("1.10", Scalar::Float(1.1)),
            ("1e3", Scalar::Float(1000.0)),
            (".5", Scalar::Float(0.5)),
            ("-", Scalar::Text),
            (".", Scalar::Text),
            ("1.2.3.4", Scalar::Text),
            ("5s", Scalar::Text),
            ("2024-01-01", Scalar::Text),
            ("::1", Scalar::Text),
            ("-inf", Scalar::Text),
        ];
        for (text, want) in cases {
            assert_eq!(resolve(text), want, "{text}");
        }
    }
}
