//! Names of clusters in statistics.

/// What stands between a cluster's name and the rest of a statistic's name, so that dots in the name do no harm.
const STATISTICS_END: char = ';';

/// The name in statistics.
pub(super) fn stat_name(name: &str) -> String {
    format!("{name}{STATISTICS_END}")
}
