//! Tables of a measured mesh, and all results as JSON.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::results::{Everybody, Floor, Further, Results, Row};
use super::world::Sizes;
use crate::content::Content;
use crate::stats::{milliseconds, percentile};

const TYPES: [&str; 4] = ["clusters", "endpoints", "listeners", "routes"];

#[allow(clippy::cast_precision_loss)]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

#[allow(clippy::cast_precision_loss)]
fn kilobytes(bytes: u64) -> f64 {
    bytes as f64 / 1e3
}

/// Figures of one row.
pub struct Figures {
    /// Number of proxies that were sent a change: the maximum of all rounds.
    pub concerned: usize,
    /// Time to the last of them, in milliseconds: the minimum of all rounds, which other processes disturb
    /// the least.
    pub least: f64,
    pub median: f64,
    pub p99: f64,
    /// Mean CPU time of the server, in milliseconds.
    pub cpu: f64,
    /// Bytes to each proxy.
    pub bytes_each: u64,
    /// Number of resources to all proxies.
    pub resources: u64,
    /// Number of unchanged resources: endpoints of a changed cluster, which Envoy waits for, are sent again.
    pub unchanged: u64,
}

#[must_use]
pub fn figures(row: &Row) -> Figures {
    let last: Vec<Duration> = row.samples.iter().map(|sample| sample.reached.last).collect();
    let count = u32::try_from(row.samples.len()).unwrap_or(u32::MAX).max(1);
    let cpu = row.samples.iter().map(|sample| sample.cpu).sum::<Duration>() / count;
    let sum = |of: fn(&super::fleet::Sent) -> u64| -> u64 {
        row.samples.iter().map(|sample| of(&sample.reached.sent)).sum()
    };
    let concerned = row.samples.iter().map(|sample| sample.reached.concerned).max().unwrap_or_default();
    Figures {
        concerned,
        least: milliseconds(percentile(&last, 0.0)),
        median: milliseconds(percentile(&last, 0.5)),
        p99: milliseconds(percentile(&last, 0.99)),
        cpu: milliseconds(cpu),
        bytes_each: row.bytes_each(),
        resources: sum(|sent| sent.resources) / u64::from(count),
        unchanged: sum(|sent| sent.resources.saturating_sub(sent.changed)) / u64::from(count),
    }
}

/// A row on one line, for progress.
#[must_use]
pub fn line(row: &Row) -> String {
    let figures = figures(row);
    format!(
        "{}: {} proxies, median {:.1} ms, p99 {:.1} ms, server CPU {:.1} ms, {:.1} KB to each",
        row.name,
        figures.concerned,
        figures.median,
        figures.p99,
        figures.cpu,
        kilobytes(figures.bytes_each)
    )
}

#[must_use]
pub fn text(results: &Results, sizes: &Sizes) -> String {
    let mut out = format!(
        "\n{} proxies, each a Pod of its own; {} services, {} namespaces of which {} have a Sidecar, \
         {} localities, {} ServiceEntries\n\n",
        sizes.pods, sizes.services, sizes.namespaces, sizes.sidecars, sizes.localities, sizes.entries
    );
    everybody_table(&mut out, results);
    changes_table(&mut out, results);
    content_table(&mut out, &results.content);
    memory_table(&mut out, results);
    if !results.has_process {
        out.push_str(
            "\nCPU time and memory of the server are not known: --pid names its process, on this machine\n",
        );
    }
    let _ = writeln!(
        out,
        "\nstart until ready {:.0} ms; idle server CPU {:.1} ms each second; \
         other processes used {:.0} % of the machine\n",
        milliseconds(results.start.unwrap_or_default()),
        milliseconds(results.idle_cpu),
        results.foreign * 100.0
    );
    out
}

