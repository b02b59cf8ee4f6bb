//! What goes wrong while certificates and configurations are kept, in a line.

use pilotfish_kube::request::RequestError;
use pilotfish_source::ErrorClass;

/// A step that failed.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {reason}")]
pub(crate) struct StepError {
    /// What was being done, as in "reading the Secret".
    step: &'static str,
    reason: String,
    /// `None` when the error is local.
    class: Option<ErrorClass>,
}

impl StepError {
    /// The API server did not do it.
    pub(crate) fn request(step: &'static str, error: impl Into<RequestError>) -> Self {
        let error = error.into();
        Self { step, reason: error.message, class: Some(error.class) }
    }

    /// It failed here.
    pub(crate) fn local(step: &'static str, reason: impl Into<String>) -> Self {
        Self { step, reason: reason.into(), class: None }
    }

    /// True if the API server refuses it for lack of a right.
    pub(crate) fn is_denied(&self) -> bool {
        self.class == Some(ErrorClass::Denied)
    }

    /// Whether another writer was first.
    pub(crate) fn is_conflict(&self) -> bool {
        self.class == Some(ErrorClass::Conflict)
    }
}
