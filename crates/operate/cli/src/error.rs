//! Error messages for users: the message first, then a hint.

use pilotfish_api::v1::{Failure, FailureKind};
use std::fmt;
use std::io;

/// Failure of a command.
#[derive(Debug)]
pub struct CliError {
    message: String,
    hint: String,
    names: Vec<String>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// Maximum number of names in an error.
const NAMES: usize = 10;

impl CliError {
    /// Creates an error without a hint.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: String::new(), names: Vec::new(), source: None }
    }

    /// Adds a hint, printed on a line of its own.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: hint.into(), ..self }
    }

    /// Message without the hint.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn has_hint(&self) -> bool {
        !self.hint.is_empty()
    }

    /// Adds names to choose from.
    #[must_use]
    pub fn names(self, names: Vec<String>) -> Self {
        Self { names, ..self }
    }

    pub(crate) fn caused_by(self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self { source: Some(Box::new(source)), ..self }
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if !self.hint.is_empty() {
            write!(f, "\nhint: {}", self.hint)?;
        }
        for name in self.names.iter().take(NAMES) {
            write!(f, "\n  {name}")?;
        }
        match self.names.len().checked_sub(NAMES) {
            Some(more) if more > 0 => write!(f, "\n  and {more} more"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for CliError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| &**source as _)
    }
}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        Self::new("the answer cannot be written").caused_by(error)
    }
}

impl From<Failure> for CliError {
    fn from(failure: Failure) -> Self {
        let hint = match (failure.hint.is_empty(), failure.kind, failure.names.is_empty()) {
            (false, ..) => failure.hint,
            (true, FailureKind::NotFound, false) => "the nearest are".to_owned(),
            (true, FailureKind::Ambiguous, false) => "these have it; name one of them".to_owned(),
            _ => String::new(),
        };
        Self::new(failure.error).hint(hint).names(failure.names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_is_first_then_the_hint_then_names() {
        let failure = Failure::new(FailureKind::NotFound, "no proxy is named web").names(["web-0.shop"]);
        let text = CliError::from(failure).to_string();
        assert_eq!(text, "no proxy is named web\nhint: the nearest are\n  web-0.shop");
    }

    #[test]
    fn many_names_are_counted() {
        let names = (0..12).map(|n| n.to_string()).collect();
        let text = CliError::new("which").names(names).to_string();
        assert!(text.ends_with("\n  9\n  and 2 more"), "{text}");
    }
}
