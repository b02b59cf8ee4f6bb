//! Durations of flags, and ages in output.

use std::time::Duration;

/// Parses `500ms`, `10s`, `1m30s` or `1h`: the durations of `serve` and of Istio's objects (Go's
/// `time.ParseDuration`).
///
/// # Errors
/// Description of the syntax error.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration: write 500ms, 10s, 1m30s or 1h");
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    let mut seconds = 0.0;
    loop {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
        let (number, after) = rest.split_at(end);
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let number: f64 = number.parse().map_err(|_| wrong())?;
        seconds += number * seconds_of(unit).ok_or_else(wrong)?;
        rest = after;
        if rest.is_empty() {
            // Maximum of the other parser: 292 years.
            let duration = Duration::try_from_secs_f64(seconds).map_err(|_| wrong())?;
            return if duration.as_secs() <= 9_223_372_036 { Ok(duration) } else { Err(wrong()) };
        }
    }
}

fn seconds_of(unit: &str) -> Option<f64> {
    Some(match unit {
        "ns" => 1e-9,
        "us" | "µs" | "μs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        _ => return None,
    })
}

/// Rounded duration: `0.3 s`, `12 s`, `5 min`, `3 h`, `2 d`.
pub(crate) fn about(seconds: f64) -> String {
    let whole = |value: f64, unit: &str| format!("{value:.0} {unit}");
    match seconds {
        s if s < 10.0 => format!("{s:.1} s"),
        s if s < 120.0 => whole(s, "s"),
        s if s < 7_200.0 => whole(s / 60.0, "min"),
        s if s < 172_800.0 => whole(s / 3_600.0, "h"),
        s => whole(s / 86_400.0, "d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        for (text, millis) in [
            ("500ms", 500),
            ("10s", 10_000),
            ("1.5s", 1_500),
            ("2m", 120_000),
            ("1m30s", 90_000),
            ("1h", 3_600_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "10", "s", "10 s", "-1s", "1d", "1e9s", "..s", "1m30", "300000000000h"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ages_are_short() {
        let ages = [0.31, 12.0, 300.0, 10_000.0, 200_000.0].map(about);
        assert_eq!(ages, ["0.3 s", "12 s", "5 min", "3 h", "2 d"]);
    }
}
