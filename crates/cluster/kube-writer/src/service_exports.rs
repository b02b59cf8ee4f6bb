//! Creation of ServiceExports (`multicluster.x-k8s.io`), each owned by its Service.

use pilotfish_kube::client::Client;
use pilotfish_kube::request::{RequestError, within};
use pilotfish_runtime::ErrorClass;
use serde_json::{Value, json};
use std::time::Duration;

/// Timeout of one request.
const ANSWER: Duration = Duration::from_secs(10);
const API: &str = "multicluster.x-k8s.io/v1alpha1";

/// Outcome of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exported {
    /// The ServiceExport was created.
    Made,
    /// The ServiceExport existed, and was not changed.
    Known,
    /// The Service does not exist any more.
    NoService,
}

/// Exports a Service, unless it is already exported.
///
/// # Errors
/// If the API server does not respond or does not accept it.
pub async fn export(client: &Client, namespace: &str, name: &str) -> Result<Exported, RequestError> {
    let path = format!("/api/v1/namespaces/{namespace}/services/{name}");
    let service = match send(client, http::Request::get(path).body(Vec::new())).await {
        Ok(service) => service,
        Err(error) if error.class == ErrorClass::Gone => return Ok(Exported::NoService),
        Err(error) => return Err(error),
    };
    let uid = service.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
    let body = made(namespace, name, uid).to_string().into_bytes();
    let request = http::Request::post(format!("/apis/{API}/namespaces/{namespace}/serviceexports"))
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body);
    match send(client, request).await {
        Ok(_) => Ok(Exported::Made),
        Err(error) if error.class == ErrorClass::Conflict => Ok(Exported::Known),
        Err(error) => Err(error),
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

async fn send(client: &Client, request: http::Result<http::Request<Vec<u8>>>) -> Result<Value, RequestError> {
    within(ANSWER, client.request(request?)).await
}
