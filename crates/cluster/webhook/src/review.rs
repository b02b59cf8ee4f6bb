//! Requests and responses of reviews (`admission.k8s.io/v1`). No IO.

use crate::inject::Step;
use base64::Engine;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// `apiVersion` of the reviews that are answered.
const VERSION: &str = "admission.k8s.io/v1";

/// Review request of the API server.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Request<'a> {
    /// Id that the response must repeat.
    pub(crate) uid: String,
    /// Group, version and kind of the object.
    #[serde(default)]
    pub(crate) kind: RequestKind,
    /// Name; empty if the API server generates one.
    #[serde(default)]
    pub(crate) name: String,
    /// Namespace; empty for cluster-scoped objects.
    #[serde(default)]
    pub(crate) namespace: String,
    /// Operation: `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    #[serde(default)]
    pub(crate) operation: String,
    /// New version of the object.
    #[serde(default, borrow)]
    pub(crate) object: Option<&'a RawValue>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct RequestKind {
    /// API group; empty for the core group.
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
}

/// Reason why a body is not a review request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoReview {
    /// It is not JSON of that form.
    #[error("not an AdmissionReview: {0}")]
    Json(#[from] serde_json::Error),
    /// It has another version or kind.
    #[error("{0:?} is not read, only {VERSION} AdmissionReview is")]
    Version(String),
    /// It is a response.
    #[error("an AdmissionReview without a request")]
    NoRequest,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AdmissionReview<'a> {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(borrow)]
    request: Option<Request<'a>>,
}

/// Parses the body of a review.
///
/// # Errors
/// If it is not a review request of this version.
pub(crate) fn parse(body: &[u8]) -> Result<Request<'_>, NoReview> {
    let review: AdmissionReview<'_> = serde_json::from_slice(body)?;
    if review.api_version != VERSION || review.kind != "AdmissionReview" {
        let mut words = format!("{} {}", review.api_version, review.kind);
        if let Some((end, _)) = words.char_indices().nth(100) {
            words.truncate(end);
        }
        return Err(NoReview::Version(words));
    }
    review.request.ok_or(NoReview::NoRequest)
}

/// Maximum number of values in an object, at all levels together. Each takes many times its JSON size in
/// memory; the largest objects in API servers have fewer.
pub(crate) const MOST_VALUES: usize = 100_000;

/// Upper bound for the number of values in a valid JSON text: counts separators outside of strings.
pub(crate) fn values(json: &[u8]) -> usize {
    let (mut count, mut in_string, mut is_escaped) = (1_usize, false, false);
    for byte in json {
        match (in_string, byte) {
            (true, _) if is_escaped => is_escaped = false,
            (true, b'\\') => is_escaped = true,
            (_, b'"') => in_string = !in_string,
            (false, b',' | b'[' | b'{') => count += 1,
            _ => {}
        }
    }
    count
}

/// Response to a review request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Response {
    /// Id of the request.
    pub(crate) uid: String,
    /// True if the object is accepted.
    pub(crate) allowed: bool,
    /// Reason of the refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<Status>,
    /// JSON patch of the object, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) patch: Option<String>,
    /// Type of the patch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) patch_type: Option<&'static str>,
    /// Warnings for the client, whether or not the object is accepted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) warnings: Vec<String>,
}

/// Reason of a refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Status {
    /// HTTP status for the client.
    pub(crate) code: u16,
    /// Machine-readable reason, such as `Invalid`.
    pub(crate) reason: &'static str,
    /// Message in full sentences.
    pub(crate) message: String,
    /// Object and causes, machine-readable.
    pub(crate) details: Details,
}

/// Object, and causes by field. `kubectl` prints both, as one may apply a directory of objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Details {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) kind: String,
    /// Causes, one for each field.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) causes: Vec<Cause>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Cause {
    /// Machine-readable reason, such as `FieldValueInvalid`.
    pub(crate) reason: &'static str,
    /// Problem of the field.
    pub(crate) message: String,
    /// Path of the field, such as `spec.http[0].timeout`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) field: String,
}

impl Response {
    /// Response that accepts the object unchanged.
    #[must_use]
    pub(crate) fn allowed(uid: impl Into<String>) -> Self {
        let uid = uid.into();
        Self { uid, allowed: true, status: None, patch: None, patch_type: None, warnings: Vec::new() }
    }

    /// Accepts the object with these changes.
    #[must_use]
    pub(crate) fn patched(uid: impl Into<String>, steps: &[Step]) -> Self {
        if steps.is_empty() {
            return Self::allowed(uid);
        }
        match serde_json::to_vec(steps) {
            Ok(patch) => {
                let patch = Some(base64::engine::general_purpose::STANDARD.encode(patch));
                Self { patch, patch_type: Some("JSONPatch"), ..Self::allowed(uid) }
            }
            Err(error) => Self::failed(uid, error.to_string()),
        }
    }

    /// Refuses the object because it could not be processed.
    #[must_use]
    pub(crate) fn failed(uid: impl Into<String>, message: String) -> Self {
        Self::refused(uid, (500, "InternalError"), message)
    }

    /// Refuses the object for its content.
    #[must_use]
    pub(crate) fn bad(uid: impl Into<String>, message: String) -> Self {
        Self::refused(uid, (400, "BadRequest"), message)
    }

    fn refused(uid: impl Into<String>, (code, reason): (u16, &'static str), message: String) -> Self {
        let status = Status { code, reason, message, details: Details::default() };
        Self { allowed: false, status: Some(status), ..Self::allowed(uid) }
    }

    /// Encodes the response body.
    ///
    /// # Errors
    /// Never for these types; avoids a panic.
    pub(crate) fn body(&self) -> Result<Vec<u8>, serde_json::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Answer<'a> {
            api_version: &'static str,
            kind: &'static str,
            response: &'a Response,
        }
        serde_json::to_vec(&Answer { api_version: VERSION, kind: "AdmissionReview", response: self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_question_is_read_with_its_object_untouched() {
        let body = br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"CREATE",
            "kind":{"group":"g","version":"v1","kind":"K"},"object":{"a": 1.10},"oldObject":null,"options":{}}}"#;
        let request = parse(body).unwrap();
        assert_eq!((request.uid.as_str(), request.kind.kind.as_str()), ("1", "K"));
        assert_eq!(request.object.unwrap().get(), r#"{"a": 1.10}"#);
    }

    #[test]
    fn other_versions_and_answers_are_refused() {
        let old =
            br#"{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{"uid":"1"}}"#;
        assert!(parse(old).unwrap_err().to_string().contains("v1beta1"));
        let answer = br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#;
        assert!(matches!(parse(answer), Err(NoReview::NoRequest)));
    }

    proptest! {
        #[test]
        fn garbage_is_an_error(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(parse(&body).is_err());
        }
    }
}
