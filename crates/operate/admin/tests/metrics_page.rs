//! docs/metrics.md has every metric, and no other.
#![allow(clippy::unwrap_used, reason = "a test fails this way")]

use pilotfish_admin::{MetricDescription, Metrics};
use std::collections::BTreeMap;

const PAGE: &str = include_str!("../../../../docs/metrics.md");
/// The metrics below this are those of `pilotfish sync`, which has a test of its own.
const SYNC: &str = "## `pilotfish sync polaris`";
/// The metrics below this are asked for by others; here are only those of this page.
const ASKED: &str = "## What Istio's dashboards and Kiali ask for";

/// How a table of metrics begins; other tables are about something else.
const TABLE: &str = "| Metric | Type |";

/// A row of such a table: `` | `name` | type | labels | meaning | what to do | ``.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    kind: String,
    labels: Vec<String>,
}

fn rows(page: &str) -> BTreeMap<String, Row> {
    let tables = page.split("\n\n").filter(|paragraph| paragraph.starts_with(TABLE));
    let rows = tables.flat_map(str::lines).filter(|line| line.starts_with("| `"));
    let parsed = rows.map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        assert_eq!(cells.len(), 5, "name, type, labels, meaning, what to do: {line}");
        assert!(cells.iter().skip(3).all(|cell| !cell.is_empty()), "a meaning, and what to do: {line}");
        let labels = cells[2].split(", ").filter(|label| !label.is_empty());
        let labels = labels.map(|label| label.trim_matches('`').to_owned()).collect();
        (cells[0].trim_matches('`').to_owned(), Row { kind: cells[1].to_owned(), labels })
    });
    parsed.collect()
}

#[test]
fn every_metric_has_a_row_and_every_row_a_metric() {
    let metrics = Metrics::new("1").unwrap();
    let registered = metrics.descriptions().iter().map(|metric: &MetricDescription| {
        let row = Row { kind: metric.kind.to_owned(), labels: metric.labels.clone() };
        (metric.name.clone(), row)
    });
    let registered: BTreeMap<String, Row> = registered.collect();
    if std::env::var_os("PRINT_METRICS").is_some() {
        for metric in metrics.descriptions() {
            println!(
                "| `{}` | {} | {} | {} | |",
                metric.name,
                metric.kind,
                metric.labels.join(", "),
                metric.help
            );
        }
    }
    let ours = PAGE.split(SYNC).next().unwrap().split(ASKED).next().unwrap();
    let page = rows(ours);
    for (name, row) in &registered {
        assert_eq!(page.get(name), Some(row), "docs/metrics.md and the metric {name}");
    }
    let unknown: Vec<&String> = page.keys().filter(|name| !registered.contains_key(*name)).collect();
    assert!(unknown.is_empty(), "docs/metrics.md has rows without a metric: {unknown:?}");
}
