//! Table of the comparison, its bars, and both as JSON.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use crate::compare::{Change, Measured, Options, Results};
use crate::stats::{milliseconds, percentile};

/// Maximum ratio to the median and CPU time of the broadcast on tonic.
const BROADCAST_RATIO: f64 = 2.0;
/// Maximum time of a change to the last of the few, in milliseconds.
const FEW_MS: f64 = 10.0;
/// Maximum time until all cold proxies are in sync, in seconds.
const SYNC_SECONDS: f64 = 8.0;
/// Maximum resident memory in MB.
const MEMORY_MB: f64 = 250.0;
/// Maximum ratio of CPU times that counts as equal: they are noisy, unlike bytes.
const SAME_CPU: f64 = 1.5;
const SAME_BYTES: f64 = 1.05;

/// A limit for one result.
pub struct Bar {
    pub what: String,
    pub value: f64,
    /// Maximum that still passes.
    pub limit: f64,
    /// Unit of value and limit.
    pub unit: &'static str,
}

impl Bar {
    /// True if the value is within the limit.
    #[must_use]
    pub fn passes(&self) -> bool {
        self.value <= self.limit
    }
}

fn median(change: &Change) -> f64 {
    milliseconds(percentile(&change.last, 0.5))
}

#[allow(clippy::cast_precision_loss)]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

#[allow(clippy::cast_precision_loss)]
fn ratio(of: u64, to: u64) -> f64 {
    of as f64 / to.max(1) as f64
}

fn time_ratio(of: Duration, to: Duration) -> f64 {
    of.as_secs_f64() / to.as_secs_f64().max(1e-9)
}

/// The bars in the order of their output.
#[must_use]
pub fn bars(results: &Results, options: &Options) -> Vec<Bar> {
    let (ours, tonic) = (&results.pilotfish, &results.tonic);
    let bar = |what: String, value, limit, unit| Bar { what, value, limit, unit };
    let streams = options.streams;
    let mut bars = vec![
        bar(
            format!("change to the last of {streams}, median, to the broadcast's"),
            median(&ours.all) / median(&tonic.all),
            BROADCAST_RATIO,
            "x",
        ),
        bar(
            "server CPU of that change, to the broadcast's".into(),
            time_ratio(ours.all.cpu, tonic.all.cpu),
            BROADCAST_RATIO,
            "x",
        ),
    ];
    if let Some(few) = &ours.few {
        bars.push(bar(
            format!("change to the last of {} subscribers, median", options.few),
            median(few),
            FEW_MS,
            "ms",
        ));
    }
    bars.push(bar(
        format!("{streams} cold proxies in sync"),
        ours.sync.wall.as_secs_f64(),
        SYNC_SECONDS,
        "s",
    ));
    bars.push(bar(
        format!("resident memory with {streams} proxies"),
        megabytes(ours.memory),
        MEMORY_MB,
        "MB",
    ));
    let (small, large) = (&results.small.all, &results.large.all);
    let worlds = format!("{} to {} services", options.large, options.services);
    bars.push(bar(
        format!("server CPU of a change, {worlds}"),
        time_ratio(large.cpu, small.cpu),
        SAME_CPU,
        "x",
    ));
    bars.push(bar(format!("bytes of a change, {worlds}"), ratio(large.bytes, small.bytes), SAME_BYTES, "x"));
    bars
}

