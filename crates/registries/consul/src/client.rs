//! Requests to Consul: connections, the token, and validation of responses.

use crate::answer::{About, Check, Entry, Names};
use crate::query;
use crate::schedule::{Ask, Question};
use crate::settings::{Consistency, Settings};
use http::{HeaderMap, HeaderValue, StatusCode, Version};
use pilotfish_connect::{HttpAnswer, HttpClient, HttpError, HttpRequest, Server};
use pilotfish_registry::SourceReport;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Maximum number of blocking queries on one HTTP/2 connection: Go servers allow 250, many proxies 100.
const STREAMS: usize = 100;
/// Maximum sizes of responses in bytes: lists of names and checks, and the instances of one service.
const LIST_LIMIT: usize = 64 << 20;
const SERVICE_LIMIT: usize = 16 << 20;
/// Maximum number of characters of an error text in messages.
const TOLD: usize = 200;

/// Reason for not using a response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error("Consul answers {0}{1}")]
    Status(StatusCode, String),
    #[error("the answer has no X-Consul-Index: is that Consul?")]
    NoIndex,
    #[error("the answer is not what Consul's documentation says")]
    Json(#[from] serde_json::Error),
    #[error("the token holds characters that no header may have")]
    Token(#[from] http::header::InvalidHeaderValue),
}

/// Content of a response.
#[derive(Debug)]
pub(crate) enum Answer {
    Names(Names),
    Checks(Vec<Check>),
    Entries(Vec<Entry>),
    /// A response of which only the index is used.
    Nothing,
}

/// Client of one Consul agent or server: some HTTP/1.1 connections, or HTTP/2 connections with many streams.
pub(crate) struct Client {
    settings: Arc<Settings>,
    server: Server,
    report: SourceReport,
    /// One connection each over HTTP/2, or all connections over HTTP/1.1.
    pools: Vec<Pool>,
}

struct Pool {
    http: HttpClient,
    open: AtomicUsize,
}

/// A slot in a pool, held by an open request.
struct Place<'a>(&'a AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Client {
    pub(crate) fn new(settings: Arc<Settings>, server: Server, report: SourceReport) -> Self {
        let http = HttpClient::new(settings.connector.clone(), settings.connections);
        let pools = vec![Pool { http, open: AtomicUsize::new(0) }];
        Self { settings, server, report, pools }
    }

    /// Opens connections for this version of HTTP, and returns the maximum number of open requests.
    pub(crate) fn speak(&mut self, version: Version) -> usize {
        let connections = self.settings.connections;
        if version != Version::HTTP_2 {
            return connections;
        }
        // The first pool detected the version, and keeps its connection.
        while self.pools.len() < connections {
            let http = HttpClient::http2(self.settings.connector.clone(), STREAMS);
            self.pools.push(Pool { http, open: AtomicUsize::new(0) });
        }
        (connections - 1) * STREAMS
    }

    /// Sends one request. The response is decoded only if it may contain a change.
    pub(crate) async fn ask(&self, question: &Question, token: Option<&str>) -> Result<Asked, AskError> {
        let options = &self.settings.query;
        let mut asked = self.ask_with(question, token, options.consistency).await?;
        if options.consistency == Consistency::Stale && asked.about.last_contact > options.max_stale {
            // The responding server is too far behind: its response is dropped, and the leader is asked.
            let now = Question { index: 0, ..question.clone() };
            asked = self.ask_with(&now, token, Consistency::Default).await?;
        }
        Ok(asked)
    }

    async fn ask_with(
        &self,
        question: &Question,
        token: Option<&str>,
        consistency: Consistency,
    ) -> Result<Asked, AskError> {
        let settings = &self.settings;
        let base = &settings.target.path;
        let path = query::path(base, question, &settings.datacenters, &settings.query, consistency);
        let mut request = HttpRequest::get(path);
        if let Some(token) = token {
            let mut value = HeaderValue::from_str(token)?;
            value.set_sensitive(true);
            request.headers =
                HeaderMap::from_iter([(http::HeaderName::from_static("x-consul-token"), value)]);
        }
        // Consul adds up to a sixteenth of the wait as jitter.
        let blocks = if question.index > 0 { question.wait + question.wait / 16 } else { Duration::ZERO };
        request.timeout = blocks + settings.timeout;
        request.limit = match question.ask {
            Ask::Names(_) | Ask::Checks(..) => LIST_LIMIT,
            _ => SERVICE_LIMIT,
        };
        self.report.change(|state| state.requests += 1);
        let answer = self.send(request).await?;
        read(question, &answer, token.is_some())
    }

    async fn send(&self, request: HttpRequest) -> Result<HttpAnswer, HttpError> {
        // The first pool detected HTTP/2; its server may allow fewer streams.
        let http2 = self.pools.get(1..).unwrap_or_default();
        let room = http2.iter().find(|pool| pool.open.load(Ordering::Relaxed) < STREAMS);
        let Some(pool) = room.or(self.pools.first()) else { unreachable!("there is a first pool") };
        pool.open.fetch_add(1, Ordering::Relaxed);
        let _place = Place(&pool.open);
        pool.http.send(&self.server, request).await
    }
}

/// A valid response, with the version of the agent.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) about: About,
    pub(crate) answer: Answer,
    pub(crate) version: Version,
}

fn read(question: &Question, answer: &HttpAnswer, has_token: bool) -> Result<Asked, AskError> {
    if answer.status != StatusCode::OK {
        let text: String = String::from_utf8_lossy(&answer.body).chars().take(TOLD).collect();
        let text = if text.trim().is_empty() { text } else { format!(": {}", text.trim()) };
        return Err(AskError::Status(answer.status, text));
    }
    let about = About::read(&answer.headers, has_token).ok_or(AskError::NoIndex)?;
    // An equal index means no change, except that the visibility of a token changes without it.
    let is_same = question.index > 0 && about.index == question.index && !about.incomplete;
    let body = &answer.body;
    let answer_of = match question.ask {
        _ if is_same => Answer::Nothing,
        Ask::Names(_) => Answer::Names(serde_json::from_slice(body)?),
        Ask::Checks(..) => Answer::Checks(serde_json::from_slice(body)?),
        Ask::Watch(_) | Ask::Fetch(_) => Answer::Entries(serde_json::from_slice(body)?),
        Ask::Probe(_) => Answer::Nothing,
    };
    Ok(Asked { about, answer: answer_of, version: answer.version })
}
