//! Durations as Go's `time.ParseDuration` reads them, in flags, registry options and Istio's objects:
//! `100ms`, `1.5s`, `1h30m`. They are never negative.

use std::fmt;
use std::time::Duration;

/// Reason why a text is not a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DurationError {
    /// It has another form.
    Syntax,
    Negative,
    /// It is zero, where that has no meaning.
    Zero,
    /// It is longer than 292 years.
    TooLong,
}

impl fmt::Display for DurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Syntax => "not a duration: write 500ms, 10s, 1m30s or 1h",
            Self::Negative => "a negative duration",
            Self::Zero => "not above zero",
            Self::TooLong => "longer than 292 years",
        })
    }
}

impl std::error::Error for DurationError {}

/// Parses numbers with the units `h`, `m`, `s`, `ms`, `us` and `ns`, without spaces. `0` needs no unit.
///
/// # Errors
/// If the text has another form, is negative, or too long.
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    if text.starts_with('-') {
        return Err(DurationError::Negative);
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(DurationError::Syntax);
    }
    let mut nanos: u128 = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or(DurationError::Syntax)?;
        let (number, after) = rest.split_at(end);
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        nanos = nanos.saturating_add(nanoseconds(number, unit).ok_or(DurationError::Syntax)?);
        rest = after;
    }
    // Envoy holds durations as nanoseconds in a signed 64-bit integer.
    if nanos > 9_223_372_036 * 1_000_000_000 {
        return Err(DurationError::TooLong);
    }
    let seconds = u64::try_from(nanos / 1_000_000_000).map_err(|_| DurationError::TooLong)?;
    let rest = u32::try_from(nanos % 1_000_000_000).map_err(|_| DurationError::TooLong)?;
    Ok(Duration::new(seconds, rest))
}

/// Parses a duration above zero, such as an interval.
///
/// # Errors
/// If the text is no duration, or zero.
pub fn parse_above_zero(text: &str) -> Result<Duration, DurationError> {
    let duration = parse(text)?;
    if duration.is_zero() { Err(DurationError::Zero) } else { Ok(duration) }
}

/// `number` (digits, perhaps with one dot) of `unit` in nanoseconds; digits below a nanosecond are dropped.
fn nanoseconds(number: &str, unit: &str) -> Option<u128> {
    let scale: u128 = match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let mut nanos = if whole.is_empty() { 0 } else { u128::from(whole.parse::<u64>().ok()?) * scale };
    let mut part = scale;
    for digit in fraction.bytes() {
        part /= 10;
        nanos += u128::from(digit.checked_sub(b'0')?) * part;
    }
    Some(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        for (text, micros) in [
            ("500ms", 500_000),
            ("10s", 10_000_000),
            ("1.5s", 1_500_000),
            (".5s", 500_000),
            ("5.s", 5_000_000),
            ("2m", 120_000_000),
            ("1m30s", 90_000_000),
            ("1h2m3.5s", 3_723_500_000),
            ("+1s", 1_000_000),
            ("100us", 100),
            ("100\u{b5}s", 100),
            ("100\u{3bc}s", 100),
            ("0", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_micros(micros)), "{text}");
        }
        assert_eq!(parse("5ns"), Ok(Duration::from_nanos(5)));
        assert!(parse("2562047h").is_ok());
    }

    #[test]
    fn mistakes_are_told_apart() {
        for text in ["", "+", "10", "s", ".s", "..s", "10 s", "1s ", "1d", "1e9s", "1m30", "1.2.3s"] {
            assert_eq!(parse(text), Err(DurationError::Syntax), "{text:?}");
        }
        assert_eq!(parse("-1s"), Err(DurationError::Negative));
        assert_eq!(parse("300000000000h"), Err(DurationError::TooLong));
        assert_eq!(parse("2562048h"), Err(DurationError::TooLong));
        assert_eq!(parse_above_zero("0s"), Err(DurationError::Zero));
        assert_eq!(parse_above_zero("1ns"), Ok(Duration::from_nanos(1)));
    }
}
