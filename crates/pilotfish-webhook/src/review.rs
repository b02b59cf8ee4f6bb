//! Reviews as the API server sends them (`admission.k8s.io/v1`), and their answers. Nothing here does IO.

use crate::inject::Step;
use base64::Engine;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The one version that is spoken.
const VERSION: &str = "admission.k8s.io/v1";

/// A question of the API server.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Request<'a> {
    /// What the answer must repeat.
    pub(crate) uid: String,
    /// What kind of object it is about.
    #[serde(default)]
    pub(crate) kind: RequestKind,
    /// The name, empty where the API server makes one.
    #[serde(default)]
    pub(crate) name: String,
    /// The namespace, empty for objects without one.
    #[serde(default)]
    pub(crate) namespace: String,
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    #[serde(default)]
    pub(crate) operation: String,
    /// The object as it will be.
    #[serde(default, borrow)]
    pub(crate) object: Option<&'a RawValue>,
}

/// Group, version and kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct RequestKind {
    /// The API group, empty for Kubernetes' first.
    pub(crate) group: String,
    /// The version.
    pub(crate) version: String,
    /// The kind.
    pub(crate) kind: String,
}

/// Why a body is no question.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoReview {
    /// It is not JSON of that form.
    #[error("not an AdmissionReview: {0}")]
    Json(#[from] serde_json::Error),
    /// It is of another version, or another kind.
    #[error("{0:?} is not read, only {VERSION} AdmissionReview is")]
    Version(String),
    /// It is an answer.
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
/// When it is no review of this version.
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

/// The most values that an object may have, at all levels together. Each becomes many times what it is in JSON, and the largest objects
/// that API servers keep have fewer.
pub(crate) const MOST_VALUES: usize = 100_000;

/// At least as many as there are values in a JSON text that was parsed: what separates them is counted, outside of strings.
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

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Response {
    /// That of the question.
    pub(crate) uid: String,
    /// Whether the object is taken.
    pub(crate) allowed: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<Status>,
    /// What is changed of the object: a JSON patch in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) patch: Option<String>,
    /// What kind of patch it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) patch_type: Option<&'static str>,
    /// Warnings that the writer of the object gets either way.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) warnings: Vec<String>,
}

/// Why an object is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Status {
    /// The HTTP status that the writer gets.
    pub(crate) code: u16,
    /// Its word.
    pub(crate) reason: &'static str,
    /// In full sentences.
    pub(crate) message: String,
    /// The same for programs.
    pub(crate) details: Details,
}

/// Which object, and causes by field. `kubectl` prints both, as one may apply a folder of objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Details {
    /// The object's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) name: String,
    /// Its API group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) group: String,
    /// Its kind.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) kind: String,
    /// Each a field.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) causes: Vec<Cause>,
}

/// One cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Cause {
    /// Its word.
    pub(crate) reason: &'static str,
    /// What is wrong with the field.
    pub(crate) message: String,
    /// The field, as in `spec.http[0].timeout`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) field: String,
}

impl Response {
    /// The object is taken.
    #[must_use]
    pub(crate) fn allowed(uid: impl Into<String>) -> Self {
        let uid = uid.into();
        Self { uid, allowed: true, status: None, patch: None, patch_type: None, warnings: Vec::new() }
    }

    /// The object is taken with these changes.
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

    /// The object is refused because it could not be dealt with.
    #[must_use]
    pub(crate) fn failed(uid: impl Into<String>, message: String) -> Self {
        Self::refused(uid, (500, "InternalError"), message)
    }

    /// The object is refused for its content.
    #[must_use]
    pub(crate) fn bad(uid: impl Into<String>, message: String) -> Self {
        Self::refused(uid, (400, "BadRequest"), message)
    }

    fn refused(uid: impl Into<String>, (code, reason): (u16, &'static str), message: String) -> Self {
        let status = Status { code, reason, message, details: Details::default() };
        Self { allowed: false, status: Some(status), ..Self::allowed(uid) }
    }

    /// The body that the API server gets.
    ///
    /// # Errors
    /// Never for these types; there is no panic in its place.
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
