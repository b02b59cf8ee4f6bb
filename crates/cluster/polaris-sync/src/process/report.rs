//! Reports of passes as table and JSON, and their progress bar.

use crate::process::settings::Output;
use crate::reconcile::Problem;
use crate::{PassReport, Progress, Request};
use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use pilotfish_api::counted;
use serde_json::json;
use std::io::Write;

/// Result of a single pass, or of its dry run.
pub(super) struct Once {
    pub(super) report: PassReport,
    /// Calls of a dry run, which were not made.
    pub(super) dry: Option<Vec<Request>>,
    pub(super) problems: Vec<Problem>,
}

impl Once {
    /// True if nothing is left to do.
    pub(super) fn is_equal(&self) -> bool {
        let is_dry_equal = self.dry.as_ref().is_none_or(Vec::is_empty);
        self.report.is_equal() && is_dry_equal
    }
}

pub(super) fn print(out: &mut impl Write, once: &Once, output: Output) -> Result<()> {
    match output {
        Output::Json => print_json(out, once),
        Output::Table => print_table(out, once),
    }
}

fn print_json(out: &mut impl Write, once: &Once) -> Result<()> {
    let Once { report, dry, problems } = once;
    let calls: serde_json::Map<_, _> = report
        .calls
        .iter()
        .map(|(operation, (calls, elements))| {
            ((*operation).to_owned(), json!({"calls": calls, "elements": elements}))
        })
        .collect();
    let problem = |one: &Problem| json!({"service": one.service.to_string(), "message": one.message});
    let body = json!({
        "services": report.services, "instances": report.instances, "calls": calls, "dryRun": dry,
        "failed": report.failed, "refused": report.refused, "heldDeletions": report.held,
        "lingering": report.lingering,
        "conflicts": report.conflicts, "isolatedByOthers": report.isolated, "equal": once.is_equal(),
        "seconds": report.took.as_secs_f64(), "problems": problems.iter().map(problem).collect::<Vec<_>>(),
    });
    writeln!(out, "{body:#}")?;
    Ok(())
}

fn print_table(out: &mut impl Write, once: &Once) -> Result<()> {
    let Once { report, dry, problems } = once;
    for request in dry.iter().flatten() {
        writeln!(out, "{} {} {}", request.method, request.path, request.body)?;
    }
    for line in table(report) {
        writeln!(out, "{line}")?;
    }
    for problem in problems {
        writeln!(out, "{}: {}", problem.service, problem.message)?;
    }
    Ok(())
}

/// Returns a line for each number that is not zero.
pub(super) fn table(report: &PassReport) -> Vec<String> {
    let mut lines = vec![format!(
        "{:<20} {:>8} {}, {}, compared in {:.1} s",
        "should be there",
        report.services,
        if report.services == 1 { "service" } else { "services" },
        counted(report.instances, "instance"),
        report.took.as_secs_f64()
    )];
    for (operation, (calls, elements)) in &report.calls {
        lines.push(format!(
            "{:<20} {elements:>8} in {}",
            operation.replace('_', " "),
            counted(*calls, "call")
        ));
    }
    let figures = [
        ("tried again", report.failed, ""),
        ("refused by Polaris", report.refused, ""),
        ("deletions held", report.held, "until they are confirmed"),
        ("of others", report.conflicts, "where ours should be, not touched"),
        ("isolated by others", report.isolated, "although ready, not touched"),
        ("still shown", report.lingering, "although Polaris acknowledged the deletion"),
    ];
    let shown = figures.into_iter().filter(|(_, count, _)| *count > 0);
    lines.extend(
        shown.map(|(what, count, more)| format!("{what:<20} {count:>8} {more}").trim_end().to_owned()),
    );
    lines
}

/// Progress of a pass: a bar on a terminal, elsewhere a line for each tenth of a long pass.
pub(super) struct Bar(ProgressBar);

/// Number of elements from which a pass is long.
const LONG: usize = 1000;

impl Bar {
    pub(super) fn new() -> Self {
        let bar = ProgressBar::new(0);
        let style = ProgressStyle::with_template("{wide_bar} {pos} of {len} written, {eta} left");
        if let Ok(style) = style {
            bar.set_style(style);
        }
        Self(bar)
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

impl Progress for Bar {
    fn wrote(&self, done: usize, of: usize) {
        let before = usize::try_from(self.0.position()).unwrap_or(usize::MAX);
        self.0.set_length(of as u64);
        self.0.set_position(done as u64);
        if self.0.is_hidden() && of >= LONG && done * 10 / of > before * 10 / of {
            tracing::info!(done, of, "written to Polaris");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_table_has_what_happened_and_no_more() {
        let report = PassReport {
            calls: [("create_instances", (3, 250)), ("create_namespaces", (1, 1))].into(),
            services: 1,
            instances: 250,
            held: 7,
            took: Duration::from_millis(1234),
            ..PassReport::default()
        };
        assert_eq!(
            table(&report),
            [
                "should be there             1 service, 250 instances, compared in 1.2 s",
                "create instances          250 in 3 calls",
                "create namespaces           1 in 1 call",
                "deletions held              7 until they are confirmed",
            ]
        );
    }
}
