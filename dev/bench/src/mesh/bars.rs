//! Limits for the results of a mesh.

use pilotfish_load::mesh::report::figures;
use pilotfish_load::mesh::results::{Everybody, Results};
use pilotfish_load::mesh::world::Sizes;
use pilotfish_load::stats::milliseconds;

use crate::report::Bar;

/// Minimum of two compared medians: below it the clock's resolution dominates.
const LEAST_MS: f64 = 1.0;

#[allow(clippy::cast_precision_loss)]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// The bars in the order of their output. Empty for sizes other than the defaults, for which they are
/// defined.
#[must_use]
pub fn bars(results: &Results, sizes: &Sizes) -> Vec<Bar> {
    let usual = sizes.pods == 1_000 && sizes.services == 500;
    if !usual {
        return Vec::new();
    }
    let bar = |what: &str, value, limit, unit| Bar { what: what.to_owned(), value, limit, unit };
    let cold = megabytes(results.cold.memory);
    let mut bars = vec![
        bar("resident memory with all cold proxies", cold, 250.0, "MB"),
        bar("a further proxy of a known workload", results.further_known.each() / 1e3, 25.0, "KB"),
        bar("a further workload", results.further_new.each() / 1e3, 60.0, "KB"),
        bar("all cold proxies in sync", results.cold.wall.as_secs_f64(), 5.0, "s"),
        bar("  server CPU", results.cold.cpu.as_secs_f64(), 6.0, "s"),
    ];
    if let Some(last) = results.memory.last() {
        bars.push(bar("resident memory at the end, to cold", megabytes(last.bytes) / cold, 1.1, "x"));
    }
    let most = |all: &[Everybody], of: fn(&Everybody) -> f64| all.iter().map(of).fold(0.0, f64::max);
    if !results.resumes.is_empty() {
        bars.push(bar(
            "left and came with versions",
            most(&results.resumes, |all| all.wall.as_secs_f64()),
            2.0,
            "s",
        ));
        let sent = most(&results.resumes, |all| megabytes(all.sent.all_bytes()));
        bars.push(bar("  sent to all, to cold", sent / megabytes(results.cold.sent.all_bytes()), 0.01, "x"));
    }
    let first =
        |all: &Everybody| all.first_change.as_ref().map_or(0.0, |first| milliseconds(first.reached.last));
    let first = most(&results.reconnects, first).max(most(&results.resumes, first));
    bars.push(bar("an endpoint change just after a reconnect, the most", first, 250.0, "ms"));
    bars.extend(row_bars(results));
    bars
}

fn row_bars(results: &Results) -> Vec<Bar> {
    let bar = |what: String, value, limit, unit| Bar { what, value, limit, unit };
    let endpoint = results.rows.first().map(figures);
    let mut bars = Vec::new();
    for row in &results.rows {
        let of = figures(row);
        if row.name.contains("reconnect") {
            bars.push(bar(format!("{}, p99", row.name), of.p99, 250.0, "ms"));
        } else if row.name.starts_with("endpoint") {
            bars.push(bar(
                format!("{}, p99 to median", row.name),
                of.p99 / of.median.max(LEAST_MS),
                2.0,
                "x",
            ));
            if let Some(floor) = &row.floor {
                let last = milliseconds(floor.last).max(LEAST_MS);
                bars.push(bar(format!("{}, to a broadcast", row.name), of.median / last, 1.2, "x"));
                let cpu = milliseconds(floor.cpu).max(LEAST_MS);
                bars.push(bar(format!("{}, CPU to a broadcast", row.name), of.cpu / cpu, 1.0, "x"));
            }
        } else if let (true, Some(endpoint)) = (row.name.starts_with("VirtualService"), &endpoint) {
            let limit = 2.0 * endpoint.median + row.floor.map_or(0.0, |floor| milliseconds(floor.last));
            bars.push(bar(format!("{}, median", row.name), of.median, limit.round(), "ms"));
        }
    }
    bars
}
