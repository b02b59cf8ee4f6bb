//! What goes wrong with the API server, in a line.

use std::fmt::Write;

/// Something that the API server did not do.
#[derive(Debug, thiserror::Error)]
#[error("{doing}: {why}")]
pub(crate) struct Trouble {
    doing: &'static str,
    why: String,
    /// The HTTP status, where there was an answer.
    pub(crate) code: Option<u16>,
}

impl Trouble {
    pub(crate) fn new(doing: &'static str, error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self { doing, why: status.message.clone(), code: Some(status.code) },
            other => Self { doing, why: chain(other), code: None },
        }
    }

    pub(crate) fn other(doing: &'static str, why: impl Into<String>) -> Self {
        Self { doing, why: why.into(), code: None }
    }

    /// Whether somebody else wrote first.
    pub(crate) fn is_conflict(&self) -> bool {
        self.code == Some(409)
    }
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            // Writing to a String cannot fail.
            let _ = write!(text, ": {cause_text}");
        }
        source = cause.source();
    }
    text
}
