//! Percentiles of durations.

use std::time::Duration;

/// Quantile of values for `share` from 0 to 1; zero without values.
#[must_use]
pub fn percentile(values: &[Duration], share: f64) -> Duration {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    // Nearest rank; the product is far below 2^52.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    let rank = ((sorted.len().saturating_sub(1)) as f64 * share.clamp(0.0, 1.0)).round() as usize;
    sorted.get(rank).copied().unwrap_or_default()
}

/// Converts to milliseconds, for tables.
#[must_use]
pub fn milliseconds(value: Duration) -> f64 {
    value.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_sorted_values() {
        let values: Vec<Duration> = [5, 1, 4, 2, 3].map(Duration::from_millis).to_vec();
        assert_eq!(percentile(&values, 0.5), Duration::from_millis(3));
        assert_eq!(percentile(&values, 0.99), Duration::from_millis(5));
        assert_eq!(percentile(&[], 0.5), Duration::ZERO);
    }
}