/// Table of phases with all proxies: cold, reconnect, and reconnect with resources.
fn everybody_table(out: &mut String, results: &Results) {
    let _ = writeln!(
        out,
        "{:36}{:>9}{:>11}{:>11}{:>10}{:>12}{:>14}",
        "everybody at once", "s", "server s", "client s", "MB sent", "MB resident", "a change then"
    );
    let mut line = |name: &str, all: &Everybody| {
        let first = all.first_change.as_ref();
        let first =
            first.map_or_else(|| "-".into(), |first| format!("{:.1} ms", milliseconds(first.reached.last)));
        let _ = writeln!(
            out,
            "{name:36}{:>9.2}{:>11.2}{:>11.2}{:>10.1}{:>12.1}{first:>14}",
            all.wall.as_secs_f64(),
            all.cpu.as_secs_f64(),
            all.client_cpu.as_secs_f64(),
            megabytes(all.sent.all_bytes()),
            megabytes(all.memory),
        );
    };
    line("cold", &results.cold);
    for (number, all) in results.reconnects.iter().enumerate() {
        line(&format!("left and came with nothing, {}", number + 1), all);
    }
    for (number, all) in results.resumes.iter().enumerate() {
        line(&format!("left and came with versions, {}", number + 1), all);
    }
    if let Some(floor) = &results.cold_floor {
        let _ = writeln!(
            out,
            "{:36}{:>9.2}{:>11.2}{:>11}{:>10}{:>12.1}",
            "a broadcast of the bytes of cold",
            floor.last.as_secs_f64(),
            floor.cpu.as_secs_f64(),
            "",
            "",
            megabytes(floor.memory)
        );
    }
    let sent: Vec<String> = TYPES
        .iter()
        .zip(results.cold.sent.bytes)
        .map(|(name, bytes)| format!("{name} {:.1}", megabytes(bytes)))
        .collect();
    let _ = writeln!(out, "sent to all when cold, MB: {}", sent.join(", "));
}

fn changes_table(out: &mut String, results: &Results) {
    let _ = writeln!(
        out,
        "\n{:38}{:>8}{:>10}{:>10}{:>10}{:>9}{:>10}{:>11}{:>10}{:>10}{:>9}{:>7}",
        "change, to the last concerned",
        "proxies",
        "least ms",
        "median ms",
        "p99 ms",
        "CPU ms",
        "KB each",
        "resources",
        "unchanged",
        "floor ms",
        "its CPU",
        "ratio"
    );
    for row in &results.rows {
        let figures = figures(row);
        let floor = row.floor.map_or_else(String::new, |floor| {
            let last = milliseconds(floor.last);
            format!("{last:>10.1}{:>9.1}{:>6.1}x", milliseconds(floor.cpu), figures.median / last.max(0.01))
        });
        let _ = writeln!(
            out,
            "{:38}{:>8}{:>10.1}{:>10.1}{:>10.1}{:>9.1}{:>10.1}{:>11}{:>10}{floor}",
            row.name,
            figures.concerned,
            figures.least,
            figures.median,
            figures.p99,
            figures.cpu,
            kilobytes(figures.bytes_each),
            figures.resources,
            figures.unchanged
        );
    }
}

fn content_table(out: &mut String, content: &[Content; 4]) {
    let _ = writeln!(
        out,
        "\n{:12}{:>12}{:>10}{:>12}{:>10}{:>14}{:>10}",
        "held", "resources", "MB", "different", "MB", "of one proxy", "MB"
    );
    let mut sum = Content::default();
    let mut line = |name: &str, of: &Content| {
        let _ = writeln!(
            out,
            "{name:12}{:>12}{:>10.1}{:>12}{:>10.2}{:>14}{:>10.2}",
            of.held,
            megabytes(of.held_bytes),
            of.distinct,
            megabytes(of.distinct_bytes),
            of.single,
            megabytes(of.single_bytes)
        );
    };
    for (name, of) in TYPES.iter().zip(content) {
        line(name, of);
        sum.held += of.held;
        sum.held_bytes += of.held_bytes;
        sum.distinct += of.distinct;
        sum.distinct_bytes += of.distinct_bytes;
        sum.single += of.single;
        sum.single_bytes += of.single_bytes;
    }
    line("all", &sum);
}

fn memory_table(out: &mut String, results: &Results) {
    let _ = writeln!(out, "\n{:38}{:>12}", "resident memory", "MB");
    for memory in &results.memory {
        let _ = writeln!(out, "{:38}{:>12.1}", memory.when, megabytes(memory.bytes));
    }
    let _ = writeln!(out, "{:38}{:>12.1}", "at most", megabytes(results.memory_most));
    for (name, further) in further(results) {
        let _ = writeln!(
            out,
            "{:38}{:>9.1} KB  ({} of them: {:.1} to {:.1} MB)",
            name,
            further.each() / 1e3,
            further.proxies,
            megabytes(further.before),
            megabytes(further.with)
        );
    }
}

