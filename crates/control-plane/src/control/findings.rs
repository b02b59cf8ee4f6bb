//! Findings of the analysis in a world, for the log, `/ready` and the admin API.

use crate::control::report_log::ReportLog;
use pilotfish_api::counted;
use pilotfish_model::World;
use pilotfish_translate::{Finding, Level};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

/// Maximum number of findings that are kept and listed; the rest is counted.
const MOST_LISTED: usize = 10_000;
/// Maximum number of warnings in `/ready`, and of new ones logged at a time.
const MOST_TOLD: usize = 20;

/// Name of the analysis in the log, in place of a source.
pub(crate) const ANALYSIS: &str = "analysis";

/// A finding, with the origin of its object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedFinding {
    pub finding: Finding,
    /// File and line, or the cluster that the object was read from.
    pub place: Arc<str>,
}

/// All findings in a world.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// In the order of their objects.
    pub list: Vec<PlacedFinding>,
    /// Number of further findings, beyond [`MOST_LISTED`].
    more: usize,
}

impl Findings {
    /// The findings in a world.
    pub fn new<'f>(found: impl Iterator<Item = &'f Finding>, world: &World) -> Self {
        let mut found: Vec<&Finding> = found.collect();
        found.sort();
        let mut out = Self { more: found.len().saturating_sub(MOST_LISTED), ..Self::default() };
        for finding in found.into_iter().take(MOST_LISTED) {
            let place = world.object(&finding.object).map(|object| object.meta.origin.clone());
            out.list.push(PlacedFinding { finding: finding.clone(), place: place.unwrap_or_default() });
        }
        out
    }

    fn warnings(&self) -> impl Iterator<Item = &PlacedFinding> {
        self.list.iter().filter(|placed| placed.finding.code.level() == Level::Warning)
    }

    /// The first warnings, and the number of the others.
    pub fn summary(&self) -> Vec<String> {
        let count = self.warnings().count() + self.more;
        let mut lines: Vec<String> = self.warnings().take(MOST_TOLD).map(ToString::to_string).collect();
        if let Some(more) = count.checked_sub(MOST_TOLD).filter(|more| *more > 0) {
            lines.push(format!(
                "and {} of the analysis: see `pilotfish problems`",
                counted(more, "more warning")
            ));
        }
        lines
    }

    /// Logs the warnings that are not in `before`.
    pub(crate) fn log_since(&self, before: &Self, log: &mut ReportLog) {
        let now = Instant::now();
        let known: HashSet<_> = before.warnings().map(|placed| key(&placed.finding)).collect();
        let new: Vec<_> = self.warnings().filter(|placed| !known.contains(&key(&placed.finding))).collect();
        for placed in new.iter().take(MOST_TOLD) {
            log.write(ANALYSIS, now, || tracing::warn!("{placed}"));
        }
        if let Some(more) = new.len().checked_sub(MOST_TOLD).filter(|more| *more > 0) {
            log.write(ANALYSIS, now, || {
                tracing::warn!(more, "more warnings of the analysis; `pilotfish problems` lists them");
            });
        }
        if before.warnings().next().is_some() && self.warnings().next().is_none() {
            log.write(ANALYSIS, now, || tracing::info!("the analysis has no warnings any more"));
        }
    }
}

/// Identity of a finding. Its text is left out: it follows from these fields, and may mention other objects.
fn key(finding: &Finding) -> impl std::hash::Hash + Eq {
    (finding.object.clone(), finding.path.clone(), finding.code)
}

impl std::fmt::Display for PlacedFinding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.place.is_empty() {
            write!(f, "{}: ", self.place)?;
        }
        self.finding.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_model::{Kind, ObjectKey};
    use pilotfish_translate::Code;

    fn finding(n: usize, code: Code) -> Finding {
        let object = ObjectKey::new(Kind::VirtualService, "shop", format!("v{n:05}"));
        Finding { object, path: "spec.hosts".into(), code, message: "odd".into(), hint: None }
    }

    #[test]
    fn what_is_told_and_kept_is_limited() {
        let all: Vec<Finding> = (0..10_050).map(|n| finding(n, Code::ReferencedResourceNotFound)).collect();
        let findings = Findings::new(all.iter(), &World::default());
        assert_eq!((findings.list.len(), findings.more), (10_000, 50));
        let summary = findings.summary();
        assert_eq!(summary.len(), 21);
        assert_eq!(summary[0], "VirtualService shop/v00000: spec.hosts: odd [IST0101]");
        assert!(summary[20].starts_with("and 10030 more"), "{}", summary[20]);
    }

    #[test]
    fn what_is_only_worth_knowing_is_listed_and_not_told() {
        let all = [finding(0, Code::PortNameIsNotUnderNamingConvention)];
        let findings = Findings::new(all.iter(), &World::default());
        assert_eq!((findings.list.len(), findings.summary().len()), (1, 0));
    }
}
