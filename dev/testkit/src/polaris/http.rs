//! The HTTP APIs.

use super::aliases;
use super::batch::{Check, Of, Write, batch, element_answer};
use super::checks::{check_instance, check_place, check_service};
use super::codes::{Refusal, info, refusal};
use super::element::{Element, instance_id};
use super::faults::{PolarisFault, Seen, coded};
use super::query::{Query, get_instances, get_namespaces, get_services, page, value};
use super::server::Server;
use super::store::Store;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// [rec client-api] Path of Discover for clients.
const DISCOVER: &str = "/v1/Discover";

pub(super) const MAX_BODY: usize = 8 << 20;

/// A status and a body.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) code: u32,
    pub(super) body: Bytes,
}

impl Answer {
    /// [client] The status is the code without its last three digits.
    pub(super) fn coded(code: u32, body: &Value) -> Self {
        let status = u16::try_from(code / 1000).unwrap_or(500);
        Self { status, code, body: body.to_string().into() }
    }

    /// [rec headers] Errors of the router are plain text.
    pub(super) fn plain(status: u16, text: &'static str) -> Self {
        Self { status, code: 200_000, body: text.into() }
    }

    pub(super) fn into_response(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(self.body));
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        // [rec headers] Even for JSON.
        headers.insert("content-type", http::HeaderValue::from_static("text/plain; charset=utf-8"));
        if self.code != 200_000 {
            headers.insert("x-polaris-code", self.code.into());
            headers.insert("x-polaris-message", http::HeaderValue::from_static(info(self.code)));
        }
        response
    }
}

pub(super) async fn serve_http(listener: TcpListener, server: Arc<Server>) {
    let mut connections = JoinSet::new();
    while let Ok((io, _)) = listener.accept().await {
        let server = server.clone();
        let answer = move |request: Request<Incoming>| {
            let server = server.clone();
            async move { Ok::<_, Gone>(answer_http(&server, request).await?.into_response()) }
        };
        connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(io), service_fn(answer)));
        while connections.try_join_next().is_some() {}
    }
}

/// The connection is closed instead of a response.
#[derive(Debug)]
pub(super) struct Gone;

impl std::fmt::Display for Gone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("closed, as a test wants it")
    }
}

impl std::error::Error for Gone {}

pub(super) async fn answer_http(server: &Server, request: Request<Incoming>) -> Result<Answer, Gone> {
    let (method, path) = (request.method().as_str().to_owned(), request.uri().path().to_owned());
    match server.faults.take(&method, &path) {
        None => Ok(answer_now(server, request).await),
        Some(PolarisFault::Closed | PolarisFault::Down) => Err(Gone),
        Some(PolarisFault::Code(code)) => Ok(coded(code)),
        Some(PolarisFault::Status(status)) => Ok(Answer::plain(status, "not from Polaris")),
        Some(PolarisFault::ClosedAfter) => {
            answer_now(server, request).await;
            Err(Gone)
        }
        Some(PolarisFault::Slow(by)) => {
            let answer = answer_now(server, request).await;
            tokio::time::sleep(by).await;
            Ok(answer)
        }
    }
}

