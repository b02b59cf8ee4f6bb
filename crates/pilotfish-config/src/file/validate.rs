//! Checking files without serving them.

use super::scanner::{Scanner, Trigger};
use super::source::{FileSourceSettings, OpenError, roots};
use crate::source::SourceProblems;
use pilotfish_model::{Kind, Object};
use pilotfish_source::Heartbeat;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// What a check of files found.
#[derive(Clone, Debug)]
pub struct ValidateSummary {
    /// How many files were read.
    pub files: usize,
    /// How many objects of each kind are good.
    pub objects: BTreeMap<Kind, usize>,
    /// All objects in force, those too that stand in for others that cannot be used.
    pub in_force: Vec<Object>,
    /// What is wrong.
    pub problems: Arc<SourceProblems>,
}

impl ValidateSummary {
    /// Whether there is no error (there may be warnings).
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.problems.errors() == 0
    }
}

/// Reads and checks everything, the mesh files as well.
///
/// # Errors
/// When a path does not exist.
pub fn validate_paths(settings: &FileSourceSettings) -> Result<ValidateSummary, OpenError> {
    let roots = roots(settings)?;
    let (limits, checks) = (settings.limits.clone(), settings.checks.clone());
    let mut scanner = Scanner::new(roots, limits, checks, settings.timing, Heartbeat::paused());
    let batch = scanner.rescan(Instant::now(), SystemTime::now(), Trigger::Start);
    let mut objects = BTreeMap::new();
    let state = scanner.state();
    for key in state.objects().keys().filter(|key| !state.is_closed(key)) {
        *objects.entry(key.kind).or_default() += 1;
    }
    let problems = batch.problems.unwrap_or_default();
    let in_force = state.objects().values().cloned().collect();
    Ok(ValidateSummary { files: state.files(), objects, in_force, problems })
}
