//! Making ServiceExports (`multicluster.x-k8s.io`), each owned by its Service.

use crate::client::Client;
use crate::watch::chain;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::timeout;

/// How long one request may take.
const ANSWER: Duration = Duration::from_secs(10);
const API: &str = "multicluster.x-k8s.io/v1alpha1";

/// What became of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exported {
    /// It was made.
    Made,
    /// There was one already, which stays as it is.
    Known,
    /// There is no such Service any more.
    NoService,
}

/// Exports a Service, unless it is exported already.
///
/// # Errors
/// Why it cannot be exported now, in one line.
pub async fn export(client: &Client, namespace: &str, name: &str) -> Result<Exported, String> {
    let path = format!("/api/v1/namespaces/{namespace}/services/{name}");
    let service = match ask(client, http::Request::get(path).body(Vec::new())).await {
        Ok(service) => service,
        Err((404, _)) => return Ok(Exported::NoService),
        Err((_, reason)) => return Err(reason),
    };
    let uid = service.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
    let body = made(namespace, name, uid).to_string().into_bytes();
    let request = http::Request::post(format!("/apis/{API}/namespaces/{namespace}/serviceexports"))
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body);
    match ask(client, request).await {
        Ok(_) => Ok(Exported::Made),
        Err((409, _)) => Ok(Exported::Known),
        Err((_, reason)) => Err(reason),
    }
}

fn made(namespace: &str, name: &str, uid: &str) -> Value {
    json!({
        "apiVersion": API,
        "kind": "ServiceExport",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": name, "uid": uid}],
        },
    })
}

/// One request: its answer, or the status (0 without one) and why.
async fn ask(client: &Client, request: http::Result<http::Request<Vec<u8>>>) -> Result<Value, (u16, String)> {
    let request = request.map_err(|error| (0, error.to_string()))?;
    match timeout(ANSWER, client.request::<Value>(request)).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(kube::Error::Api(status))) => Err((status.code, status.message)),
        Ok(Err(error)) => Err((0, chain(&error))),
        Err(_) => Err((0, format!("no answer within {} s", ANSWER.as_secs()))),
    }
}
