//! Errors of sessions with a server.

use crate::{error_chain, one_line};
use std::fmt;

/// The reason for the end of a session, in one line without secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionError(String);

impl SessionError {
    /// An error with this reason. A text from outside is cut to one line of 500 characters.
    #[must_use]
    pub fn new(reason: impl AsRef<str>) -> Self {
        Self(one_line(reason.as_ref()))
    }

    /// Prepends the operation that failed: `CONTEXT: REASON`.
    #[must_use]
    pub fn context(self, context: impl fmt::Display) -> Self {
        Self(one_line(&format!("{context}: {}", self.0)))
    }
}

impl<E: std::error::Error> From<E> for SessionError {
    /// The error with its causes.
    fn from(error: E) -> Self {
        Self(error_chain(&error))
    }
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_their_causes_and_one_line() {
        let error = std::io::Error::other("a\n b");
        assert_eq!(SessionError::from(error).context("GET /x").to_string(), "GET /x: a b");
    }
}
