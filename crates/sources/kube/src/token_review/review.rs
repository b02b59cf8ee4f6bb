//! TokenReview: the request, and the interpretation of the answer. The answer contains the token, so it is
//! never logged.

use super::cache::Outcome;
use super::{ReviewError, ServiceAccount};
use http::Request;
use serde::Deserialize;
use serde_json::json;

/// Group of all service accounts.
const GROUP: &str = "system:serviceaccounts";
/// Prefix of the user names of service accounts.
const PREFIX: &str = "system:serviceaccount:";

/// Returns the request for a token that must be for one of the audiences.
///
/// # Errors
/// When the HTTP request cannot be built, which does not happen.
pub(super) fn request(token: &str, audiences: &[String]) -> Result<Request<Vec<u8>>, http::Error> {
    let review = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
        "spec": {"token": token, "audiences": audiences},
    });
    Request::post("/apis/authentication.k8s.io/v1/tokenreviews")
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(review.to_string().into_bytes())
}

#[derive(Deserialize)]
struct Review {
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    authenticated: bool,
    user: User,
    audiences: Vec<String>,
    error: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct User {
    username: String,
    groups: Vec<String>,
}

/// Reads the answer of the API server of a cluster.
pub(super) fn outcome(answer: &str, audiences: &[String], cluster: &str) -> Outcome {
    let Ok(Review { status }) = serde_json::from_str(answer) else {
        let reason = "its answer is no TokenReview".to_owned();
        return Err(ReviewError::Unavailable { cluster: cluster.to_owned(), reason });
    };
    if !status.authenticated {
        let reason = if status.error.is_empty() { "the API server does not know it" } else { &status.error };
        return Err(ReviewError::Refused(reason.to_owned()));
    }
    // An API server that returns no audiences has not checked them.
    if !status.audiences.iter().any(|audience| audiences.contains(audience)) {
        return Err(ReviewError::Audience(audiences.join(" or ")));
    }
    if !status.user.groups.iter().any(|group| group == GROUP) {
        return Err(ReviewError::NoServiceAccount);
    }
    let account = status.user.username.strip_prefix(PREFIX).and_then(|name| name.split_once(':'));
    match account {
        Some((namespace, name)) if is_part(namespace) && is_part(name) => {
            let (namespace, name) = (namespace.to_owned(), name.to_owned());
            Ok(ServiceAccount { namespace, name, cluster: cluster.into(), expires: None })
        }
        _ => Err(ReviewError::NoServiceAccount),
    }
}

/// True if the text is allowed as a segment of a SPIFFE id.
fn is_part(text: &str) -> bool {
    let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    !text.is_empty() && text.chars().all(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(user: &str, group: &str, audience: &str) -> String {
        json!({"kind": "TokenReview", "spec": {"token": "secret"}, "status": {
            "authenticated": true, "audiences": [audience],
            "user": {"username": user, "groups": ["system:authenticated", group]},
        }})
        .to_string()
    }

    #[test]
    fn an_answer_is_a_service_account_or_a_reason() {
        let web = "system:serviceaccount:shop:web";
        let refused = |error: &str| Err(ReviewError::Refused(error.into()));
        let cases = [
            (
                answer(web, GROUP, "istio-ca"),
                Ok(ServiceAccount {
                    namespace: "shop".into(),
                    name: "web".into(),
                    cluster: "own".into(),
                    expires: None,
                }),
            ),
            (answer(web, GROUP, "other"), Err(ReviewError::Audience("istio-ca or vault".into()))),
            (answer(web, "other", "istio-ca"), Err(ReviewError::NoServiceAccount)),
            (answer("admin", GROUP, "istio-ca"), Err(ReviewError::NoServiceAccount)),
            (answer("system:serviceaccount:shop", GROUP, "vault"), Err(ReviewError::NoServiceAccount)),
            (answer("system:serviceaccount:a/b:web", GROUP, "vault"), Err(ReviewError::NoServiceAccount)),
            (answer("system:serviceaccount:a:b:c", GROUP, "vault"), Err(ReviewError::NoServiceAccount)),
            (
                answer(web, GROUP, "x").replace("\"audiences\":[\"x\"],", ""),
                Err(ReviewError::Audience("istio-ca or vault".into())),
            ),
            (json!({"status": {"error": "it has expired"}}).to_string(), refused("it has expired")),
            (json!({"status": {}}).to_string(), refused("the API server does not know it")),
            (json!({}).to_string(), refused("the API server does not know it")),
        ];
        let audiences = ["istio-ca".to_owned(), "vault".to_owned()];
        for (answer, expected) in cases {
            assert_eq!(outcome(&answer, &audiences, "own"), expected, "{answer}");
        }
    }

    #[test]
    fn an_answer_that_is_none_is_not_shown() {
        let error = outcome("{\"spec\": {\"token\": \"secret\"}, \"status\": 1}", &[], "own").unwrap_err();
        assert!(!error.is_verdict());
        assert!(!error.to_string().contains("secret"), "{error}");
    }

    #[test]
    fn the_request_has_the_token_and_its_audiences() {
        let request = request("secret", &["istio-ca".to_owned()]).unwrap();
        let body: serde_json::Value = serde_json::from_slice(request.body()).unwrap();
        assert_eq!(body["spec"], json!({"token": "secret", "audiences": ["istio-ca"]}));
    }
}
