//! Requests to the API server for tasks, and their outcomes.

use super::admission::group_of;
use super::annotations::{self, CleanUp, Connected, Seen, Verdict};
use super::entry::{API, EntryName, RegistrationRequest, make};
use super::tracker::{Outcome, Task};
use super::{EntryObserver, WorldNow, Written};
use futures::FutureExt;
use k8s_openapi::jiff::Timestamp;
use pilotfish_kube::client::Client;
use pilotfish_kube::request::{RequestError, within};
use pilotfish_runtime::ErrorClass;
use serde_json::Value;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Timeout of one request.
const ANSWER: Duration = Duration::from_secs(10);
/// Maximum number of concurrent requests.
pub(super) const AT_A_TIME: usize = 16;
/// Interval at which a lasting failure is logged.
const REPORT_AGAIN: Duration = Duration::from_secs(30);

/// Shared context of all tasks.
pub(super) struct Writer {
    pub(super) client: Client,
    /// Name of this replica.
    pub(super) replica: Arc<str>,
    pub(super) world: WorldNow,
    pub(super) observer: Arc<dyn EntryObserver>,
    /// Status code of the failure that was logged last (0 without a response), and its time.
    pub(super) reported: Mutex<Option<(u16, Instant)>>,
    pub(super) turns: Semaphore,
}

/// Performs a task of an entry.
pub(super) async fn perform(writer: Arc<Writer>, name: EntryName, task: Task) -> (EntryName, Task, Outcome) {
    // A panic must not leave the entry busy for ever.
    let outcome = match AssertUnwindSafe(writer.perform(&name, &task)).catch_unwind().await {
        Ok(outcome) => outcome,
        Err(_) => {
            tracing::error!(entry = %name, "a write of a WorkloadEntry panicked");
            Outcome::GiveUp
        }
    };
    if matches!(outcome, Outcome::Retry | Outcome::GiveUp) {
        writer.observer.entry(Written::Failed);
    }
    (name, task, outcome)
}

impl Writer {
    /// Logs a failed write at intervals: when an API server is down, a thousand entries fail for one reason.
    fn report_failure(&self, name: &EntryName, code: u16, reason: &str) {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = reported.is_none_or(|(before, at)| {
            at.elapsed() > if before == code { REPORT_AGAIN } else { Duration::from_secs(1) }
        });
        if is_news {
            *reported = Some((code, Instant::now()));
            tracing::warn!(entry = %name, reason, "WorkloadEntries cannot be written now, retrying");
        }
    }

    async fn perform(&self, name: &EntryName, task: &Task) -> Outcome {
        let Ok(_turn) = self.turns.acquire().await else { return Outcome::GiveUp };
        let done = match task {
            Task::Connect { request, at } => self.connect(name, request, *at).await,
            Task::Disconnect { at } => self.disconnect(name, *at).await,
            Task::Report { at, health } => self.report(name, *at, health).await,
            Task::CleanUp { seen, is_sure } => self.clean_up(name, seen, *is_sure).await,
        };
        let error = match done {
            Ok(outcome) => return outcome,
            Err(error) => error,
        };
        let reason = &error.message;
        match (error.class, error.status) {
            (ErrorClass::Gone, _) => Outcome::Missing,
            (ErrorClass::Conflict, _) => Outcome::Retry,
            (ErrorClass::Rejected, Some(_)) => {
                tracing::warn!(
                    entry = %name,
                    reason,
                    "the API server refuses a WorkloadEntry; retrying in the next sweep"
                );
                Outcome::GiveUp
            }
            (_, status) => {
                self.report_failure(name, status.unwrap_or(0), reason);
                Outcome::Retry
            }
        }
    }

