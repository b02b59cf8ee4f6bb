//! Problems of an object: path, severity, message and hint.

use crate::path::{FieldPath, Path};
use pilotfish_model::Object;
use std::fmt;

/// Check of objects by another crate, in the context in which they are used. It finds fields without effect,
/// so it only warns.
pub type ObjectCheck = fn(&Object) -> Vec<Problem>;

/// Severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The object is rejected.
    Error,
    /// The object is accepted, but probably does not have the intended effect.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

/// A problem of an object: path, message, and perhaps a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// [`Severity::Error`] if the object is rejected because of the problem.
    pub severity: Severity,
    /// The field; empty for the object as a whole.
    pub path: FieldPath,
    /// The line in the file, if known.
    pub line: Option<u32>,
    /// Description, in one line.
    pub message: String,
    /// A likely correction, or an action.
    pub hint: Option<String>,
}

impl Problem {
    /// An error at this field.
    pub fn error(path: FieldPath, message: impl Into<String>) -> Self {
        Self { severity: Severity::Error, path, line: None, message: message.into(), hint: None }
    }

    /// A warning at this field.
    pub fn warning(path: FieldPath, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, path, line: None, message: message.into(), hint: None }
    }

    /// A warning at a path such as `spec.http[0].timeout`.
    #[must_use]
    pub fn doubt(path: &str, message: impl Into<String>) -> Self {
        Self::warning(FieldPath::parse(path), message)
    }

    pub(crate) fn at_line(self, line: u32) -> Self {
        Self { line: Some(line), ..self }
    }

    pub(crate) fn with_hint(self, hint: Option<String>) -> Self {
        Self { hint, ..self }
    }

    /// True if the problem is a missing part, or one that excludes another.
    pub(crate) fn is_about_presence(&self) -> bool {
        const TEXTS: [&str; 3] = ["must be set", "is empty", "must not be set"];
        TEXTS.iter().any(|text| self.message.contains(text))
    }

    /// True if the object is rejected because of the problem.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

impl fmt::Display for Problem {
    /// Formats as `spec.http[0].timeout: must be at least 1ms (hint)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

/// Maximum number of problems of each severity that are kept for one object, which may have millions.
pub(crate) const MOST_PROBLEMS: usize = 100;

/// Collector of problems during a check.
#[derive(Default)]
pub(crate) struct Checker {
    problems: Vec<Problem>,
    errors: usize,
    warnings: usize,
}

impl Checker {
    pub(crate) fn error(&mut self, at: &Path<'_>, message: impl Into<String>) {
        self.error_with_hint(at, message, None);
    }

    pub(crate) fn error_with_hint(
        &mut self,
        at: &Path<'_>,
        message: impl Into<String>,
        hint: impl Into<Option<String>>,
    ) {
        self.errors += 1;
        if self.errors <= MOST_PROBLEMS {
            self.problems.push(Problem::error(at.to_field_path(), message).with_hint(hint.into()));
        }
    }

    pub(crate) fn warning(&mut self, at: &Path<'_>, message: impl Into<String>) {
        self.warning_with_hint(at, message, None);
    }

    pub(crate) fn warning_with_hint(
        &mut self,
        at: &Path<'_>,
        message: impl Into<String>,
        hint: Option<String>,
    ) {
        self.warnings += 1;
        if self.warnings <= MOST_PROBLEMS {
            self.problems.push(Problem::warning(at.to_field_path(), message).with_hint(hint));
        }
    }

    pub(crate) fn into_problems(self) -> Vec<Problem> {
        self.problems
    }
}

/// Returns `did you mean "x"?` for the candidate nearest to the written text, if one is near enough.
pub fn did_you_mean<'a>(written: &str, candidates: impl Iterator<Item = &'a str>) -> Option<String> {
    nearest(written, candidates).map(|candidate| format!("did you mean {candidate:?}?"))
}

/// Maximum number of names that an error lists.
const LISTED: usize = 12;

/// Formats `there is no WHAT "x"`, with the nearest known name, or with all known names if none is near and
/// they are few. `list` is the command that lists more.
#[must_use]
pub fn unknown_name(what: &str, written: &str, known: &[&str], list: &str) -> String {
    let text = format!("there is no {what} {written:?}");
    match (did_you_mean(written, known.iter().copied()), known.len()) {
        (Some(hint), _) => format!("{text} ({hint})"),
        (None, 0) => format!("{text}; there are none"),
        (None, 1) => format!("{text}; known is {}", known.join(", ")),
        (None, 2..=LISTED) => format!("{text}; known are {}", known.join(", ")),
        (None, count) => format!("{text}; `{list}` lists all {count}"),
    }
}

/// Returns the candidate nearest to the written text, if it is near enough to be a typing error.
pub fn nearest<'a>(written: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // Texts this long are no mistyped names, and comparing costs the product of the lengths.
    if written.is_empty() || written.len() > 64 {
        return None;
    }
    let lower = written.to_lowercase();
    candidates
        .filter(|candidate| !candidate.is_empty())
        .map(|candidate| (strsim::damerau_levenshtein(&lower, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= 2.max(candidate.len().min(written.len()) / 3).min(4))
        .filter(|(distance, candidate)| *distance < candidate.chars().count())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_come_with_the_nearest_or_with_a_short_list() {
        let many: Vec<String> = (0..30).map(|n| format!("option{n:02}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).chain(["port", "protocol"]).collect();
        for (written, known, text) in [
            ("prot", &many[..], "there is no option \"prot\" (did you mean \"port\"?)"),
            ("Protokol", &many, "there is no option \"Protokol\" (did you mean \"protocol\"?)"),
            ("zzz", &many, "there is no option \"zzz\"; `pilotfish x` lists all 32"),
            ("zzz", &["a", "b"], "there is no option \"zzz\"; known are a, b"),
            ("zzz", &["a"], "there is no option \"zzz\"; known is a"),
            ("zzz", &[], "there is no option \"zzz\"; there are none"),
        ] {
            assert_eq!(unknown_name("option", written, known, "pilotfish x"), text);
        }
    }

    #[test]
    fn hints_name_only_what_is_close() {
        let fields = ["hosts", "gateways", "http", "tls", "tcp", "exportTo"];
        let hint = |written| did_you_mean(written, fields.into_iter());
        assert_eq!(hint("host").as_deref(), Some("did you mean \"hosts\"?"));
        assert_eq!(hint("exportto").as_deref(), Some("did you mean \"exportTo\"?"));
        assert_eq!(hint("gatway").as_deref(), Some("did you mean \"gateways\"?"));
        assert_eq!(hint("completelyOther"), None);
        assert_eq!(hint(&"h".repeat(10_000)), None);
    }
}
