//! Health, metrics and what is going on, over HTTP.

use anyhow::Result;
use axum::Router;
use axum::extract::State as Shared;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use parking_lot::Mutex;
use pilotfish_admin::Bound;
use pilotfish_polaris_sync::SyncMetrics;
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

/// What is told.
pub(super) struct State {
    pub(super) metrics: Arc<SyncMetrics>,
    status: Mutex<Status>,
}

/// What is going on.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Status {
    /// Whether this replica writes.
    pub(super) leading: bool,
    /// Whether the cluster was read.
    pub(super) cluster_listed: bool,
    /// Why it cannot be read now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cluster_failure: Option<String>,
    /// Whether a pass over everything was done.
    pub(super) synced: bool,
    /// Why the last pass failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) polaris_failure: Option<String>,
    /// Deletions that wait for a confirmation.
    pub(super) held_deletions: usize,
    /// Instances that a person has isolated although they are ready.
    pub(super) isolated_by_others: usize,
    /// Services and instances that there should be.
    pub(super) services: usize,
    /// See `services`.
    pub(super) instances: usize,
    /// Problems by Service.
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

pub(super) async fn bind(address: SocketAddr) -> Result<(Bound, SocketAddr)> {
    let bound = Bound::bind(address).await?;
    let address = bound.address();
    Ok((bound, address))
}

pub(super) fn router(state: Arc<State>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics))
        .route("/debug/syncz", get(status))
        .with_state(state)
}

/// A replica is ready when it has read the cluster: one that waits for the Lease could take over at once. What is wrong with Polaris does
/// not make it unready, as restarting would not help.
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
