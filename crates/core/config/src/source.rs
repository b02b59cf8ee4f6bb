//! Batches and events of a source of objects: a folder of files, or an API server.
//!
//! A source sends [`SourceBatch`]es over a bounded channel. It sends differences only: an object again when
//! it changed, its key when it is gone. Delivered objects stay in force until a later event changes them,
//! also while the source fails: an empty source and an unreadable one are different states.

use crate::problem::{Problem, Severity};
use crate::read::belongs_to_mesh;
use pilotfish_model::{Kind, Object, ObjectKey};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

/// One change that a source reports.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceEvent {
    /// The object is new or differs from before.
    Apply(Object),
    /// The object is gone.
    Delete(ObjectKey),
    /// A fresh and complete list of a kind begins, after a reconnect. Nothing is removed until it has ended.
    /// For sources that cannot compute differences themselves.
    ListBegan(Kind),
    /// The fresh list is complete; objects of the kind that were not in it are gone.
    ListEnded(Kind),
    /// All objects that existed at the start have been delivered. Sent once.
    Listed,
    /// The source cannot be read now. The objects that it delivered stay in force.
    Failed {
        /// Time at which the failure was noticed.
        at: SystemTime,
        /// Reason, in one line.
        reason: Arc<str>,
    },
    /// The failure is over, and all changes since have been delivered before this event.
    Recovered,
}

/// Changes that belong together and are put in force together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SourceBatch {
    /// The changes, in an order that depends on the objects alone.
    pub events: Vec<SourceEvent>,
    /// All current problems of the source's content, if they changed with this batch.
    pub problems: Option<Arc<SourceProblems>>,
}

impl SourceBatch {
    /// True if the batch has neither events nor problems.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty() && self.problems.is_none()
    }
}

/// All problems of a source's content at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceProblems {
    /// Reports, sorted by file, document and line.
    pub reports: Vec<ProblemReport>,
    /// Number of objects whose kind is not read, by `apiVersion kind`.
    pub ignored: BTreeMap<String, usize>,
}

impl SourceProblems {
    /// Entries of `ignored` whose kind belongs to Istio or to the Gateway API.
    pub fn unserved(&self) -> impl Iterator<Item = (&str, usize)> {
        self.ignored.iter().map(|(kind, count)| (kind.as_str(), *count)).filter(|(kind, _)| is_unserved(kind))
    }

    /// Number of reports that are errors.
    #[must_use]
    pub fn errors(&self) -> usize {
        self.reports.iter().filter(|report| report.severity == Severity::Error).count()
    }
}

/// True if a kind that is not read, `apiVersion kind`, belongs to Istio or to the Gateway API.
#[must_use]
pub fn is_unserved(ignored: &str) -> bool {
    ignored.split_once('/').is_some_and(|(group, _)| belongs_to_mesh(group))
}

/// Report of one problem, with everything needed to locate it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProblemReport {
    /// Severity of the problem.
    pub severity: Severity,
    /// The file, or the source's name for its part.
    pub file: Arc<str>,
    /// The document in the file, counted from 1; 0 for the file as a whole.
    pub document: u32,
    /// The line in the file, counted from 1; 0 for the file as a whole.
    pub line: u32,
    /// The object, if known.
    pub object: Option<ObjectKey>,
    /// The label `istio.io/rev` of the version that the report is about.
    pub revision: Option<Arc<str>>,
    /// The field path; empty for the object as a whole.
    pub path: String,
    /// Description of the problem, in one line.
    pub message: String,
    /// Number of affected objects, for a report on a kind. A report that differs only in the count is not
    /// new.
    pub count: Option<usize>,
    /// A likely correction, or an action.
    pub hint: Option<String>,
    /// The version of the object that is in force now.
    pub effective: Effective,
}

/// The version of an object that is in force while it has a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effective {
    /// The object as it is written: the report is a warning.
    Written,
    /// The object as it was before it was broken.
    LastGood,
    /// Its closed form: it was never good, and leaving it out would admit requests that it is meant to
    /// refuse.
    Closed,
    /// No version: it was never good.
    Dropped,
}

impl Effective {
    /// Returns the version in force of a refused object: its last good version, else its closed form, else
    /// none.
    #[must_use]
    pub fn of_refused(last_good: bool, closed: bool) -> Self {
        match (last_good, closed) {
            (true, _) => Self::LastGood,
            (false, true) => Self::Closed,
            (false, false) => Self::Dropped,
        }
    }
}

impl ProblemReport {
    /// A report of a problem in a document, without its object.
    #[must_use]
    pub fn new(file: &Arc<str>, document: u32, problem: &Problem) -> Self {
        Self {
            severity: problem.severity,
            file: file.clone(),
            document,
            line: problem.line.unwrap_or(0),
            object: None,
            revision: None,
            path: problem.path.to_string(),
            message: problem.message.clone(),
            count: None,
            hint: problem.hint.clone(),
            effective: Effective::Written,
        }
    }

    /// The message, with the number of objects for a report on a kind.
    #[must_use]
    pub fn counted_message(&self) -> Cow<'_, str> {
        match self.count {
            None => Cow::Borrowed(&self.message),
            Some(1) => format!("{} (1 object)", self.message).into(),
            Some(count) => format!("{} ({count} objects)", self.message).into(),
        }
    }
}

impl fmt::Display for ProblemReport {
    /// Formats as `shop.yaml:12: VirtualService shop/web: spec.http[0].tmeout: no such field (did you mean
    /// "timeout"?); its last good version stays in force`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if let Some(object) = &self.object {
            write!(f, ": {object}")?;
        }
        if !self.path.is_empty() {
            write!(f, ": {}", self.path)?;
        }
        write!(f, ": {}", self.counted_message())?;
        if let Some(hint) = &self.hint {
            write!(f, " ({hint})")?;
        }
        match (self.effective, self.severity) {
            (Effective::LastGood, _) => f.write_str("; the last good version stays in force"),
            (Effective::Closed, _) => {
                let what = self.object.as_ref().map_or("nothing passes where it would hold", closed);
                write!(f, "; until it is mended, {what}")
            }
            (Effective::Dropped, Severity::Error) => match &self.object {
                Some(object) => write!(f, "; this {} is not applied", object.kind.name()),
                None => f.write_str("; it is not applied"),
            },
            _ => Ok(()),
        }
    }
}

/// Effect of the closed form of an object, by kind, for messages.
fn closed(object: &ObjectKey) -> &'static str {
    match object.kind {
        Kind::AuthorizationPolicy => "what it cannot decide is denied",
        Kind::PeerAuthentication => "mutual TLS is required where it cannot tell",
        Kind::RequestAuthentication => {
            "tokens that it cannot check are refused, all requests where it cannot find tokens"
        }
        Kind::Gateway => "its servers that cannot be used refuse connections",
        Kind::DestinationRule => "nothing is sent to its host",
        _ => "nothing passes where it would hold",
    }
}
