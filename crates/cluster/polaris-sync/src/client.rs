//! Client of Polaris's HTTP API.

use crate::codes::{Failure, FailureClass, is_done, of_class};
use crate::credentials::Credentials;
use crate::metrics::SyncMetrics;
use crate::wire::Answer;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use parking_lot::Mutex;
use pilotfish_connect::{Connector, HttpAnswer, HttpClient, HttpRequest, Scheme, Server, Target, TlsOptions};
use pilotfish_runtime::{ErrorClass, Jitter, error_chain};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Schemes of an address, with the default port of the server's HTTP API.
const SCHEMES: &[Scheme] =
    &[Scheme { name: "http", port: 8090, is_tls: false }, Scheme { name: "https", port: 443, is_tls: true }];
/// Maximum number of concurrent requests.
const REQUESTS: usize = 5;
/// Maximum size of an answer in bytes. A page has 100 instances, each with at most 64 metadata entries of 4
/// KiB.
const MAX_ANSWER: usize = 64 << 20;
/// Maximum honoured `Retry-After` in seconds.
const MAX_RETRY_AFTER: u64 = 60;

/// Server address, TLS and credentials.
pub struct ClientSettings {
    /// HTTP addresses of the server.
    pub address: Target,
    /// TLS options for `https`.
    pub tls: Option<TlsOptions>,
    pub credentials: Credentials,
    /// Timeout of a request.
    pub timeout: Duration,
}

impl ClientSettings {
    /// Parses an address: `HOST`, `HOST:PORT`, `http://HOST:PORT` or `https://HOST`.
    ///
    /// # Errors
    /// With what is wrong, in one line.
    pub fn parse_address(text: &str) -> Result<Target, String> {
        Target::parse(text, SCHEMES)
    }
}

/// HTTP client with failover between servers. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    http: HttpClient,
    shared: Arc<Shared>,
}

struct Shared {
    servers: Vec<Server>,
    prefix: String,
    /// Index of the server that answered last.
    current: AtomicUsize,
    credentials: Credentials,
    timeout: Duration,
    jitter: Mutex<Jitter>,
    metrics: Arc<SyncMetrics>,
}

impl Client {
    /// Creates a client; it connects at its first request.
    #[must_use]
    pub fn new(settings: ClientSettings, metrics: Arc<SyncMetrics>) -> Self {
        let ClientSettings { address, tls, credentials, timeout } = settings;
        let http = HttpClient::new(Connector::new(tls), REQUESTS);
        let jitter = Mutex::new(Jitter::default());
        let (servers, prefix) = (address.servers, address.path);
        let current = AtomicUsize::new(0);
        Self {
            http,
            shared: Arc::new(Shared { servers, prefix, current, credentials, timeout, jitter, metrics }),
        }
    }

    /// Maximum number of concurrent requests.
    pub(crate) const CONCURRENCY: usize = REQUESTS;

    /// Checks that the server answers.
    ///
    /// # Errors
    /// When it does not.
    pub async fn ping(&self) -> Result<(), Failure> {
        let answer = self.send("ping", &Method::GET, "/", &[], None).await?;
        if answer.status.is_success() { Ok(()) } else { Err(of_status(&answer)) }
    }

    /// Sends a request to the console API. If the token is refused, it is read or requested again, and the
    /// request is repeated once.
    ///
    /// # Errors
    /// When there is no answer of Polaris, or a query failed. The result code of a write is checked by the
    /// caller.
    pub(crate) async fn call(
        &self,
        operation: &'static str,
        method: Method,
        path: &str,
        body: Option<&serde_json::Value>,
    ) -> Result<Answer, Failure> {
        let body = body.map(ToString::to_string).unwrap_or_default();
        let token = self.token(false).await?;
        let first = self.attempt(operation, &method, path, body.as_bytes(), token.as_deref()).await;
        let denied = |answer: &Result<Answer, Failure>| match answer {
            Ok(answer) => {
                Failure::of_code(answer.code, "").class == FailureClass::Denied && !is_done(answer.code)
            }
            Err(failure) => failure.class == FailureClass::Denied,
        };
        if !denied(&first) {
            return first;
        }
        let fresh = self.token(true).await?;
        if fresh == token {
            return first;
        }
        self.attempt(operation, &method, path, body.as_bytes(), fresh.as_deref()).await
    }

    /// Sends a query; its error codes become failures.
    pub(crate) async fn query(&self, operation: &'static str, path: &str) -> Result<Answer, Failure> {
        let answer = self.call(operation, Method::GET, path, None).await?;
        if is_done(answer.code) { Ok(answer) } else { Err(Failure::of_code(answer.code, &answer.info)) }
    }

