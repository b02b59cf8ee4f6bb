//! Durations of flags, and ages in output.

use std::time::Duration;

/// Parses a duration of a flag: `500ms`, `10s`, `1m30s` or `1h`.
///
/// # Errors
/// Description of the mistake.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    pilotfish_duration::parse(text).map_err(|error| format!("{text:?} is {error}"))
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
    fn ages_are_short() {
        let ages = [0.31, 12.0, 300.0, 10_000.0, 200_000.0].map(about);
        assert_eq!(ages, ["0.3 s", "12 s", "5 min", "3 h", "2 d"]);
    }
}
