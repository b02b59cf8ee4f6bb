//! Audit log: one line for each request that changes state, with the target `audit`, and with the field `log`
//! for formats without targets.

use crate::access::Gate;
use crate::permissions::Caller;
use crate::roles::Role;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use pilotfish_admission::LogLimit;
use std::sync::Arc;
use std::time::Instant;

/// Maximum length of an object in a line, in characters.
const LONGEST: usize = 256;

/// Object of a change, which handlers add to their responses. Never a secret.
#[derive(Clone, Debug)]
pub(crate) struct Object(pub(crate) String);

/// A change: its name in the log, and the role that it needs.
#[derive(Clone)]
pub(crate) struct Change {
    action: &'static str,
    needed: Role,
    gate: Arc<Gate>,
    /// Clients without the role can cause any number of lines.
    refused: Arc<LogLimit>,
}

impl Change {
    pub(crate) fn new(action: &'static str, needed: Role, gate: &Arc<Gate>) -> Self {
        Self { action, needed, gate: gate.clone(), refused: Arc::default() }
    }

    fn log(&self, caller: &Caller, response: &Response) {
        let object = response.extensions().get::<Object>().map_or("", |object| &object.0);
        let object: String = object.chars().take(LONGEST).collect();
        let status = response.status();
        let Caller { who, role, address } = caller;
        let role = role.map_or("none".to_owned(), |role| role.to_string());
        let address = address.map_or("this process".to_owned(), |address| address.to_string());
        let action = self.action;
        let outcome = if status.is_success() { "done" } else { "failed" };
        if status != StatusCode::FORBIDDEN {
            tracing::info!(
                target: "audit", log = "audit", %who, role, address, action, object, outcome,
                "a request to change state"
            );
        } else if let Some(left_out) = self.refused.allow(Instant::now()) {
            let outcome = "refused";
            tracing::warn!(
                target: "audit", log = "audit", %who, role, address, action, object, outcome, left_out,
                "a request to change state"
            );
        }
    }
}

/// Middleware of a change: checks the role of the client, and writes the line.
pub(crate) async fn change(State(change): State<Change>, request: Request, next: Next) -> Response {
    let caller = request.extensions().get::<Caller>().cloned();
    // The gate is before it, and adds the client.
    let Some(caller) = caller else { return StatusCode::FORBIDDEN.into_response() };
    let response = match caller.needs(change.needed) {
        Ok(()) => next.run(request).await,
        Err(denied) => denied.answer(change.gate.metrics()),
    };
    change.log(&caller, &response);
    response
}
