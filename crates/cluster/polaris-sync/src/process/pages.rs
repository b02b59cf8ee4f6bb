//! HTTP pages with health, metrics and status.

use crate::SyncMetrics;
use anyhow::{Context, Result};
use axum::Router;
use axum::extract::State as Shared;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use parking_lot::Mutex;
use pilotfish_listener::{Limits, Listener};
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

/// Content of the pages.
pub(super) struct State {
    pub(super) metrics: Arc<SyncMetrics>,
    status: Mutex<Status>,
}

/// Status of the sync, at `/debug/syncz`.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Status {
    /// True if this replica leads, and writes to Polaris.
    pub(super) leading: bool,
    /// True if the cluster was read to the end of its first lists.
    pub(super) cluster_listed: bool,
    /// Reason why the cluster cannot be read at present.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cluster_failure: Option<String>,
    /// True after a pass over everything.
    pub(super) synced: bool,
    /// Reason why the last pass failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) polaris_failure: Option<String>,
    /// Number of deletions that wait for a confirmation.
    pub(super) held_deletions: usize,
    /// Number of ready instances that were isolated by others.
    pub(super) isolated_by_others: usize,
    /// Number of services that Polaris should have.
    pub(super) services: usize,
    /// Number of instances that Polaris should have.
    pub(super) instances: usize,
    /// Problems of Services, by their names.
    pub(super) problems: BTreeMap<String, Vec<String>>,
}

impl State {
    pub(super) fn new(metrics: Arc<SyncMetrics>) -> Self {
        Self { metrics, status: Mutex::default() }
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut Status)) {
        change(&mut self.status.lock());
    }
}

/// Binds the listener of the pages.
///
/// # Errors
/// If the address is in use or not one of this machine.
pub(super) async fn bind(address: SocketAddr) -> Result<Listener> {
    let listener = Listener::bind("the admin address", address, Limits::PAGES).await;
    listener.with_context(|| format!("cannot listen on {address}"))
}

pub(super) fn router(state: Arc<State>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics))
        .route("/debug/syncz", get(status))
        .with_state(state)
}

/// Reports readiness once the cluster was read, also without the Lease, because the replica could take over
/// at once. Failures of Polaris do not affect readiness, because a restart would not help.
async fn ready(Shared(state): Shared<Arc<State>>) -> Response {
    let status = state.status.lock().clone();
    let code = if status.cluster_listed { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(status)).into_response()
}

async fn status(Shared(state): Shared<Arc<State>>) -> Json<Status> {
    Json(state.status.lock().clone())
}

async fn metrics(Shared(state): Shared<Arc<State>>) -> Response {
    match state.metrics.text() {
        Ok(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
