//! Validation of files without serving them.

use crate::scanner::{Scanner, Trigger};
use crate::source::{FileSourceSettings, OpenError, roots};
use pilotfish_config::SourceProblems;
use pilotfish_model::{Kind, Object};
use pilotfish_runtime::Heartbeat;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// Result of validating files.
#[derive(Clone, Debug)]
pub struct ValidateSummary {
    /// Number of files that were read.
    pub files: usize,
    /// Number of valid objects, by kind.
    pub objects: BTreeMap<Kind, usize>,
    /// All objects in force, with closed forms in place of objects that cannot be used.
    pub in_force: Vec<Object>,
    /// Problems of the files.
    pub problems: Arc<SourceProblems>,
}

impl ValidateSummary {
    /// True if there are no errors. There may be warnings.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.problems.errors() == 0
    }
}

/// Reads and checks everything, including the mesh files.
///
/// # Errors
/// If a path does not exist.
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