/// Tables and bars for display.
#[must_use]
pub fn text(results: &Results, options: &Options) -> String {
    let mut out = format!(
        "\n{} streams, {} services, {} endpoints, {} rounds\n\n",
        options.streams,
        options.services,
        options.services * options.endpoints,
        options.rounds
    );
    let columns = [&results.pilotfish, &results.tonic, &results.h2];
    let head = ["", "pilotfish", "tonic", "h2", "to tonic"];
    let [a, b, c, d, e] = head;
    let _ = writeln!(out, "{a:44}{b:>11}{c:>11}{d:>11}{e:>11}");
    for (what, value) in rows(options) {
        let values: Vec<Option<f64>> = columns.iter().map(|measured| value(measured)).collect();
        let cells: String = values.iter().map(|value| cell(*value)).collect();
        let to_tonic = match values.as_slice() {
            [Some(ours), Some(tonic), ..] if *tonic > 0.0 => format!("{:>10.2}x", ours / tonic),
            _ => String::new(),
        };
        let _ = writeln!(out, "{what:44}{cells}{to_tonic}");
    }
    let _ = writeln!(out, "\n{} streams of pilotfish", options.large_streams);
    let worlds = [&results.small, &results.large];
    let [small, large] = [options.services, options.large].map(|services| format!("{services} svc"));
    let _ = writeln!(out, "{a:44}{small:>11}{large:>11}");
    for (what, value) in rows(options) {
        let cells: String = worlds.iter().map(|measured| cell(value(measured))).collect();
        let _ = writeln!(out, "{what:44}{cells}");
    }
    out.push('\n');
    out + &bar_lines(&bars(results, options))
}

/// One line for each bar.
#[must_use]
pub fn bar_lines(bars: &[Bar]) -> String {
    let mut out = String::new();
    for bar in bars {
        let state = if bar.passes() { "pass" } else { "MISS" };
        let _ = writeln!(
            out,
            "{state}  {:62} {:8.2} {:2} (at most {} {})",
            bar.what, bar.value, bar.unit, bar.limit, bar.unit
        );
    }
    out
}

#[must_use]
pub fn bars_json(bars: &[Bar]) -> Value {
    let bar = |bar: &Bar| {
        json!({
            "what": bar.what, "value": bar.value, "limit": bar.limit, "unit": bar.unit,
            "pass": bar.passes()
        })
    };
    bars.iter().map(bar).collect()
}

fn cell(value: Option<f64>) -> String {
    value.map_or_else(|| format!("{:>11}", "-"), |value| format!("{value:>11.2}"))
}

type Row = (String, fn(&Measured) -> Option<f64>);

fn rows(options: &Options) -> Vec<Row> {
    let few = options.few;
    vec![
        ("start until ready, ms".into(), |m| Some(milliseconds(m.start))),
        ("all cold proxies in sync, s".into(), |m| Some(m.sync.wall.as_secs_f64())),
        ("  server CPU, s".into(), |m| Some(m.sync_cpu.as_secs_f64())),
        ("  client CPU, s".into(), |m| Some(m.sync_client_cpu.as_secs_f64())),
        ("  sent to all, MB".into(), |m| Some(megabytes(m.sync.bytes))),
        ("change to the last of all, median, ms".into(), |m| Some(median(&m.all))),
        ("  p99, ms".into(), |m| Some(milliseconds(percentile(&m.all.last, 0.99)))),
        ("  to each, median, ms".into(), |m| Some(milliseconds(percentile(&m.all.each, 0.5)))),
        ("  publication until sent, mean, ms".into(), |m| m.all.push.map(milliseconds)),
        ("  server CPU, ms".into(), |m| Some(milliseconds(m.all.cpu))),
        ("  client CPU, ms".into(), |m| Some(milliseconds(m.all.client_cpu))),
        #[allow(clippy::cast_precision_loss)]
        ("  bytes to each stream".into(), |m| Some(m.all.bytes as f64)),
        (format!("change to the last of {few}, median, ms"), |m| m.few.as_ref().map(median)),
        ("  p99, ms".into(), |m| m.few.as_ref().map(|few| milliseconds(percentile(&few.last, 0.99)))),
        ("  publication until sent, mean, ms".into(), |m| m.few.as_ref()?.push.map(milliseconds)),
        ("  server CPU, ms".into(), |m| m.few.as_ref().map(|few| milliseconds(few.cpu))),
        ("idle server CPU, ms each second".into(), |m| Some(milliseconds(m.idle_cpu))),
        ("other processes, % of the machine".into(), |m| Some(m.foreign * 100.0)),
        ("resident memory, MB".into(), |m| Some(megabytes(m.memory))),
        ("  at most, MB".into(), |m| Some(megabytes(m.memory_most))),
    ]
}

