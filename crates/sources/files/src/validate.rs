//! Validation of files without serving them.

use crate::scanner::{Scanner, Trigger};
use crate::source::{FileSourceSettings, OpenError, roots};
use crate::state::{FileChange, FileContent, FileRole};
use pilotfish_config::SourceProblems;
use pilotfish_model::{Kind, Object};
use pilotfish_runtime::Heartbeat;
use std::collections::BTreeMap;
use std::path::Path;
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

/// Name of standard input in messages.
pub const STANDARD_INPUT: &str = "standard input";

/// Reads and checks everything, including the mesh files.
///
/// # Errors
/// If a path does not exist.
pub fn validate_paths(settings: &FileSourceSettings) -> Result<ValidateSummary, OpenError> {
    validate_with_input(settings, None)
}

/// Reads and checks everything, and a text of objects as one more file: [`STANDARD_INPUT`].
///
/// # Errors
/// If a path does not exist.
pub fn validate_with_input(
    settings: &FileSourceSettings,
    input: Option<&str>,
) -> Result<ValidateSummary, OpenError> {
    let roots = roots(settings)?;
    let (limits, checks) = (settings.limits.clone(), settings.checks.clone());
    let mut scanner = Scanner::new(roots, limits, checks, settings.timing, Heartbeat::paused());
    scanner.rescan(Instant::now(), SystemTime::now(), Trigger::Start);
    let mut state = scanner.into_state();
    if let Some(text) = input {
        state.apply(vec![FileChange {
            path: Path::new("-").into(),
            name: STANDARD_INPUT.into(),
            role: FileRole::Objects,
            content: FileContent::Bytes(text.into()),
        }]);
    }
    let mut objects = BTreeMap::new();
    for key in state.objects().keys().filter(|key| !state.is_closed(key)) {
        *objects.entry(key.kind).or_default() += 1;
    }
    let problems = Arc::new(state.problems());
    let in_force = state.objects().values().cloned().collect();
    Ok(ValidateSummary { files: state.files(), objects, in_force, problems })
}
