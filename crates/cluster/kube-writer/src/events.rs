//! Kubernetes Events, as shown by `kubectl describe`.

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use pilotfish_kube::request::{RequestError, within};
use std::time::Duration;

/// Timeout of the request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a message in bytes.
const MAX_MESSAGE: usize = 1024;

/// A warning about a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceWarning {
    pub namespace: String,
    pub name: String,
    /// Reason of the Event, in CamelCase.
    pub reason: &'static str,
    /// Fault and its effect.
    pub message: String,
    /// Unique for each Event: a part of its name.
    pub id: u64,
}

/// Writes an Event of the type Warning.
///
/// # Errors
/// If the API server does not accept it.
pub async fn warn(client: Client, warning: &ServiceWarning) -> Result<(), RequestError> {
    let api: Api<Event> = Api::namespaced(client, &warning.namespace);
    within(TIMEOUT, api.create(&PostParams::default(), &event(warning, Timestamp::now()))).await.map(drop)
}

fn event(warning: &ServiceWarning, now: Timestamp) -> Event {
    let ServiceWarning { namespace, name, reason, message, id } = warning;
    let mut message = message.clone();
    if message.len() > MAX_MESSAGE {
        let end = (0..=MAX_MESSAGE - 3).rev().find(|at| message.is_char_boundary(*at)).unwrap_or_default();
        message.truncate(end);
        message.push('…');
    }
    // The name of a Service has at most 63 bytes, so this fits.
    let metadata = ObjectMeta {
        name: Some(format!("{name}.{id:016x}")),
        namespace: Some(namespace.clone()),
        ..ObjectMeta::default()
    };
    Event {
        metadata,
        involved_object: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Service".to_owned()),
            namespace: Some(namespace.clone()),
            name: Some(name.clone()),
            ..ObjectReference::default()
        },
        reason: Some((*reason).to_owned()),
        message: Some(message),
        type_: Some("Warning".to_owned()),
        source: Some(EventSource { component: Some("pilotfish".to_owned()), host: None }),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        count: Some(1),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_about_its_service_and_not_too_long() {
        let warning = ServiceWarning {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            reason: "PolarisRegister",
            message: "ü".repeat(600),
            id: 7,
        };
        let event = event(&warning, Timestamp::UNIX_EPOCH);
        assert_eq!(event.metadata.name.as_deref(), Some("web.0000000000000007"));
        assert_eq!(event.involved_object.kind.as_deref(), Some("Service"));
        let message = event.message.unwrap_or_default();
        assert!(message.len() <= MAX_MESSAGE && message.ends_with('…'), "{}", message.len());
    }
}
