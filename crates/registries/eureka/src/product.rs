//! Sessions with Eureka servers.

use crate::follower::{Ask, Contradiction, Follower, News};
use crate::settings::Settings;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::header::{ACCEPT, AUTHORIZATION};
use http::{HeaderMap, HeaderValue, StatusCode};
use pilotfish_connect::{HttpAnswer, HttpClient, HttpRequest, SecretError, Server};
use pilotfish_eureka_wire::Applications;
use pilotfish_runtime::Jitter;
use pilotfish_session::{CatalogWriter, Product, SessionError};
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// One request at a time, plus one while a failed connection closes.
const MAX_REQUESTS: usize = 2;
/// Maximum size of an answer in bytes: 100,000 instances with large metadata.
const MAX_BYTES: usize = 512 << 20;
/// Maximum number of unreadable instances that are remembered.
const MAX_UNREADABLE: usize = 1_000;
const FULL_TIMEOUT: Duration = Duration::from_secs(30);
const DELTA_TIMEOUT: Duration = Duration::from_secs(10);
/// Jitter of the request interval as a fraction of it.
const SPREAD: f64 = 0.2;

/// The Eureka product, for [`pilotfish_session::live`].
pub(crate) struct Eureka {
    settings: Settings,
    client: HttpClient,
    /// Index of the server in use.
    current: usize,
    jitter: Jitter,
    /// Problems of instances that could not be read.
    unreadable: BTreeSet<Arc<str>>,
}

/// Error of a request.
#[derive(Debug, thiserror::Error)]
enum AskError {
    #[error(transparent)]
    Http(#[from] pilotfish_connect::HttpError),
    #[error("{server} answered {path} with {status}{}", hint(*status))]
    Status { server: String, path: String, status: StatusCode },
    #[error("what {server} answered to {path} cannot be read: {source}")]
    Read { server: String, path: String, source: serde_json::Error },
    #[error("passwordFile: {0}")]
    Password(#[from] SecretError),
    #[error("{server}: {source}")]
    Contradiction { server: String, source: Contradiction },
}

fn hint(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => " (see the options username and passwordFile)",
        StatusCode::NOT_FOUND => " (the address needs the path of the API, as in /eureka)",
        _ => "",
    }
}

impl Eureka {
    pub(crate) fn new(settings: Settings) -> Self {
        let client = HttpClient::new(settings.connector.clone(), MAX_REQUESTS);
        Self { settings, client, current: 0, jitter: Jitter::default(), unreadable: BTreeSet::new() }
    }

    /// Requests from the servers in turn until one answers. Another server may be behind, so it is asked for
    /// everything.
    async fn ask(
        &mut self,
        follower: &mut Follower,
        catalog: &mut CatalogWriter,
    ) -> Result<News, SessionError> {
        let mut ask = self.next(follower, catalog);
        let mut errors = Vec::new();
        for _ in 0..self.settings.servers.len() {
            match self.ask_server(follower, catalog, ask).await {
                Ok(News::AskForEverything) => {
                    ask = Ask::Full;
                    match self.ask_server(follower, catalog, ask).await {
                        Ok(news) => return Ok(news),
                        Err(error) => errors.push(SessionError::from(error).to_string()),
                    }
                }
                Ok(news) => return Ok(news),
                Err(error) => errors.push(SessionError::from(error).to_string()),
            }
            self.current = (self.current + 1) % self.settings.servers.len();
            ask = Ask::Full;
        }
        Err(SessionError::new(errors.join("; ")))
    }

    /// While an answer is held back, only a full answer can confirm or discard it.
    fn next(&self, follower: &Follower, catalog: &CatalogWriter) -> Ask {
        let is_held = catalog.report().state().held.is_some();
        if is_held { Ask::Full } else { follower.next(Instant::now()) }
    }

    /// Records unreadable instances. Problems are forgotten when a full answer no longer has them.
    fn note_unreadable(&mut self, read: &[String], ask: Ask, catalog: &mut CatalogWriter) {
        let now: BTreeSet<Arc<str>> = read.iter().map(|text| text.as_str().into()).collect();
        if matches!(ask, Ask::Full) {
            for gone in std::mem::take(&mut self.unreadable).difference(&now) {
                catalog.note(gone, None);
            }
        }
        for text in now {
            if self.unreadable.len() < MAX_UNREADABLE {
                catalog.note(&text, Some(format!("left out: {text}").into()));
                self.unreadable.insert(text);
            }
        }
    }