    async fn token(&self, fresh: bool) -> Result<Option<Arc<str>>, Failure> {
        let credentials = &self.shared.credentials;
        let own = credentials.token(fresh).await?;
        let Some(operator) = &credentials.operator else { return Ok(own) };
        if !fresh && let Some(known) = credentials.operator_token() {
            return Ok(Some(known));
        }
        let id: String = form_urlencoded::byte_serialize(operator.as_bytes()).collect();
        let path = format!("/core/v1/user/token?id={id}");
        let answer = self.attempt("operator_token", &Method::GET, &path, &[], own.as_deref()).await?;
        let token = answer.user.map(|user| user.auth_token).filter(|token| !token.is_empty());
        if !is_done(answer.code) {
            return Err(Failure::of_code(
                answer.code,
                &format!("the token of operator {operator}: {}", answer.info),
            ));
        }
        let Some(token) = token.filter(|token| !token.contains(char::is_control)) else {
            return Err(Failure::new(FailureClass::Denied, format_args!("operator {operator} has no token")));
        };
        credentials.set_operator_token(Some(token.as_str().into()));
        Ok(Some(token.into()))
    }

    async fn attempt(
        &self,
        operation: &'static str,
        method: &Method,
        path: &str,
        body: &[u8],
        token: Option<&str>,
    ) -> Result<Answer, Failure> {
        let answer = self.send(operation, method, path, body, token).await?;
        // Errors of the router, and of proxies in front of it, are plain text.
        let Ok(parsed) = serde_json::from_slice::<Answer>(&answer.body) else {
            return Err(of_status(&answer));
        };
        if parsed.code == 0 {
            return Err(of_status(&answer));
        }
        let class = Failure::of_code(parsed.code, "").class;
        if !is_done(parsed.code) && class == FailureClass::Transient {
            return Err(Failure {
                retry_after: retry_after(&answer),
                ..Failure::of_code(parsed.code, &parsed.info)
            });
        }
        Ok(parsed)
    }

    /// Sends to the server that answered last; if it cannot be reached, to the next one.
    async fn send(
        &self,
        operation: &'static str,
        method: &Method,
        path: &str,
        body: &[u8],
        token: Option<&str>,
    ) -> Result<HttpAnswer, Failure> {
        let Shared { servers, prefix, current, timeout, metrics, .. } = &*self.shared;
        let mut last = Failure::new(FailureClass::Transient, "there is no server");
        for _ in 0..servers.len() {
            let at = current.load(Ordering::Relaxed) % servers.len();
            let Some(server) = servers.get(at) else { break };
            let request = HttpRequest {
                method: method.clone(),
                path: format!("{prefix}{path}"),
                headers: self.headers(token)?,
                body: body.to_vec().into(),
                timeout: *timeout,
                limit: MAX_ANSWER,
            };
            let began = Instant::now();
            match self.http.send(server, request).await {
                Ok(answer) => {
                    let code = answer.headers.get("x-polaris-code").and_then(|code| code.to_str().ok());
                    let code = code.map_or_else(|| answer.status.as_str().to_owned(), str::to_owned);
                    metrics.request(operation, &code, began.elapsed());
                    return Ok(answer);
                }
                Err(error) => {
                    metrics.request(operation, "none", began.elapsed());
                    last = Failure::new(FailureClass::Transient, error_chain(&error));
                    let next = at + 1;
                    let _ = current.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
                    // A request that may have arrived is not repeated.
                    if !error.is_connect() {
                        break;
                    }
                }
            }
        }
        Err(last)
    }

    fn headers(&self, token: Option<&str>) -> Result<HeaderMap, Failure> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let bad = |error| Failure::new(FailureClass::Denied, format_args!("no header can carry it: {error}"));
        headers
            .insert(HeaderName::from_static("request-id"), HeaderValue::from_str(&self.id()).map_err(bad)?);
        if let Some(token) = token {
            let mut value = HeaderValue::from_str(token).map_err(bad)?;
            value.set_sensitive(true);
            headers.insert(HeaderName::from_static("x-polaris-token"), value);
        }
        Ok(headers)
    }

    /// Returns a UUID of version 4.
    fn id(&self) -> String {
        let (a, b) = {
            let mut jitter = self.shared.jitter.lock();
            (jitter.bits(), jitter.bits())
        };
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            a >> 32,
            a >> 16 & 0xffff,
            a & 0xfff,
            0x8000 | b >> 48 & 0x3fff,
            b & 0xffff_ffff_ffff
        )
    }
}

fn of_status(answer: &HttpAnswer) -> Failure {
    let class = of_class(ErrorClass::of_http(answer.status.as_u16()));
    // A response that is not Polaris's, such as a proxy's page, does not mean that the elements were refused.
    let class = match class {
        FailureClass::Missing | FailureClass::Refused if answer.status != StatusCode::PAYLOAD_TOO_LARGE => {
            FailureClass::Denied
        }
        class => class,
    };
    let text = String::from_utf8_lossy(answer.body.get(..200).unwrap_or(&answer.body)).into_owned();
    let message = format!("status {} and no answer of Polaris: {text:?}", answer.status.as_u16());
    Failure { retry_after: retry_after(answer), ..Failure::new(class, message) }
}

fn retry_after(answer: &HttpAnswer) -> Duration {
    let seconds =
        answer.headers.get("retry-after").and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    Duration::from_secs(seconds.unwrap_or_default().min(MAX_RETRY_AFTER))
}
