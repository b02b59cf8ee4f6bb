//! What answers mean for a writer.

use pilotfish_source::ErrorClass;
use std::fmt;
use std::time::Duration;

/// What to do about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureClass {
    /// It passes: try again later.
    Transient,
    /// The token is missing, wrong or lacks rights: somebody has to act, try again seldom.
    Denied,
    /// The server never takes this: only something else helps.
    Refused,
    /// Something that it needs is not there, or what it changes: read again.
    Missing,
}

impl FailureClass {
    /// In one word, for logs and labels of metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Denied => "denied",
            Self::Refused => "refused",
            Self::Missing => "missing",
        }
    }
}

/// Why a call, or an element of it, did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What to do.
    pub class: FailureClass,
    /// Polaris' code; `None` without an answer that has one.
    pub code: Option<u32>,
    /// What the server says, or what happened, in one line.
    pub message: String,
    /// How long the server wants to be left alone.
    pub retry_after: Duration,
}

impl Failure {
    /// An answer with that code.
    pub(crate) fn of_code(code: u32, message: &str) -> Self {
        let message = pilotfish_source::one_line(message);
        Self { class: class_of(code), code: Some(code), message, retry_after: Duration::ZERO }
    }

    /// No answer, or none of Polaris.
    pub(crate) fn new(class: FailureClass, message: impl fmt::Display) -> Self {
        let message = pilotfish_source::one_line(&message.to_string());
        Self { class, code: None, message, retry_after: Duration::ZERO }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            Some(code) => write!(f, "{} ({code})", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for Failure {}

/// Whether a code says that there is nothing left to do.
pub(crate) fn is_done(code: u32) -> bool {
    matches!(code, 200_000..=200_002)
}

/// Discover: the revision is that of the question.
pub(crate) const UNCHANGED: u32 = 200_001;

/// Discover: there is no such service.
pub(crate) const NO_SERVICE: u32 = 400_202;

/// What there is already.
pub(crate) const EXISTS: u32 = 400_201;

/// Whether a code says that what is to be deleted is not there.
pub(crate) fn is_gone(code: u32) -> bool {
    matches!(code, 400_202 | 400_303 | 400_304)
}

/// What a code of a failure means.
fn class_of(code: u32) -> FailureClass {
    match code {
        // The same instance twice in one write of the server; no room left.
        400_208 | 400_230 => FailureClass::Transient,
        400_202 | 400_301 | 400_303 | 400_304 | 400_305 => FailureClass::Missing,
        // A limit of the server, on calls, instances and addresses.
        403_003 => FailureClass::Transient,
        _ => of_class(ErrorClass::of_http(u16::try_from(code / 1000).unwrap_or(500))),
    }
}

/// What an HTTP status means where the body says nothing.
pub(crate) fn of_class(class: ErrorClass) -> FailureClass {
    match class {
        ErrorClass::Transient => FailureClass::Transient,
        ErrorClass::Denied => FailureClass::Denied,
        ErrorClass::Rejected => FailureClass::Refused,
        ErrorClass::Conflict | ErrorClass::Gone => FailureClass::Missing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_its_consequence() {
        use FailureClass::{Denied, Missing, Refused, Transient};
        for (codes, class) in [
            (&[400_001, 400_002, 400_003, 400_103, 400_110, 400_120, 400_131, 400_136, 400_150][..], Refused),
            (&[400_203, 400_204, 400_210, 400_504], Refused),
            (&[400_208, 400_230, 403_003, 429_001, 429_002, 500_000, 500_001, 500_008], Transient),
            (&[400_202, 400_301, 400_303, 400_305], Missing),
            (&[401_000, 401_001, 401_002, 401_003, 401_004, 403_001, 403_002], Denied),
        ] {
            for code in codes {
                assert_eq!(Failure::of_code(*code, "").class, class, "{code}");
            }
        }
        assert!([200_000, 200_001, 200_002].into_iter().all(is_done));
        assert!(!is_done(400_201) && !is_done(401_000));
    }
}
