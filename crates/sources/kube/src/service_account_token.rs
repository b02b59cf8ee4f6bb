//! Tokens of service accounts with a limited lifetime, by TokenRequest.

use crate::client::Client;
use crate::request::{RequestError, within};
use serde_json::{Value, json};
use std::time::Duration;

/// Timeout of the request.
const ANSWER: Duration = Duration::from_secs(10);
/// Minimum lifetime of a token; API servers refuse shorter ones.
const SHORTEST: Duration = Duration::from_mins(10);

/// Requests a token of a service account. Without audiences it is for the API server.
///
/// # Errors
/// When the names are not those of a service account, or the API server refuses or does not answer.
pub async fn request_token(
    client: &Client,
    namespace: &str,
    account: &str,
    audiences: &[&str],
    lifetime: Duration,
) -> Result<String, RequestError> {
    if !is_name(namespace) || !is_name(account) {
        return Err(RequestError::rejected("its namespace or name is no name of Kubernetes"));
    }
    let mut spec = json!({"expirationSeconds": lifetime.max(SHORTEST).as_secs()});
    if !audiences.is_empty() {
        spec["audiences"] = json!(audiences);
    }
    let wanted = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
    let request = http::Request::post(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(wanted.to_string().into_bytes())
        .map_err(RequestError::rejected)?;
    let answer = within(ANSWER, client.request::<Value>(request)).await?;
    let token = answer.pointer("/status/token").and_then(Value::as_str);
    token.map(str::to_owned).ok_or_else(|| RequestError::rejected("the answer has none"))
}

/// True for the characters of a name, which becomes a part of a path.
fn is_name(name: &str) -> bool {
    let is_known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    !name.is_empty() && name.len() <= 253 && !name.starts_with('.') && name.bytes().all(is_known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::of_config;
    use kube::Config;

    #[tokio::test]
    async fn names_that_lead_to_another_path_are_not_asked_for() {
        let client = of_config(Config::new("http://127.0.0.1:1/".parse().unwrap())).unwrap();
        for (namespace, account) in
            [("shop", "../../secrets"), ("", "web"), ("shop", ""), ("a/b", "web"), ("..", "web")]
        {
            let error = request_token(&client, namespace, account, &[], SHORTEST).await.unwrap_err();
            assert!(error.message.contains("no name of Kubernetes"), "{namespace}/{account}: {error}");
        }
        assert!(is_name("web-0.v1"));
    }
}