pub(super) async fn answer_now(server: &Server, request: Request<Incoming>) -> Answer {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().trim_end_matches('/');
    if path.is_empty() {
        return Answer::plain(200, "Polaris Server");
    }
    // [rec headers] Other content types are refused.
    let content = parts.headers.get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
    if parts.method != Method::GET && !content.starts_with("application/json") {
        return Answer::plain(415, "415: Unsupported Media Type");
    }
    let token = parts.headers.get("x-polaris-token").and_then(|value| value.to_str().ok());
    let is_console = path.starts_with("/naming/") || path.starts_with("/core/");
    if is_console && !server.allows(token) {
        let mut body = json!({"code": 401_001, "info": info(401_001), "size": 0});
        // [rec auth] A query has an `amount` field, a write an empty list.
        let (name, value) =
            if parts.method == Method::GET { ("amount", json!(0)) } else { ("responses", json!([])) };
        body[name] = value;
        return Answer::coded(401_001, &body);
    }
    let Ok(body) = Limited::new(body, MAX_BODY).collect().await else {
        return Answer::plain(413, "too large");
    };
    let query: Query =
        form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
    let body = body.to_bytes();
    if is_console || path == DISCOVER {
        let header =
            |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        server.faults.saw(Seen {
            method: parts.method.to_string(),
            path: path.to_owned(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            elements: match serde_json::from_slice(&body) {
                Ok(Value::Array(all)) => all.len(),
                Ok(Value::Object(_)) => 1,
                _ => 0,
            },
            id: header("request-id").to_owned(),
            token: header("x-polaris-token").to_owned(),
            at: Instant::now(),
        });
    }
    route(server, &parts.method, path, &query, &body, token)
}

/// [rec auth-users] Token of a user.
pub(super) fn user_token(server: &Server, query: &Query) -> Answer {
    let (_, user) = &*server.tokens.lock().expect("no holder panics");
    match user.as_ref().filter(|(id, _)| value(query, "id") == Some(id)) {
        None => Answer::coded(400_312, &json!({"code": 400_312, "info": info(400_312), "user": null})),
        Some((id, token)) => {
            let user = json!({"id": id, "name": id, "auth_token": token, "token_enable": true});
            Answer::coded(200_000, &json!({"code": 200_000, "info": info(200_000), "user": user}))
        }
    }
}

pub(super) fn route(
    server: &Server,
    method: &Method,
    path: &str,
    query: &Query,
    body: &[u8],
    token: Option<&str>,
) -> Answer {
    let write =
        |of, check: Check, write: Write, is_limited| batch(server, of, body, check, write, is_limited);
    match (method.as_str(), path.strip_prefix("/naming/v1").unwrap_or(path)) {
        ("POST", "/namespaces") => write(Of::Namespaces, |_| None, Store::create_namespace, false),
        ("PUT", "/namespaces") => write(Of::Namespaces, |_| None, Store::update_namespace, false),
        ("POST", "/namespaces/delete") => write(Of::Namespaces, |_| None, Store::delete_namespace, false),
        ("GET", "/namespaces") => server.query(query, get_namespaces),
        ("POST", "/service/alias") => aliases::write(server, body, true),
        ("PUT", "/service/alias") => aliases::write(server, body, false),
        ("POST", "/service/aliases/delete") => write(Of::Aliases, |_| None, Store::delete_alias, false),
        ("GET", "/service/aliases") => aliases::list(server, query),
        ("POST", "/services") => write(Of::Services, check_service, Store::create_service, false),
        ("PUT", "/services") => write(Of::Services, check_service, Store::update_service, false),
        ("POST", "/services/delete") => write(Of::Services, check_service, Store::delete_service, false),
        ("GET", "/services") => server.query(query, get_services),
        ("POST", "/instances") => write(Of::Instances, check_instance, Store::create_instance, true),
        ("PUT", "/instances") => write(Of::Instances, check_instance, Store::update_instance, false),
        ("POST", "/instances/delete") => write(Of::Instances, check_place, Store::delete_instance, true),
        ("GET", "/instances") => server.query(query, get_instances),
        ("GET", "/core/v1/user/token") => user_token(server, query),
        ("GET", "/instances/count") => {
            let count = server.store().instances.len();
            page(200_000, count, "instances", Vec::new(), &Vec::new(), Value::Null)
        }
        ("POST", "/v1/RegisterInstance" | "/v1/DeregisterInstance" | "/v1/Heartbeat") => {
            let Ok(given) = serde_json::from_slice::<Element>(body) else {
                return Answer::coded(400_001, &json!({"code": 400_001, "info": info(400_001)}));
            };
            let (refusal, echo) = client_call(server, path.trim_start_matches("/v1/"), &given, token);
            Answer::coded(refusal.0, &element_answer(Of::Instances, &refusal, echo.as_ref()))
        }
        ("POST", DISCOVER) => {
            // [rec client-auth, client-api] Clients need a token if the server is configured so.
            if server.options.clients_need_token && !server.allows(token) {
                return Answer::coded(401_001, &json!({"code": 401_001, "info": info(401_001)}));
            }
            let given = serde_json::from_slice::<Element>(body).ok();
            given
                .and_then(|given| server.published().answer_http(&given))
                .unwrap_or_else(|| Answer::coded(400_001, &json!({"code": 400_001, "info": info(400_001)})))
        }
        _ => Answer::plain(404, "404: Page Not Found"),
    }
}

/// [client] Calls of clients, over HTTP and gRPC.
pub(super) fn client_call(
    server: &Server,
    call: &str,
    given: &Element,
    token: Option<&str>,
) -> (Refusal, Option<Element>) {
    // [rec client-api] Validation precedes the token check; a heartbeat needs no token.
    if let Some(code) = check_instance(given) {
        return (refusal(code), Some(given.clone()));
    }
    if call != "Heartbeat" && server.options.clients_need_token && !server.allows(token) {
        return (refusal(401_001), None);
    }
    let mut store = server.store();
    let (refusal, echo) = match call {
        "RegisterInstance" => store.create_instance(given),
        "DeregisterInstance" => store.delete_instance(given),
        _ => {
            // [rec grpc-register] Heartbeats of an unknown instance are accepted four times.
            let id = instance_id(given);
            let unknown = !store.instances.contains_key(&id);
            let beats = store.beats_of_unknown.entry(id).or_default();
            *beats = if unknown { *beats + 1 } else { 0 };
            let is_over = *beats > 4;
            let id = instance_id(given);
            if !unknown {
                let beat = store.clock();
                store.beats.insert(id, beat);
            }
            (refusal(if is_over { 400_202 } else { 200_000 }), given.clone())
        }
    };
    (refusal, Some(echo))
}
