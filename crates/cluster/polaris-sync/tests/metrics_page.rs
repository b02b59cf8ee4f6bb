//! docs/metrics.md has every metric of the sync, and no other.
#![allow(clippy::unwrap_used, reason = "a test fails this way")]

use pilotfish_polaris_sync::SyncMetrics;
use std::collections::BTreeSet;

const PAGE: &str = include_str!("../../../../docs/metrics.md");

#[test]
fn every_metric_has_a_row_and_every_row_a_metric() {
    let section = PAGE.split("## `pilotfish sync polaris`").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let rows: BTreeSet<String> = rows.map(str::to_owned).collect();
    assert_eq!(rows, SyncMetrics::new().unwrap().names());
}
