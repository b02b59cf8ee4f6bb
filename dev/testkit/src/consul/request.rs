//! Generic parts of requests and responses.

use super::connection::Content;
use super::options::{Asked, ConsulFault, Rights};
use super::read::get;
use super::server::{Shared, State};
use super::write::write;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::Value;
use std::convert::Infallible;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use tokio::time::{Instant, sleep};

/// [kv] A value may have 512 KiB; JSON around it is small.
pub(super) const MAX_BODY: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Refusal(pub(super) StatusCode, pub(super) String);

pub(super) type Answer<T> = Result<T, Refusal>;

pub(super) fn refuse<T>(status: StatusCode, text: impl Into<String>) -> Answer<T> {
    Err(Refusal(status, text.into()))
}

pub(super) struct Query(pub(super) Vec<(String, String)>);

impl Query {
    pub(super) fn parse(query: &str) -> Self {
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        });
        Self(pairs.collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
}

/// Percent-decodes a part of a URL.
pub(super) fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let high =
            (byte == b'%').then(|| rest.clone().next()).flatten().and_then(|c| (c as char).to_digit(16));
        let low = high.and_then(|_| rest.clone().nth(1)).and_then(|c| (c as char).to_digit(16));
        match (byte, high, low) {
            (b'+', ..) => bytes.push(b' '),
            (_, Some(high), Some(low)) => {
                rest.nth(1);
                bytes.push(u8::try_from(high * 16 + low).unwrap_or_default());
            }
            _ => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Result of a handler: a value, and the headers of a read.
pub(super) struct Found {
    pub(super) status: StatusCode,
    pub(super) body: Content,
    pub(super) json: bool,
    pub(super) headers: Vec<(&'static str, String)>,
}

impl Found {
    pub(super) fn json(value: &Value) -> Self {
        let bytes = Some(Bytes::from(value.to_string()));
        Self {
            status: StatusCode::OK,
            body: Content { bytes, ..Content::default() },
            json: true,
            headers: Vec::new(),
        }
    }

    /// Empty response of agent endpoints that only confirm.
    pub(super) fn nothing() -> Self {
        let body = Content::default();
        Self { status: StatusCode::OK, body, json: false, headers: Vec::new() }
    }
}

pub(super) async fn serve(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Content>, Infallible> {
    let (head, body) = request.into_parts();
    let answer = match Limited::new(body, MAX_BODY).collect().await {
        Ok(body) => serve_whole(&shared, &head, &body.to_bytes()).await,
        Err(_) => refuse(StatusCode::PAYLOAD_TOO_LARGE, "Request body too large"),
    };
    Ok(answer.map_or_else(response_of_refusal, response))
}

pub(super) fn response(found: Found) -> Response<Content> {
    let mut response = Response::new(found.body);
    *response.status_mut() = found.status;
    if found.json {
        response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    }
    for (name, value) in found.headers {
        if let Ok(value) = value.parse() {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

pub(super) fn response_of_refusal(Refusal(status, text): Refusal) -> Response<Content> {
    let mut response = Response::new(Content { bytes: Some(text.into()), ..Content::default() });
    *response.status_mut() = status;
    response
}

/// [index, authentication] Token from one of two headers, or, deprecated, from a parameter.
pub(super) fn token(headers: &HeaderMap, query: &Query) -> Option<String> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = || text("authorization").and_then(|value| value.strip_prefix("Bearer "));
    let token = text("x-consul-token").or_else(bearer).or_else(|| query.get("token"));
    token.filter(|token| !token.is_empty()).map(str::to_owned)
}

pub(super) async fn serve_whole(shared: &Arc<Shared>, head: &Parts, body: &Bytes) -> Answer<Found> {
    let query = Query::parse(head.uri.query().unwrap_or_default());
    let token = token(&head.headers, &query);
    let path = head.uri.path();
    note(shared, head, token.as_deref());
    let fault = fault_for(&shared.lock(), path);
    match &fault {
        Some(ConsulFault::Status(status, text)) => {
            return refuse(StatusCode::from_u16(*status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), text);
        }
        Some(ConsulFault::Hang) => std::future::pending().await,
        Some(ConsulFault::Slow(time)) => sleep(*time).await,
        _ => {}
    }
    let parts: Vec<String> = path.trim_start_matches('/').split('/').map(decode).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let ["v1", parts @ ..] = parts.as_slice() else {
        return refuse(StatusCode::NOT_FOUND, "404 page not found");
    };
    let rights = rights(&shared.lock(), token.as_deref())?;
    let found = if head.method == Method::GET {
        get(shared, path, parts, &query, &rights, token.is_some()).await
    } else {
        write(shared, &head.method, parts, &query, body, &rights)
    };
    // A blocked query is also affected by faults that were injected during its wait.
    let fault = fault_for(&shared.lock(), path);
    Ok(spoil(fault.as_ref(), found?))
}

pub(super) fn note(shared: &Shared, head: &Parts, token: Option<&str>) {
    let mut state = shared.lock();
    let kind: Vec<&str> = head.uri.path().split('/').skip(2).take(2).collect();
    *state.counts.requests.entry(format!("{} {}", head.method, kind.join("/"))).or_default() += 1;
    if let Some(asked) = &mut state.asked {
        asked.push(Asked { at: Instant::now(), uri: head.uri.to_string(), token: token.map(str::to_owned) });
    }
}

pub(super) fn fault_for(state: &State, path: &str) -> Option<ConsulFault> {
    state.faults.iter().find(|(prefix, _)| path.starts_with(prefix.as_str())).map(|(_, fault)| fault.clone())
}

pub(super) fn spoil(fault: Option<&ConsulFault>, mut found: Found) -> Found {
    let half = |bytes: Option<Bytes>| bytes.map(|bytes| bytes.slice(..bytes.len() / 2));
    match fault {
        Some(ConsulFault::Truncated) => found.body.bytes = half(found.body.bytes.take()),
        Some(ConsulFault::Cut) => {
            found.body.bytes = half(found.body.bytes.take());
            found.body.broken = true;
        }
        Some(ConsulFault::Garbled) => found.body.bytes = Some(Bytes::from_static(b"\x00<html>[{\"Node\":3")),
        _ => {}
    }
    found
}

/// [acl] Rights of a token: an unknown one is refused, a missing one is anonymous.
pub(super) fn rights(state: &State, token: Option<&str>) -> Answer<Rights> {
    match (&state.acl, token) {
        (None, _) => Ok(Rights::management()),
        (Some(acl), None) => Ok(acl.anonymous.clone()),
        (Some(acl), Some(token)) => match acl.tokens.get(token) {
            Some(rights) => Ok(rights.clone()),
            None => refuse(StatusCode::FORBIDDEN, "ACL not found"),
        },
    }
}

/// A different number for each call, for jitter and names only.
pub(super) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

pub(super) fn uuid() -> String {
    let (a, b) = (random(), random());
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        a >> 32,
        a >> 16 & 0xffff,
        a & 0xffff,
        b >> 48,
        b & 0xffff_ffff_ffff
    )
}
