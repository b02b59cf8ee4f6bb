//! Polaris's result codes for writes.

use pilotfish_runtime::ErrorClass;
use std::fmt;
use std::time::Duration;

/// Class of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureClass {
    /// A temporary failure: retry with backoff.
    Transient,
    /// The token is missing, invalid or lacks permission: an operator has to act, so retry rarely.
    Denied,
    /// The server will never accept the element: a retry does not help.
    Refused,
    /// An object that the write needs or changes does not exist: read again.
    Missing,
}

impl FailureClass {
    /// Returns the class as one word, for logs and metric labels.
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

/// Failure of a call, or of an element of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub class: FailureClass,
    /// Polaris's code; `None` without an answer that has one.
    pub code: Option<u32>,
    /// Message of the server, or description of the error, in one line.
    pub message: String,
    /// Minimum delay before the next request, as requested by the server.
    pub retry_after: Duration,
}

impl Failure {
    /// A failure with Polaris's code.
    pub(crate) fn of_code(code: u32, message: &str) -> Self {
        let message = pilotfish_runtime::one_line(message);
        Self { class: class_of(code), code: Some(code), message, retry_after: Duration::ZERO }
    }

    /// A failure without a Polaris answer.
    pub(crate) fn new(class: FailureClass, message: impl fmt::Display) -> Self {
        let message = pilotfish_runtime::one_line(&message.to_string());
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

/// True if the code means success.
pub(crate) fn is_done(code: u32) -> bool {
    matches!(code, 200_000..=200_002)
}

/// Discover: the revision is unchanged.
pub(crate) const UNCHANGED: u32 = 200_001;

/// Discover: the service does not exist.
pub(crate) const NO_SERVICE: u32 = 400_202;

/// The object to create already exists.
pub(crate) const EXISTS: u32 = 400_201;

/// True if the object to delete does not exist.
pub(crate) fn is_gone(code: u32) -> bool {
    matches!(code, 400_202 | 400_303 | 400_304)
}

/// Returns the class of a failure code.
fn class_of(code: u32) -> FailureClass {
    match code {
        // Duplicate instance in one write batch of the server; or no room left.
        400_208 | 400_230 => FailureClass::Transient,
        400_202 | 400_301 | 400_303 | 400_304 | 400_305 => FailureClass::Missing,
        // Rate and quota limits of the server.
        403_003 => FailureClass::Transient,
        _ => of_class(ErrorClass::of_http(u16::try_from(code / 1000).unwrap_or(500))),
    }
}

/// Returns the class of an HTTP error without a code.
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