fn further(results: &Results) -> [(&'static str, &Further); 2] {
    [
        ("a further proxy of a known workload", &results.further_known),
        ("a further workload with a proxy", &results.further_new),
    ]
}

/// All results as JSON.
#[must_use]
pub fn json(results: &Results, sizes: &Sizes) -> Value {
    let memory: Vec<Value> =
        results.memory.iter().map(|memory| json!({"when": memory.when, "bytes": memory.bytes})).collect();
    let further: Vec<Value> = further(results)
        .iter()
        .map(|(name, of)| {
            json!({
                "what": name, "proxies": of.proxies, "before_bytes": of.before, "with_bytes": of.with,
                "each_bytes": of.each()
            })
        })
        .collect();
    let content: Vec<Value> = TYPES
        .iter()
        .zip(&results.content)
        .map(|(name, of)| {
            json!({
                "type": name, "held": of.held, "held_bytes": of.held_bytes, "different": of.distinct,
                "different_bytes": of.distinct_bytes, "of_one_proxy": of.single,
                "of_one_proxy_bytes": of.single_bytes,
            })
        })
        .collect();
    json!({
        "proxies": sizes.pods, "services": sizes.services, "namespaces": sizes.namespaces,
        "sidecars": sizes.sidecars,
        "localities": sizes.localities, "service_entries": sizes.entries,
        "start_ms": milliseconds(results.start.unwrap_or_default()),
        "idle_cpu_ms_per_s": milliseconds(results.idle_cpu),
        "foreign_share": results.foreign, "memory_most_bytes": results.memory_most,
        "cold": everybody(&results.cold),
        "cold_floor": results.cold_floor.map(floor),
        "reconnects": results.reconnects.iter().map(everybody).collect::<Vec<_>>(),
        "resumes": results.resumes.iter().map(everybody).collect::<Vec<_>>(),
        "changes": results.rows.iter().map(row).collect::<Vec<_>>(),
        "content": content, "memory": memory, "further": further,
    })
}

fn everybody(all: &Everybody) -> Value {
    json!({
        "wall_s": all.wall.as_secs_f64(), "cpu_s": all.cpu.as_secs_f64(),
        "client_cpu_s": all.client_cpu.as_secs_f64(),
        "sent_bytes": all.sent.all_bytes(), "sent_bytes_by_type": by_type(all.sent.bytes),
        "sent_resources": all.sent.resources,
        "memory_bytes": all.memory,
        "first_change_ms": all.first_change.as_ref().map(|first| milliseconds(first.reached.last)),
    })
}

fn by_type(bytes: [u64; 4]) -> Value {
    TYPES
        .iter()
        .zip(bytes)
        .map(|(name, bytes)| ((*name).to_owned(), bytes.into()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn floor(floor: Floor) -> Value {
    json!({
        "last_ms": milliseconds(floor.last), "cpu_ms": milliseconds(floor.cpu),
        "memory_bytes": floor.memory
    })
}

fn row(row: &Row) -> Value {
    let of = figures(row);
    let last: Vec<f64> = row.samples.iter().map(|sample| milliseconds(sample.reached.last)).collect();
    let cpu: Vec<f64> = row.samples.iter().map(|sample| milliseconds(sample.cpu)).collect();
    let mut bytes = [0_u64; 4];
    for sample in &row.samples {
        for (sum, more) in bytes.iter_mut().zip(sample.reached.sent.bytes) {
            *sum += more;
        }
    }
    let each: Vec<Duration> =
        row.samples.iter().flat_map(|sample| sample.reached.each.iter().copied()).collect();
    json!({
        "name": row.name, "proxies_wanted": row.wanted, "proxies": of.concerned,
        "last_least_ms": of.least, "last_median_ms": of.median, "last_p99_ms": of.p99,
        "each_median_ms": milliseconds(percentile(&each, 0.5)),
        "cpu_mean_ms": of.cpu, "bytes_each": of.bytes_each, "resources": of.resources,
        "resources_unchanged": of.unchanged,
        "bytes_by_type": by_type(bytes), "floor": row.floor.map(floor), "last_ms": last, "cpu_ms": cpu,
    })
}
