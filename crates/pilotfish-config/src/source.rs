//! What a source of objects delivers, be it a folder of files or an API server.
//!
//! A source sends [`SourceBatch`]es over a bounded channel. It sends differences only: an object again when it
//! changed, its key when it is gone. Everything that it delivered stays in force until a later event changes it, also while
//! it fails; "nothing there" and "cannot be read" are different things.

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
    /// A fresh and complete list of a kind begins, after a reconnect: until it ended, nothing is taken away. For sources that cannot
    /// tell differences themselves.
    ListBegan(Kind),
    /// The fresh list is complete; objects of the kind that were not in it are gone.
    ListEnded(Kind),
    /// Everything that there was at the start has been delivered. Sent once.
    Listed,
    /// The source cannot be read now. What it delivered stays in force.
    Failed {
        /// When that was noticed.
        at: SystemTime,
        /// Why, in one line.
        reason: Arc<str>,
    },
    /// The failure is over, and what changed meanwhile has been delivered before this.
    Recovered,
}

/// Changes that belong together and are put in force together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SourceBatch {
    /// The changes, in an order that depends on the objects alone.
    pub events: Vec<SourceEvent>,
    /// What is wrong with the source's content now, all of it, when that changed with this batch.
    pub problems: Option<Arc<SourceProblems>>,
}

impl SourceBatch {
    /// Whether there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty() && self.problems.is_none()
    }
}

/// Everything that is wrong with the content of a source at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceProblems {
    /// By file, document and line.
    pub reports: Vec<ProblemReport>,
    /// How many objects of kinds that are not read there are, by `apiVersion kind`.
    pub ignored: BTreeMap<String, usize>,
}

impl SourceProblems {
    /// Those among `ignored` whose kind belongs to Istio or to the Gateway API.
    pub fn unserved(&self) -> impl Iterator<Item = (&str, usize)> {
        self.ignored.iter().map(|(kind, count)| (kind.as_str(), *count)).filter(|(kind, _)| is_unserved(kind))
    }

    /// How many reports are errors.
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

/// One thing that is wrong, with everything that a person needs to find it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProblemReport {
    /// An error, or only doubtful.
    pub severity: Severity,
    /// The file, or whatever else the source calls its parts.
    pub file: Arc<str>,
    /// The document in the file, counted from 1; 0 when it is about the file as a whole.
    pub document: u32,
    /// The line in the file, counted from 1; 0 when it is about the file as a whole.
    pub line: u32,
    /// The object, where it is known.
    pub object: Option<ObjectKey>,
    /// The label `istio.io/rev` of the version that the report is about.
    pub revision: Option<Arc<str>>,
    /// The field path; empty for the object as a whole.
    pub path: String,
    /// What is wrong, in one line.
    pub message: String,
    /// The number of objects that it is about, where it is about a kind. Another number is no new report.
    pub count: Option<usize>,
    /// What was likely meant, or what to do.
    pub hint: Option<String>,
    /// Which version of the object is in force now.
    pub effective: Effective,
}

/// Which version of an object is in force while it has a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effective {
    /// The object as it is written: the report is a warning.
    Written,
    /// The object as it was before it was broken.
    LastGood,
    /// What stands in for it: it was never good, and leaving it out would admit what it is to keep away.
    Closed,
    /// Nothing of it: it was never good.
    Dropped,
}

impl Effective {
    /// What holds of an object that is refused: its last good version, else what is in its place.
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
    pub(crate) fn new(file: &Arc<str>, document: u32, problem: &Problem) -> Self {
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

    /// The message, with the number of objects where it is about a kind.
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
    /// `shop.yaml:12: VirtualService shop/web: spec.http[0].tmeout: no such field (did you mean "timeout"?); its last
    /// good version stays in force`.
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

/// What happens while an object of the kind is closed.
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