    async fn ask_server(
        &mut self,
        follower: &mut Follower,
        catalog: &mut CatalogWriter,
        ask: Ask,
    ) -> Result<News, AskError> {
        let Some(server) = &self.settings.servers.get(self.current).cloned() else {
            return Ok(News::AskForEverything);
        };
        let path = match ask {
            Ask::Full => format!("{}/apps{}", self.settings.path, self.settings.query),
            Ask::Delta => format!("{}/apps/delta{}", self.settings.path, self.settings.query),
        };
        catalog.requested();
        let answer = self.send(server, path.clone(), ask).await?;
        match (ask, answer.status) {
            (_, StatusCode::OK) => {}
            // A server that is configured without deltas refuses them.
            (Ask::Delta, StatusCode::FORBIDDEN | StatusCode::NOT_FOUND) => {
                return Ok(follower.refused_delta());
            }
            (_, status) => return Err(AskError::Status { server: server.to_string(), path, status }),
        }
        // Parsing an answer of many megabytes would block an async thread.
        let read = tokio::task::spawn_blocking(move || Applications::read(&answer.body)).await;
        let read = read.unwrap_or_else(|error| Err(serde::de::Error::custom(error)));
        let read = read.map_err(|source| AskError::Read { server: server.to_string(), path, source })?;
        self.note_unreadable(&read.unreadable, ask, catalog);
        match ask {
            Ask::Delta => Ok(follower.delta(read, Instant::now())),
            Ask::Full => follower
                .full(read, Instant::now())
                .map_err(|source| AskError::Contradiction { server: server.to_string(), source }),
        }
    }

    async fn send(&self, server: &Server, path: String, ask: Ask) -> Result<HttpAnswer, AskError> {
        let timeout = match ask {
            Ask::Full => FULL_TIMEOUT,
            Ask::Delta => DELTA_TIMEOUT,
        };
        let headers = self.headers().await?;
        let request = HttpRequest { headers, timeout, limit: MAX_BYTES, ..HttpRequest::get(path) };
        Ok(self.client.send(server, request).await?)
    }

    async fn headers(&self) -> Result<HeaderMap, AskError> {
        let mut headers = HeaderMap::new();
        // Some servers answer in XML by default.
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let Some((username, password)) = &self.settings.credentials else { return Ok(headers) };
        if let Some(password) = password.read().await? {
            let text = format!("Basic {}", BASE64_STANDARD.encode(format!("{username}:{password}")));
            let mut value = HeaderValue::try_from(text).map_err(|_| SecretError::NotText)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        Ok(headers)
    }

    /// Publishes the result of an answer.
    fn tell(&self, follower: &Follower, catalog: &mut CatalogWriter, news: &News) {
        let replica = follower.replica();
        let service = |name: &Arc<str>| self.settings.mapping.service(name, replica.instances(name));
        match news {
            News::Everything => catalog.replace(replica.services().map(service).collect()),
            News::Services(names) if names.is_empty() => {
                catalog.answered();
                catalog.recovered();
            }
            News::Services(names) => {
                let has = |name: &&Arc<str>| replica.instances(name).next().is_some();
                let (set, gone): (BTreeSet<_>, BTreeSet<_>) = names.iter().partition(has);
                catalog.apply(set.into_iter().map(service).collect(), gone.into_iter().cloned().collect());
            }
            News::AskForEverything => {}
        }
    }
}

impl Product for Eureka {
    async fn session(&mut self, catalog: &mut CatalogWriter) -> Result<Infallible, SessionError> {
        let mut follower = Follower::new(self.settings.mapping.by, self.settings.full_every);
        loop {
            let news = self.ask(&mut follower, catalog).await?;
            self.tell(&follower, catalog, &news);
            let spread = 1.0 + SPREAD * (self.jitter.fraction() - 0.5);
            sleep(self.settings.interval.mul_f64(spread)).await;
        }
    }
}
