//! Watch of the objects of gateways: those with the label of a Gateway.

use crate::object::{ManagedKind, ObjectId};
use crate::render::GATEWAY_NAME;
use futures::StreamExt;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, WatchEvent, WatchParams};
use kube::core::GroupVersionKind;
use pilotfish_kube::request::{BACKOFF, RequestError, within};
use pilotfish_runtime::{Backoff, Jitter};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

/// Timeout of a page of a list, and of the start of a watch.
const ANSWER: Duration = Duration::from_secs(20);
/// Seconds after which the API server ends a watch.
const WATCH: u32 = 290;
/// Timeout of a watch without events.
const SILENCE: Duration = Duration::from_secs(310);
/// Number of objects on a page of a list.
const PAGE: u32 = 500;
/// Status of a watch whose version the API server no longer has.
const EXPIRED: u16 = 410;

/// Event of a watch on the objects of Gateways.
#[derive(Debug)]
pub(crate) enum Observation {
    /// All objects of a kind.
    Listed(ManagedKind, BTreeMap<ObjectId, Value>),
    /// An object, or its deletion.
    Changed(ObjectId, Option<Value>),
}

/// The receiver is gone.
struct Closed;

/// Watches the objects of a kind until the receiver is dropped.
pub(crate) async fn observe(client: Client, kind: ManagedKind, out: mpsc::Sender<Observation>) {
    let (group, version) = kind.group_version();
    let gvk = GroupVersionKind::gvk(group, version, kind.name());
    let resource = ApiResource::from_gvk_with_plural(&gvk, kind.plural());
    let mut observer = Observer { api: Api::all_with(client, &resource), kind, out, reported: None };
    let mut backoff = Backoff::new(BACKOFF, Jitter::default());
    loop {
        let pause = match observer.list_and_watch().await {
            Err(Closed) => return,
            Ok(Ok(())) => {
                backoff.reset();
                backoff.wait()
            }
            Ok(Err(error)) => {
                observer.failed(&error);
                backoff.wait_at_least(error.retry_after)
            }
        };
        tokio::select! {
            () = sleep(pause) => {}
            () = observer.out.closed() => return,
        }
    }
}

struct Observer {
    api: Api<DynamicObject>,
    kind: ManagedKind,
    out: mpsc::Sender<Observation>,
    /// Last failure that was logged.
    reported: Option<String>,
}

impl Observer {
    /// Sends a list, and the changes after it until the watch ends.
    async fn list_and_watch(&mut self) -> Result<Result<(), RequestError>, Closed> {
        let (objects, mut version) = match self.list().await {
            Ok(listed) => listed,
            Err(error) => return Ok(Err(error)),
        };
        if self.reported.take().is_some() {
            tracing::info!(kind = self.kind.name(), "the objects of gateways can be read again");
        }
        self.send(Observation::Listed(self.kind, objects)).await?;
        loop {
            match self.watch(&mut version).await? {
                Ok(true) => {}
                Ok(false) => return Ok(Ok(())),
                Err(error) => return Ok(Err(error)),
            }
        }
    }

    async fn list(&self) -> Result<(BTreeMap<ObjectId, Value>, String), RequestError> {
        let mut params = ListParams::default().labels(GATEWAY_NAME).limit(PAGE);
        let mut objects = BTreeMap::new();
        loop {
            let page = within(ANSWER, self.api.list(&params)).await?;
            objects.extend(page.items.iter().filter_map(|object| stored(self.kind, object)));
            match page.metadata.continue_.filter(|next| !next.is_empty()) {
                Some(next) => params.continue_token = Some(next),
                None => return Ok((objects, page.metadata.resource_version.unwrap_or_default())),
            }
        }
    }

    /// Sends the changes after a version. Returns true if the watch ended by itself and can be resumed.
    async fn watch(&mut self, version: &mut String) -> Result<Result<bool, RequestError>, Closed> {
        let params = WatchParams::default().labels(GATEWAY_NAME).timeout(WATCH);
        let events = match within(ANSWER, self.api.watch(&params, version)).await {
            Ok(events) => events,
            Err(error) if error.status == Some(EXPIRED) => return Ok(Ok(false)),
            Err(error) => return Ok(Err(error)),
        };
        let mut events = std::pin::pin!(events);
        let mut received = false;
        while let Ok(Some(event)) = timeout(SILENCE, events.next()).await {
            let (object, exists) = match event {
                Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => (object, true),
                Ok(WatchEvent::Deleted(object)) => (object, false),
                Ok(WatchEvent::Bookmark(bookmark)) => {
                    version.clone_from(&bookmark.metadata.resource_version);
                    received = true;
                    continue;
                }
                Ok(WatchEvent::Error(status)) if status.code == EXPIRED => return Ok(Ok(false)),
                Ok(WatchEvent::Error(status)) => {
                    return Ok(Err(RequestError::of_status(status.code, &status.message, 0)));
                }
                Err(error) => return Ok(Err(error.into())),
            };
            received = true;
            if let Some(new) = &object.metadata.resource_version {
                version.clone_from(new);
            }
            if let Some((id, value)) = stored(self.kind, &object) {
                self.send(Observation::Changed(id, exists.then_some(value))).await?;
            }
        }
        // A watch that ends at once without an event is not resumed without a pause.
        Ok(Ok(received))
    }

    async fn send(&self, observation: Observation) -> Result<(), Closed> {
        self.out.send(observation).await.map_err(|_| Closed)
    }

    fn failed(&mut self, error: &RequestError) {
        let text = error.to_string();
        if self.reported.as_ref() != Some(&text) {
            let kind = self.kind.name();
            tracing::warn!(kind, reason = %error, "cannot read the objects of gateways; none is changed until it can");
            self.reported = Some(text);
        }
    }
}

/// Converts an object to what is compared: without its status, and with the names of field managers only.
fn stored(kind: ManagedKind, object: &DynamicObject) -> Option<(ObjectId, Value)> {
    let (name, namespace) = (object.metadata.name.as_deref()?, object.metadata.namespace.as_deref()?);
    let id = ObjectId { kind, namespace: namespace.into(), name: name.into() };
    serde_json::to_value(object).ok().map(|value| (id, reduced(value)))
}

/// Removes the parts of a stored object that change without a change of what it asks for.
pub(crate) fn reduced(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
        if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
            if let Some(entries) = metadata.get_mut("managedFields").and_then(Value::as_array_mut) {
                entries.iter_mut().for_each(without_fields);
            }
            metadata.remove("resourceVersion");
        }
    }
    object
}

/// Reduces an entry of `managedFields` to the manager and its operation.
fn without_fields(entry: &mut Value) {
    if let Some(entry) = entry.as_object_mut() {
        entry.retain(|name, _| matches!(name.as_str(), "manager" | "operation" | "subresource"));
    }
}