    async fn connect(
        &self,
        name: &EntryName,
        request: &RegistrationRequest,
        at: Timestamp,
    ) -> Result<Outcome, RequestError> {
        let mut object = match self.get(name).await {
            Ok(object) => object,
            Err(error) if error.class == ErrorClass::Gone && !request.group.is_empty() => {
                let Some(group) = group_of(request, &(self.world)()) else {
                    tracing::warn!(
                        entry = %name,
                        group = request.group,
                        "the WorkloadGroup does not exist; no WorkloadEntry is created"
                    );
                    return Ok(Outcome::GiveUp);
                };
                let object = make(name, &group, request, &self.replica, at);
                self.send(http::Method::POST, &collection(name), &object).await?;
                tracing::info!(entry = %name, "registered");
                self.observer.entry(Written::Registered);
                return Ok(Outcome::Done);
            }
            Err(error) => return Err(error),
        };
        match annotations::connect(&mut object, &self.replica, at) {
            Connected::Here(Verdict::Write) => {
                self.send(http::Method::PUT, &path(name), &object).await?;
                self.observer.entry(Written::Updated);
                Ok(Outcome::Done)
            }
            Connected::Here(Verdict::Skip) => Ok(Outcome::Done),
            Connected::Elsewhere => Ok(Outcome::Elsewhere),
        }
    }

    async fn disconnect(&self, name: &EntryName, at: Timestamp) -> Result<Outcome, RequestError> {
        let mut object = self.get(name).await?;
        if annotations::disconnect(&mut object, &self.replica, at) == Verdict::Write {
            self.send(http::Method::PUT, &path(name), &object).await?;
            tracing::info!(entry = %name, "disconnected");
            self.observer.entry(Written::Unregistered);
        }
        Ok(Outcome::Done)
    }

    async fn report(
        &self,
        name: &EntryName,
        at: Timestamp,
        health: &Result<(), String>,
    ) -> Result<Outcome, RequestError> {
        let mut object = self.get(name).await?;
        if annotations::report(&mut object, &self.replica, at, health) == Verdict::Write {
            self.send(http::Method::PUT, &format!("{}/status", path(name)), &object).await?;
        }
        Ok(Outcome::Done)
    }

    async fn clean_up(&self, name: &EntryName, seen: &Seen, is_sure: bool) -> Result<Outcome, RequestError> {
        let mut object = match self.get(name).await {
            Ok(object) => object,
            Err(error) if error.class == ErrorClass::Gone => return Ok(Outcome::Done),
            Err(error) => return Err(error),
        };
        match annotations::clean_up(&mut object, &self.replica, seen) {
            CleanUp::Leave => {}
            _ if !is_sure => return Ok(Outcome::Again),
            CleanUp::ForgetHealth => {
                self.send(http::Method::PUT, &format!("{}/status", path(name)), &object).await?;
                tracing::info!(entry = %name, "workload disconnected; its health is now unknown");
            }
            CleanUp::Delete => {
                let version = object.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
                let options = serde_json::json!({
                    "apiVersion": "v1",
                    "kind": "DeleteOptions",
                    "preconditions": {"resourceVersion": version},
                });
                match self.send(http::Method::DELETE, &path(name), &options).await {
                    Err(error) if error.class != ErrorClass::Gone => return Err(error),
                    _ => {
                        tracing::info!(entry = %name, "workload disconnected; deleted its WorkloadEntry");
                        self.observer.entry(Written::Deleted);
                    }
                }
            }
        }
        Ok(Outcome::Done)
    }

    async fn get(&self, name: &EntryName) -> Result<Value, RequestError> {
        let request = http::Request::get(path(name)).body(Vec::new());
        self.request(request).await
    }

    async fn send(&self, method: http::Method, path: &str, object: &Value) -> Result<(), RequestError> {
        let body = object.to_string().into_bytes();
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header(http::header::CONTENT_TYPE, "application/json").body(body);
        self.request(request).await.map(drop)
    }

    async fn request(&self, request: http::Result<http::Request<Vec<u8>>>) -> Result<Value, RequestError> {
        within(ANSWER, self.client.request(request?)).await
    }
}

fn collection(name: &EntryName) -> String {
    format!("/apis/{}/namespaces/{}/workloadentries", API, name.namespace)
}

fn path(name: &EntryName) -> String {
    format!("{}/{}", collection(name), name.name)
}
