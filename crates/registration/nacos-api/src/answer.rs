//! Bodies of HTTP answers.

use crate::call::Version;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use pilotfish_registration_server::{AdapterBody, Failure};
use serde::Serialize;
use serde_json::{Value, json};

/// Codes of version 2.
const INVALID: u32 = 20_002;
const DENIED: u32 = 10_001;
const NOT_FOUND: u32 = 20_004;
const CONFLICT: u32 = 20_005;
const SERVER_ERROR: u32 = 30_000;

/// Returns an answer in the form of a version: the value itself, or an object around it.
pub(crate) fn value(version: Version, value: &impl Serialize) -> Result<Response<AdapterBody>, Failure> {
    let failed = |error| Failure::invalid(format!("the answer has no JSON form: {error}"));
    let data = serde_json::to_value(value).map_err(failed)?;
    Ok(match (version, data) {
        (Version::Two, data) => object(&json!({"code": 0, "message": "success", "data": data})),
        (Version::One, Value::String(text)) => plain(text),
        (Version::One, data) => object(&data),
    })
}

/// Returns the answer to a failure.
pub(crate) fn failure(version: Version, failure: &Failure) -> Response<AdapterBody> {
    let status = status(failure);
    let mut response = match version {
        Version::One => plain(failure.message().to_owned()),
        Version::Two => {
            let code = match status {
                400 => INVALID,
                403 => DENIED,
                404 => NOT_FOUND,
                409 => CONFLICT,
                _ => SERVER_ERROR,
            };
            object(&json!({"code": code, "message": failure.message(), "data": Value::Null}))
        }
    };
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}

/// Returns the HTTP status of a failure. Clients log in again after 403, which Nacos answers to wrong tokens.
pub(crate) fn status(failure: &Failure) -> u16 {
    match failure.http_status() {
        401 => 403,
        status => status,
    }
}

fn plain(text: String) -> Response<AdapterBody> {
    respond(text, "text/plain; charset=utf-8")
}

fn object(value: &Value) -> Response<AdapterBody> {
    respond(value.to_string(), "application/json; charset=utf-8")
}

fn respond(body: String, media: &'static str) -> Response<AdapterBody> {
    let mut response = Response::new(Full::new(Bytes::from(body)).boxed_unsync());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media));
    response
}
