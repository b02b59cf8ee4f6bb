//! Results, as text and JSON.

use std::fmt::{self, Write as _};
use std::time::Duration;

use serde::Serialize;

use crate::Tally;
use crate::watch::Seen;

/// One row for each attack.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Rows in the order of the attacks.
    pub rows: Vec<Row>,
    /// True if there was an Envoy with traffic.
    pub envoy: bool,
}

/// Result of one attack.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    pub name: String,
    /// Description of the attack.
    pub what: String,
    /// Counters of the attack.
    pub tally: Tally,
    pub seconds: f64,
    /// Measurements of honest clients.
    pub seen: Figures,
    /// Resident memory in bytes before the attack.
    pub memory_before: u64,
    /// Peak during the attack.
    pub memory_most: u64,
    /// Resident memory after the attack.
    pub memory_after: u64,
    /// Seconds until the original state was restored.
    pub recovered_after: f64,
    /// Size of the log in bytes.
    pub log: u64,
    /// Number of requests through the Envoy.
    pub envoy_requests: usize,
    /// Descriptions of exceeded bounds.
    pub misses: Vec<String>,
}

/// Measurements of honest clients, in milliseconds.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Figures {
    /// Slowest response of `/ready`.
    pub ready_worst: f64,
    /// Number of endpoint changes.
    pub changes: usize,
    /// Median time of a change to a proxy.
    pub push_median: f64,
    /// 99th percentile of that time.
    pub push_p99: f64,
    /// Maximum of that time.
    pub push_worst: f64,
    /// Number of changes that did not reach a proxy in time.
    pub push_missing: usize,
    /// Number of new connections of proxies.
    pub fresh: usize,
    /// Maximum time until one of them was in sync.
    pub fresh_worst: f64,
    /// Number of certificates of an honest workload.
    pub certificates: usize,
    /// Maximum time until one of them was signed.
    pub certificate_worst: f64,
    /// Number of dashboard pages.
    pub pages: usize,
    /// Maximum time of one of them.
    pub page_worst: f64,
    /// Number of YAML edits whose effect on the list of problems was seen.
    pub edits: usize,
    /// Maximum time of one of them.
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
            certificates: seen.certificates.times.len(),
            certificate_worst: milliseconds(seen.certificates.worst()),
            pages: seen.pages.times.len(),
            page_worst: milliseconds(seen.pages.worst()),
            edits: seen.edits.times.len(),
            edit_worst: milliseconds(seen.edits.worst()),
        }
    }
}

impl Report {
    /// True if no bound was exceeded.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.missed().next().is_none()
    }

    /// Attacks that exceeded a bound.
    pub fn missed(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| !row.misses.is_empty())
    }

    /// Skipped attacks, with the reason: they have no result.
    #[must_use]
    pub fn skipped(&self) -> Vec<String> {
        let skipped = |row: &Row| Some(format!("{}: {}", row.name, row.tally.skipped.as_ref()?));
        self.rows.iter().filter_map(skipped).collect()
    }
}

/// Header of the table; rows are printed as they are completed.
pub(crate) const HEAD: &str = "attack                         sent answered  refused  ready  push \
    p50/p99/worst new/certificate      page/edit  memory +most/+after  log KiB  envoy  result";

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = &self.tally.skipped {
            return write!(f, "{:26} skipped: {why}", self.name);
        }
        let seen = &self.seen;
        let push = format!("{:.0}/{:.0}/{:.0} ms", seen.push_median, seen.push_p99, seen.push_worst);
        let more =
            |now: u64| format!("{:+}", (now >> 20).cast_signed() - (self.memory_before >> 20).cast_signed());
        let fresh = format!("{:.0}/{:.0} ms", seen.fresh_worst, seen.certificate_worst);
        let operator = format!("{:.0}/{:.0} ms", seen.page_worst, seen.edit_worst);
        let memory = format!("{}/{} MiB", more(self.memory_most), more(self.memory_after));
        write!(
            f,
            "{:26} {:>8} {:>8} {:>8} {:>4.0} ms  {push:>18} {fresh:>15} {operator:>14} {memory:>16}  {:>9} \
             {:>6}  ",
            self.name,
            self.tally.sent,
            self.tally.answered,
            self.tally.refused,
            seen.ready_worst,
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
