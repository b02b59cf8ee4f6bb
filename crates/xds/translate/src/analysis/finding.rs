//! A finding, and the collection of those of an object.

use super::Code;
use crate::engine::Cx;
use pilotfish_config::Problem;
use pilotfish_model::{Namespace, ObjectKey};
use std::fmt;

/// The most findings stored for one object; the rest is counted. An object may have thousands.
pub(super) const MOST_FINDINGS: usize = 50;

/// Maximum number of comparisons for one object, which may have 16,384 conditions and clients in every
/// namespace.
const MOST_COMPARISONS: usize = 1_000_000;

/// A reference to something that does not exist, or a part of an object without effect.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    pub object: ObjectKey,
    /// The field, as in `spec.http[0].route[1].destination.host`; empty for the object as a whole.
    pub path: String,
    pub code: Code,
    /// One line in plain words.
    pub message: String,
    /// Suggested correction: the name that was likely meant, or an action.
    pub hint: Option<String>,
}

impl Finding {
    /// Converts the finding to a problem of the object, with the code at the end of the message.
    #[must_use]
    pub fn as_problem(&self) -> Problem {
        let mut problem = Problem::doubt(&self.path, format!("{} [{}]", self.message, self.code));
        problem.hint.clone_from(&self.hint);
        problem
    }
}

impl fmt::Display for Finding {
    /// `VirtualService shop/web: spec.hosts: what is wrong (what was meant) [IST0101]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.object)?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, " ({hint})")?;
        }
        write!(f, " [{}]", self.code)
    }
}

/// Findings of one object during its analysis.
pub(super) struct Report<'a, 'c> {
    pub(super) cx: &'a Cx<'c>,
    object: &'a ObjectKey,
    found: Vec<Finding>,
    more: usize,
    comparisons_left: usize,
}

impl<'a, 'c> Report<'a, 'c> {
    pub(super) fn new(cx: &'a Cx<'c>, object: &'a ObjectKey) -> Self {
        Self { cx, object, found: Vec::new(), more: 0, comparisons_left: MOST_COMPARISONS }
    }

    /// Returns true if that many more comparisons are allowed for the object.
    pub(super) fn may_compare(&mut self, comparisons: usize) -> bool {
        let left = self.comparisons_left.checked_sub(comparisons);
        self.comparisons_left = left.unwrap_or_default();
        left.is_some()
    }

    pub(super) fn namespace(&self) -> &'a Namespace {
        &self.object.namespace
    }

    pub(super) fn key(&self) -> &'a ObjectKey {
        self.object
    }

    pub(super) fn add(&mut self, code: Code, path: impl fmt::Display, message: impl Into<String>) {
        self.add_with_hint(code, path, message, None);
    }

    pub(super) fn add_with_hint(
        &mut self,
        code: Code,
        path: impl fmt::Display,
        message: impl Into<String>,
        hint: Option<String>,
    ) {
        if self.found.len() >= MOST_FINDINGS {
            self.more += 1;
            return;
        }
        let (object, path, message) = (self.object.clone(), path.to_string(), message.into());
        self.found.push(Finding { object, path, code, message, hint });
    }

    /// Adds a finding that the object named at `path` does not exist.
    pub(super) fn absent(&mut self, path: impl fmt::Display, what: impl Into<String>, hint: Option<String>) {
        self.add_with_hint(Code::ReferencedResourceNotFound, path, what, hint);
    }

    /// Returns the findings in the order of detection.
    pub(super) fn finish(mut self) -> Vec<Finding> {
        if let (more @ 1.., Some(last)) = (self.more, self.found.last_mut()) {
            last.message.push_str(&format!("; and {more} more findings of this object"));
        }
        self.found
    }
}

/// Joins names up to a maximum, with the number of the rest.
pub(super) fn listed<T: fmt::Display>(names: impl IntoIterator<Item = T>) -> String {
    const MOST: usize = 5;
    let names: Vec<String> = names.into_iter().map(|name| name.to_string()).collect();
    match names.get(..MOST) {
        Some(first) if names.len() > MOST => format!("{} and {} more", first.join(", "), names.len() - MOST),
        _ => names.join(", "),
    }
}
