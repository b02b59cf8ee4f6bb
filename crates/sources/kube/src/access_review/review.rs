//! SubjectAccessReview: the request, and the interpretation of the answer.

use http::Request;
use pilotfish_model::SecretReader;
use serde::Deserialize;
use serde_json::json;

/// Prefix of the user names of service accounts.
const PREFIX: &str = "system:serviceaccount:";

/// Returns the request that asks whether a service account may list the Secrets of its namespace, as istiod
/// does.
///
/// # Errors
/// When the HTTP request cannot be built, which does not happen.
pub(super) fn request(reader: &SecretReader) -> Result<Request<Vec<u8>>, http::Error> {
    let SecretReader { namespace, service_account, .. } = reader;
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {
            "user": format!("{PREFIX}{namespace}:{service_account}"),
            "resourceAttributes": {"namespace": namespace.as_str(), "verb": "list", "resource": "secrets"},
        },
    });
    Request::post("/apis/authorization.k8s.io/v1/subjectaccessreviews")
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(review.to_string().into_bytes())
}

#[derive(Deserialize)]
struct Review {
    status: Option<Status>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    allowed: bool,
    denied: bool,
    evaluation_error: String,
}

/// Reads the answer of the API server: true if the account may list Secrets.
///
/// # Errors
/// When the answer is no verdict. An authorizer that failed has not denied the access.
pub(super) fn outcome(answer: &str) -> Result<bool, String> {
    let review: Result<Review, _> = serde_json::from_str(answer);
    let status = review.ok().and_then(|review| review.status);
    match status.ok_or("its answer is no SubjectAccessReview")? {
        Status { allowed: true, denied: false, .. } => Ok(true),
        Status { denied: false, evaluation_error, .. } if !evaluation_error.is_empty() => {
            Err(evaluation_error)
        }
        Status { .. } => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_allows_denies_or_is_none() {
        for (status, expected) in [
            (r#"{"allowed": true}"#, Ok(true)),
            (r#"{"allowed": false}"#, Ok(false)),
            ("{}", Ok(false)),
            (r#"{"allowed": true, "denied": true}"#, Ok(false)),
            (r#"{"allowed": true, "evaluationError": "one of two failed"}"#, Ok(true)),
            (r#"{"allowed": false, "evaluationError": "down"}"#, Err("down".to_owned())),
            (r#"{"allowed": false, "denied": true, "evaluationError": "down"}"#, Ok(false)),
            ("null", Err("its answer is no SubjectAccessReview".to_owned())),
            (r#"{"allowed": "yes"}"#, Err("its answer is no SubjectAccessReview".to_owned())),
        ] {
            assert_eq!(outcome(&format!(r#"{{"status": {status}}}"#)), expected, "{status}");
        }
    }

    #[test]
    fn the_request_names_the_account_and_its_namespace() {
        let reader =
            SecretReader { namespace: "edge".into(), service_account: "gateway".into(), vouched: true };
        let request = request(&reader).unwrap();
        let body: serde_json::Value = serde_json::from_slice(request.body()).unwrap();
        let attributes = json!({"namespace": "edge", "verb": "list", "resource": "secrets"});
        let spec = json!({"user": "system:serviceaccount:edge:gateway", "resourceAttributes": attributes});
        assert_eq!(body["spec"], spec);
    }
}
