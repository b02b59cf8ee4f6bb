//! What came out, for people and for programs.

use std::fmt::{self, Write as _};
use std::time::Duration;

use serde::Serialize;

use crate::Tally;
use crate::watch::Seen;

/// One row for each attack.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// In the order in which they ran.
    pub rows: Vec<Row>,
    /// Whether there was an Envoy with traffic.
    pub envoy: bool,
}

/// What became of one attack.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// The attack.
    pub name: String,
    /// What it does.
    pub what: String,
    /// What it did.
    pub tally: Tally,
    /// How long it lasted.
    pub seconds: f64,
    /// What everybody else saw.
    pub seen: Figures,
    /// Resident memory in bytes before, at most meanwhile, and afterwards.
    pub memory_before: u64,
    /// At most meanwhile.
    pub memory_most: u64,
    /// Afterwards.
    pub memory_after: u64,
    /// Seconds until everything was as before.
    pub recovered_after: f64,
    /// Bytes of log.
    pub log: u64,
    /// Requests through the Envoy.
    pub envoy_requests: usize,
    /// Bounds that were missed, in words.
    pub misses: Vec<String>,
}

/// What honest clients saw, in milliseconds.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Figures {
    /// The slowest answer of `/ready`.
    pub ready_worst: f64,
    /// Endpoint changes.
    pub changes: usize,
    /// The median of when they were at a proxy.
    pub push_median: f64,
    /// The same of 99 in 100.
    pub push_p99: f64,
    /// The slowest.
    pub push_worst: f64,
    /// Changes that did not reach a proxy in time.
    pub push_missing: usize,
    /// Proxies that connected anew.
    pub fresh: usize,
    /// The slowest of them.
    pub fresh_worst: f64,
    /// Pages of the dashboard.
    pub pages: usize,
    /// The slowest of them.
    pub page_worst: f64,
    /// Edits of YAML of which the problems told.
    pub edits: usize,
    /// The slowest of them.
    pub edit_worst: f64,
}

impl From<&Seen> for Figures {
    fn from(seen: &Seen) -> Self {
        let milliseconds = |time: Duration| time.as_secs_f64() * 1_000.0;
        Self {
            ready_worst: milliseconds(seen.ready.worst()),
            changes: seen.changes,
            push_median: milliseconds(seen.pushes.quantile(0.5)),
            push_p99: milliseconds(seen.pushes.quantile(0.99)),
            push_worst: milliseconds(seen.pushes.worst()),
            push_missing: seen.missing,
            fresh: seen.fresh.times.len(),
            fresh_worst: milliseconds(seen.fresh.worst()),
            pages: seen.pages.times.len(),
            page_worst: milliseconds(seen.pages.worst()),
            edits: seen.edits.times.len(),
            edit_worst: milliseconds(seen.edits.worst()),
        }
    }
}

impl Report {
    /// Whether all bounds held.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.missed().next().is_none()
    }

    /// The attacks that missed a bound.
    pub fn missed(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| !row.misses.is_empty())
    }

    /// The attacks that were not tried, with the reason: nothing is known of them.
    #[must_use]
    pub fn skipped(&self) -> Vec<String> {
        let skipped = |row: &Row| Some(format!("{}: {}", row.name, row.tally.skipped.as_ref()?));
        self.rows.iter().filter_map(skipped).collect()
    }
}

/// The head of the table; rows are printed as they come.
pub(crate) const HEAD: &str = "attack                         sent answered  refused  ready  push p50/p99/worst     new      page/edit  memory +most/+after  log KiB  envoy  result";

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = &self.tally.skipped {
            return write!(f, "{:26} skipped: {why}", self.name);
        }
        let seen = &self.seen;
        let push = format!("{:.0}/{:.0}/{:.0} ms", seen.push_median, seen.push_p99, seen.push_worst);
        let more =
            |now: u64| format!("{:+}", (now >> 20).cast_signed() - (self.memory_before >> 20).cast_signed());
        let operator = format!("{:.0}/{:.0} ms", seen.page_worst, seen.edit_worst);
        let memory = format!("{}/{} MiB", more(self.memory_most), more(self.memory_after));
        write!(
            f,
            "{:26} {:>8} {:>8} {:>8} {:>4.0} ms  {push:>18} {:>5.0} ms {operator:>14} {memory:>16}  {:>9} {:>6}  ",
            self.name,
            self.tally.sent,
            self.tally.answered,
            self.tally.refused,
            seen.ready_worst,
            seen.fresh_worst,
            self.log >> 10,
            self.envoy_requests,
        )?;
        if self.misses.is_empty() {
            return write!(f, "ok, back after {:.1} s", self.recovered_after);
        }
        let mut text = String::from("MISSED");
        for miss in &self.misses {
            let _ = write!(text, "\n    {miss}");
        }
        for (words, count) in self.tally.refusals.iter().take(3) {
            let _ = write!(text, "\n    refused {count} times: {words}");
        }
        f.write_str(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_what_was_missed() {
        let row = Row { name: "delegates".to_owned(), memory_before: 5 << 20, ..Row::default() };
        assert!(row.to_string().contains("-5/-5 MiB") && row.to_string().contains("ok"), "{row}");
        let missed = Row { misses: vec!["ready: no answer".to_owned()], ..row.clone() };
        assert!(missed.to_string().contains("MISSED\n    ready: no answer"));
        let report = Report { rows: vec![row, missed], envoy: false };
        assert!(!report.holds());
        assert_eq!(report.missed().map(|row| row.misses.concat()).collect::<Vec<_>>(), ["ready: no answer"]);
        let tally = Tally::skipped("there is no API server");
        let skipped = Row { name: "webhook-idle".to_owned(), tally, ..Row::default() };
        let report = Report { rows: vec![skipped], envoy: false };
        assert_eq!(report.skipped(), ["webhook-idle: there is no API server"]);
    }
}