/// All results as JSON.
#[must_use]
pub fn json(results: &Results, options: &Options) -> Value {
    json!({
        "streams": options.streams, "few": options.few, "services": options.services,
        "endpoints": options.endpoints, "rounds": options.rounds,
        "large": options.large, "large_streams": options.large_streams,
        "pilotfish": measured(&results.pilotfish), "tonic": measured(&results.tonic),
        "h2": measured(&results.h2),
        "small_world": measured(&results.small), "large_world": measured(&results.large),
        "bars": bars_json(&bars(results, options)),
    })
}

fn measured(measured: &Measured) -> Value {
    json!({
        "start_ms": milliseconds(measured.start),
        "sync_s": measured.sync.wall.as_secs_f64(), "sync_cpu_s": measured.sync_cpu.as_secs_f64(),
        "sync_client_cpu_s": measured.sync_client_cpu.as_secs_f64(), "sync_bytes": measured.sync.bytes,
        "change": change(&measured.all), "change_few": measured.few.as_ref().map(change),
        "idle_cpu_ms_per_s": milliseconds(measured.idle_cpu),
        "foreign_share": measured.foreign, "memory_bytes": measured.memory,
        "memory_most_bytes": measured.memory_most,
    })
}

fn change(change: &Change) -> Value {
    json!({
        "last_median_ms": median(change), "last_p99_ms": milliseconds(percentile(&change.last, 0.99)),
        "each_median_ms": milliseconds(percentile(&change.each, 0.5)),
        "cpu_ms": milliseconds(change.cpu), "cpu_mean_ms": milliseconds(change.cpu_mean),
        "push_mean_ms": change.push.map(milliseconds), "client_cpu_ms": milliseconds(change.client_cpu),
        "bytes_each": change.bytes,
        "last_ms": change.last.iter().copied().map(milliseconds).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::Synced;

    fn measured_at(name: &str, last_ms: u64, cpu_ms: u64) -> Measured {
        let change = || Change {
            last: vec![Duration::from_millis(last_ms)],
            each: vec![Duration::from_millis(last_ms)],
            cpu: Duration::from_millis(cpu_ms),
            cpu_mean: Duration::from_millis(cpu_ms),
            client_cpu: Duration::from_millis(cpu_ms),
            push: None,
            bytes: 500,
        };
        Measured {
            name: name.into(),
            start: Duration::from_millis(100),
            sync: Synced { wall: Duration::from_secs(2), bytes: 1 },
            sync_cpu: Duration::from_secs(2),
            sync_client_cpu: Duration::from_secs(2),
            all: change(),
            few: Some(change()),
            idle_cpu: Duration::ZERO,
            foreign: 0.0,
            memory: 100_000_000,
            memory_most: 120_000_000,
        }
    }

    fn results(ours_ms: u64, tonic_ms: u64) -> (Results, Options) {
        let at = measured_at;
        let results = Results {
            pilotfish: at("pilotfish", ours_ms, 20),
            tonic: at("tonic", tonic_ms, 20),
            h2: at("h2", tonic_ms, 15),
            small: at("small", 5, 2),
            large: at("large", 5, 2),
        };
        let options = Options {
            pilotfish: "pilotfish".into(),
            streams: 1_000,
            few: 10,
            services: 1_000,
            endpoints: 10,
            rounds: 1,
            large: 10_000,
            large_streams: 100,
            json: None,
        };
        (results, options)
    }

    #[test]
    fn bars_are_relative_to_the_broadcast_of_the_same_run() {
        let (results, options) = results(9, 5);
        assert!(bars(&results, &options).iter().all(Bar::passes));
        let (results, options) = self::results(11, 5);
        let missed: Vec<f64> =
            bars(&results, &options).iter().filter(|b| !b.passes()).map(|b| b.limit).collect();
        assert_eq!(missed, [BROADCAST_RATIO, FEW_MS]);
    }

    #[test]
    fn the_table_has_what_was_missed() {
        let (results, options) = results(11, 5);
        assert!(text(&results, &options).contains("MISS  change to the last of 1000"));
    }
}
