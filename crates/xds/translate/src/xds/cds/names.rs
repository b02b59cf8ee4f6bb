//! Names of clusters in statistics.

/// Separator between the cluster's name and the rest of a statistic's name, so that Envoy does not split the
/// name at its dots.
const STATISTICS_END: char = ';';

/// The name in statistics.
pub(super) fn stat_name(name: &str) -> String {
    format!("{name}{STATISTICS_END}")
}
