//! Asking Consul: connections, the token, and what an answer has to be to count.

use crate::answer::{About, Check, Entry, Names};
use crate::query;
use crate::schedule::{Ask, Question};
use crate::settings::{Consistency, Settings};
use http::{HeaderMap, HeaderValue, StatusCode, Version};
use pilotfish_registry::SourceReport;
use pilotfish_registry_client::{HttpAnswer, HttpClient, HttpError, HttpRequest, Server};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Blocking queries on one connection of HTTP/2: a server in Go allows 250, and many proxies 100.
const STREAMS: usize = 100;
/// The largest answers in bytes: lists of names and checks, and the instances of one service.
const LIST_LIMIT: usize = 64 << 20;
const SERVICE_LIMIT: usize = 16 << 20;
/// How much of an error's text is told.
const TOLD: usize = 200;

/// Why an answer does not count.
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

/// What was answered.
#[derive(Debug)]
pub(crate) enum Answer {
    Names(Names),
    Checks(Vec<Check>),
    Entries(Vec<Entry>),
    /// An answer whose index alone counts.
    Nothing,
}

/// A connection to Consul for HTTP/1.1 questions, or some for HTTP/2.
pub(crate) struct Client {
    settings: Arc<Settings>,
    server: Server,
    report: SourceReport,
    /// Each has one connection over HTTP/2, or all of them over HTTP/1.1.
    pools: Vec<Pool>,
}

struct Pool {
    http: HttpClient,
    open: AtomicUsize,
}

/// A place in a pool, while a question is open.
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

    /// How many questions may be open with this version of HTTP, and makes room for them.
    pub(crate) fn speak(&mut self, version: Version) -> usize {
        let connections = self.settings.connections;
        if version != Version::HTTP_2 {
            return connections;
        }
        // The first questions found out, and keep their connection.
        while self.pools.len() < connections {
            let http = HttpClient::http2(self.settings.connector.clone(), STREAMS);
            self.pools.push(Pool { http, open: AtomicUsize::new(0) });
        }
        (connections - 1) * STREAMS
    }

    /// Asks one question. The answer is decoded where it can say something new.
    pub(crate) async fn ask(&self, question: &Question, token: Option<&str>) -> Result<Asked, AskError> {
        let options = &self.settings.query;
        let mut asked = self.ask_with(question, token, options.consistency).await?;
        if options.consistency == Consistency::Stale && asked.about.last_contact > options.max_stale {
            // The server that answered is too far behind: what it says is not used, and the leader is asked.
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
        // Consul lengthens a wait by up to a sixteenth of it.
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
        // Over HTTP/2 the first pool found the version out; it may have a server that needs no more.
        let http2 = self.pools.get(1..).unwrap_or_default();
        let room = http2.iter().find(|pool| pool.open.load(Ordering::Relaxed) < STREAMS);
        let Some(pool) = room.or(self.pools.first()) else { unreachable!("there is a first pool") };
        pool.open.fetch_add(1, Ordering::Relaxed);
        let _place = Place(&pool.open);
        pool.http.send(&self.server, request).await
    }
}

/// An answer that counts.
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
    // The same index: nothing changed, whatever the answer holds. What a token shows changes without it.
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
