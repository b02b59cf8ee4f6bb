//! Products that are written to by HTTP.

use anyhow::{Result, bail};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use pilotfish_connect::{Connector, HttpAnswer, HttpClient, HttpRequest, Server};
use std::time::{Duration, Instant};

/// Timeout for the start of a server.
const START: Duration = Duration::from_secs(20);

/// The HTTP API of a server on loopback. Clones share connections.
#[derive(Clone)]
pub(super) struct HttpApi {
    pub(super) at: Server,
    client: HttpClient,
}

impl HttpApi {
    pub(super) fn new(port: u16) -> Self {
        let at = Server { host: "127.0.0.1".into(), port };
        Self { at, client: HttpClient::new(Connector::default(), 32) }
    }

    /// Waits until a request is answered well.
    pub(super) async fn until_answered(&self, method: Method, path: &str, body: &str) -> Result<()> {
        let began = Instant::now();
        while let Err(error) = self.send(method.clone(), path, body.to_owned()).await {
            if began.elapsed() > START {
                bail!("the server does not answer: {error}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Sends JSON; a status that means failure is one.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
    ) -> Result<HttpAnswer> {
        let request = HttpRequest { method, body: body.into(), ..HttpRequest::get(path) };
        self.ask(request).await
    }

    /// Sends a request with all its fields.
    pub(super) async fn ask(&self, request: HttpRequest) -> Result<HttpAnswer> {
        let json = HeaderValue::from_static("application/json");
        let headers = [(header::ACCEPT, json.clone()), (header::CONTENT_TYPE, json)];
        let request = HttpRequest { headers: HeaderMap::from_iter(headers), ..request };
        let answer = self.client.send(&self.at, request).await?;
        let text = || String::from_utf8_lossy(&answer.body).into_owned();
        if answer.status.is_success() { Ok(answer) } else { bail!("HTTP {}: {}", answer.status, text()) }
    }
}
