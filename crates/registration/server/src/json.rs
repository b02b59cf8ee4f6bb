//! The API as JSON over HTTP.

use crate::api::{Api, in_time};
use crate::failure::{Failure, Outcome};
use crate::grpc::Client;
use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use pilotfish_registration_api::v1::{self, error::Code};
use pilotfish_registration_api::{BadRequest, Found, LIMIT_HEADER, NoRoute, Routes, to_json};
use prost::{Message, Name};
use std::convert::Infallible;
use std::sync::Arc;
use tonic::body::Body;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Handles a JSON request.
pub(crate) async fn handle<B>(
    api: &Arc<Api>,
    routes: &Routes,
    client: &Client,
    parts: &Parts,
    body: B,
) -> Response<Body>
where
    B: http_body::Body<Data = Bytes, Error = Failure>,
{
    let found = match routes.find(parts.method.as_str(), parts.uri.path()) {
        Ok(found) => found,
        Err(NoRoute::Path) => {
            return failure(&Failure::new(
                Code::NotFound,
                "there is nothing at this path: /docs tells what there is",
            ));
        }
        Err(NoRoute::Method(allowed)) => {
            let allowed = allowed.join(", ");
            let mut response =
                failure(&Failure::new(Code::Unimplemented, format!("this path has {allowed} only")));
            if let Ok(allowed) = HeaderValue::from_str(&allowed) {
                response.headers_mut().insert(ALLOW, allowed);
            }
            return response;
        }
    };
    let answered = async {
        let body = body.collect().await?.to_bytes();
        call(api, client, &Read { found, parts, body: &body }).await
    };
    answered.await.unwrap_or_else(|error| failure(&error))
}

/// A request with its parsed path and body.
struct Read<'a> {
    found: Found<'a>,
    parts: &'a Parts,
    body: &'a [u8],
}

impl Read<'_> {
    fn message<M: Message + Name + Default>(&self) -> Result<M, BadRequest> {
        self.found.request(self.parts.uri.query().unwrap_or_default(), self.body)
    }
}

async fn call(api: &Arc<Api>, client: &Client, read: &Read<'_>) -> Result<Response<Body>, Failure> {
    let who = &client.who;
    let answer = async {
        Ok(match read.found.binding().rpc() {
            "Register" => success(&api.register(who, read.message()?).await?)?,
            "Renew" => success(&api.renew(who, read.message()?).await?)?,
            "Deregister" => success(&api.deregister(who, read.message()?).await?)?,
            "BatchRegister" => success(&api.batch_register(who, read.message()?).await)?,
            "BatchRenew" => success(&api.batch_renew(who, read.message()?).await)?,
            "BatchDeregister" => success(&api.batch_deregister(who, read.message()?).await)?,
            "GetInstance" => success(&api.get(who, &read.message()?)?)?,
            "ListInstances" => success(&api.list(who, &read.message()?)?)?,
            "Watch" => watch(api, client, read)?,
            other => return Err(Failure::new(Code::Unimplemented, format!("{other} has no HTTP form"))),
        })
    };
    in_time(api.limits.request_timeout, answer).await
}

/// Starts a watch: newline-delimited JSON, or server-sent events with ids for resuming.
fn watch(api: &Arc<Api>, client: &Client, read: &Read<'_>) -> Result<Response<Body>, Failure> {
    let headers = &read.parts.headers;
    let mut request: v1::WatchRequest = read.message()?;
    let accepts = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let is_events = accepts.contains("text/event-stream");
    let mut is_resumed = false;
    if let (true, None, Some(last)) = (is_events, request.resume_revision, headers.get("last-event-id")) {
        let (revision, epoch) = event_id(last)?;
        (request.resume_revision, request.resume_epoch) = (Some(revision), Some(epoch));
        is_resumed = true;
    }
    let responses = match api.watch(&client.who, &client.activity, &request) {
        // EventSource stops at an error and cannot drop its last id, so the watch restarts with a snapshot.
        Err(failure) if is_resumed && failure.code == Code::OutOfRange => {
            (request.resume_revision, request.resume_epoch) = (None, None);
            api.watch(&client.who, &client.activity, &request)?
        }
        responses => responses?,
    };
    let media = if is_events { "text/event-stream" } else { "application/x-ndjson" };
    let frames = lines(responses, is_events).map(|line| Ok::<_, Infallible>(Frame::data(line)));
    let mut response = Response::new(Body::new(StreamBody::new(frames)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response.extensions_mut().insert(Outcome(Code::Ok));
    Ok(response)
}

fn lines(
    responses: impl Stream<Item = Result<v1::WatchResponse, Failure>>,
    is_events: bool,
) -> impl Stream<Item = Bytes> {
    responses.map(move |response| {
        let mut line = Vec::new();
        if is_events {
            if let Ok(response) = &response
                && !response.partial
            {
                line.extend(format!("id: {}-{}\n", response.revision, response.epoch).bytes());
            }
            line.extend(b"data: ");
        }
        match response.and_then(|response| json_of(&response)) {
            Ok(response) => line.extend(response),
            Err(failure) => line.extend(error_json(&failure)),
        }
        line.extend(if is_events { &b"\n\n"[..] } else { b"\n" });
        Bytes::from(line)
    })
}

fn event_id(header: &HeaderValue) -> Result<(u64, u64), Failure> {
    let parsed = header.to_str().ok().and_then(|text| text.split_once('-'));
    let parsed = parsed.and_then(|(revision, epoch)| Some((revision.parse().ok()?, epoch.parse().ok()?)));
    parsed.ok_or_else(|| {
        Failure::new(Code::InvalidArgument, "Last-Event-ID is not of this API: watch without it")
    })
}

fn success<M: Message + Name>(message: &M) -> Result<Response<Body>, Failure> {
    let mut response = bytes(JSON, json_of(message)?.into());
    response.extensions_mut().insert(Outcome(Code::Ok));
    Ok(response)
}

fn json_of<M: Message + Name>(message: &M) -> Result<Vec<u8>, Failure> {
    to_json(message)
        .map_err(|error| Failure::new(Code::Internal, format!("the answer has no JSON form: {error}")))
}

/// Returns a response with this body.
pub(crate) fn bytes(media: HeaderValue, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::new(Full::new(body)));
    response.headers_mut().insert(CONTENT_TYPE, media);
    response
}

/// Returns an error response: status, code, message and fields.
pub(crate) fn failure(failure: &Failure) -> Response<Body> {
    let mut response = bytes(JSON, error_json(failure).into());
    *response.status_mut() =
        StatusCode::from_u16(failure.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    if let Some(limit) = failure.limit {
        headers.insert(LIMIT_HEADER, HeaderValue::from_static(limit));
    }
    if let Some(after) = failure.retry_after {
        headers.insert(RETRY_AFTER, HeaderValue::from(after.as_secs().max(1)));
    }
    if failure.code == Code::Unauthenticated {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response.extensions_mut().insert(Outcome(failure.code));
    response
}

fn error_json(failure: &Failure) -> Vec<u8> {
    // Only durations may have no JSON form, and errors have none.
    let error = to_json(&failure.to_error()).unwrap_or_else(|_| b"{}".to_vec());
    [b"{\"error\":", &error[..], b"}"].concat()
}
