//! Errors of reconciliations.

use pilotfish_kube::request::RequestError;
use pilotfish_runtime::ErrorClass;

#[derive(Debug, thiserror::Error)]
#[error("{step}: {reason}")]
pub(crate) struct StepError {
    /// Current step, such as "reading the Secret".
    step: &'static str,
    reason: String,
    /// `None` for a local error.
    class: Option<ErrorClass>,
}

impl StepError {
    /// A failed request to the API server.
    pub(crate) fn request(step: &'static str, error: impl Into<RequestError>) -> Self {
        let error = error.into();
        Self { step, reason: error.message, class: Some(error.class) }
    }

    /// Creates the error of a step that failed without a request.
    pub(crate) fn local(step: &'static str, reason: impl Into<String>) -> Self {
        Self { step, reason: reason.into(), class: None }
    }

    /// True if the API server refuses it for lack of a permission.
    pub(crate) fn is_denied(&self) -> bool {
        self.class == Some(ErrorClass::Denied)
    }

    /// True if another writer was faster.
    pub(crate) fn is_conflict(&self) -> bool {
        self.class == Some(ErrorClass::Conflict)
    }
}
