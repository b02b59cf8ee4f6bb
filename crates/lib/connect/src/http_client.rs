//! HTTP client with limits on connections, time and bytes.

use crate::connector::UriConnector;
use crate::places;
use crate::{Connector, Server};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, Version};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Time after which an idle connection is closed.
const IDLE: Duration = Duration::from_secs(30);

/// A request to an HTTP API.
#[derive(Clone, Debug)]
pub struct HttpRequest {
    pub method: Method,
    /// Path and query, from the first slash.
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Timeout of the whole response, without the wait for a free connection.
    pub timeout: Duration,
    /// Maximum size of the response body in bytes.
    pub limit: usize,
}

impl HttpRequest {
    /// A GET request with a timeout of 10 s and a limit of 16 MiB.
    pub fn get(path: impl Into<String>) -> Self {
        Self {
            method: Method::GET,
            path: path.into(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
            timeout: Duration::from_secs(10),
            limit: 16 << 20,
        }
    }
}

/// A complete response of any status.
#[derive(Clone, Debug)]
pub struct HttpAnswer {
    pub status: StatusCode,
    /// The negotiated version: HTTP/2 multiplexes requests on one connection.
    pub version: Version,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// Error of a request without a complete response.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The request cannot be built, for example because of an invalid path.
    #[error("{0} is no request")]
    Request(String, #[source] http::Error),
    /// The connection failed, before or while the server answered.
    #[error("{server}")]
    Connection { server: String, source: hyper_util::client::legacy::Error },
    /// The body ended early or is not valid HTTP.
    #[error("the answer of {server} broke off")]
    Body { server: String, source: Box<dyn std::error::Error + Send + Sync> },
    /// The body is larger than the limit.
    #[error("the answer of {server} has more than {limit} bytes")]
    TooLarge { server: String, limit: usize },
    /// No complete response within the timeout.
    #[error("{server} did not answer within {timeout:?}")]
    Timeout { server: String, timeout: Duration },
}

/// A client for HTTP/1.1, and for HTTP/2 where ALPN selects it. Cheap to clone; clones share connections.
#[derive(Clone)]
pub struct HttpClient {
    client: Client<UriConnector, Full<Bytes>>,
    scheme: &'static str,
    open: Arc<Semaphore>,
}

impl HttpClient {
    /// A client with at most `max_requests` concurrent requests, and as many connections to each server.
    #[must_use]
    pub fn new(connector: Connector, max_requests: usize) -> Self {
        Self::build(connector, max_requests, false)
    }

    /// A client of servers that are known to speak HTTP/2, with at most so many requests at a time on its one
    /// connection. Requests that come before that connection is there wait for it, instead of opening more.
    #[must_use]
    pub fn http2(connector: Connector, max_requests: usize) -> Self {
        Self::build(connector, max_requests, true)
    }

    fn build(connector: Connector, max_requests: usize, http2_only: bool) -> Self {
        let scheme = if connector.is_tls() { "https" } else { "http" };
        let client = Client::builder(TokioExecutor::new())
            .http2_only(http2_only)
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(max_requests)
            .build(UriConnector::with_limit(connector, max_requests));
        Self { client, scheme, open: Arc::new(Semaphore::new(max_requests.clamp(1, Semaphore::MAX_PERMITS))) }
    }

    /// Sends a request to a server and reads the complete response.
    ///
    /// # Errors
    /// When there is no complete response. A response with an error status is not an error.
    pub async fn send(&self, server: &Server, request: HttpRequest) -> Result<HttpAnswer, HttpError> {
        let _place = self.open.acquire().await;
        let timeout = request.timeout;
        let answer = tokio::time::timeout(timeout, places::request(self.answer(server, request))).await;
        answer.unwrap_or_else(|_| Err(HttpError::Timeout { server: server.to_string(), timeout }))
    }

    async fn answer(&self, server: &Server, given: HttpRequest) -> Result<HttpAnswer, HttpError> {
        let uri = format!("{}://{server}{}", self.scheme, given.path);
        let built = Request::builder().method(given.method).uri(&uri).body(Full::new(given.body));
        let mut request = built.map_err(|source| HttpError::Request(given.path, source))?;
        *request.headers_mut() = given.headers;
        let broken = |source| HttpError::Connection { server: server.to_string(), source };
        let (parts, body) = self.client.request(request).await.map_err(broken)?.into_parts();
        let body = Limited::new(body, given.limit).collect().await.map_err(|source| {
            let server = server.to_string();
            if source.is::<LengthLimitError>() {
                HttpError::TooLarge { server, limit: given.limit }
            } else {
                HttpError::Body { server, source }
            }
        })?;
        Ok(HttpAnswer {
            status: parts.status,
            version: parts.version,
            headers: parts.headers,
            body: body.to_bytes(),
        })
    }
}

impl HttpError {
    /// True if no connection was made, so that another server can be tried at once.
    #[must_use]
    pub fn is_connect(&self) -> bool {
        matches!(self, Self::Connection { source, .. } if source.is_connect())
    }
}
