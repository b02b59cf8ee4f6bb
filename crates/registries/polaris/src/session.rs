//! One session: a Discover stream on which everything is asked once, then polled with revisions.

use crate::directory::{Difference, Directory, Question};
use crate::proto::{DiscoverRequest, DiscoverResponse};
use http::uri::PathAndQuery;
use pilotfish_connect::{Connector, SecretOption, Server, grpc_channel};
use pilotfish_runtime::Jitter;
use pilotfish_session::{CatalogWriter, Product, SessionError};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

/// Maximum number of questions in flight.
const WINDOW: usize = 32;
/// Minimum time for that many questions: at most 1,000 a second.
const WINDOW_TIME: Duration = Duration::from_millis(WINDOW as u64);
/// Timeout of an answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of an answer in bytes: all instances of a service.
const MAX_MESSAGE: usize = 64 << 20;

/// The Polaris product: the servers, and the directory of its namespaces.
pub(crate) struct Polaris {
    servers: Vec<Server>,
    /// Index of the next session's server: it advances after a failure.
    next: usize,
    connector: Connector,
    token: SecretOption,
    interval: Duration,
    directory: Directory,
}

impl Product for Polaris {
    async fn session(&mut self, catalog: &mut CatalogWriter) -> Result<Infallible, SessionError> {
        let mut failures = Vec::new();
        for _ in 0..self.servers.len() {
            let server = self.servers.get(self.next % self.servers.len()).cloned();
            let server = server.ok_or_else(|| SessionError::new("the address names no server"))?;
            self.next += 1;
            match self.first_round(&server, catalog).await {
                // A later failure ends the session with an error; the next session uses another server.
                Ok(stream) => {
                    return self.rounds(stream, catalog).await.map_err(|error| error.context(server));
                }
                Err(error) => failures.push(error.context(server).to_string()),
            }
        }
        Err(SessionError::new(failures.join("; ")))
    }
}

/// A Discover stream. Answers arrive in the order of questions.
struct Stream {
    questions: mpsc::Sender<DiscoverRequest>,
    answers: Streaming<DiscoverResponse>,
}

impl Polaris {
    pub(crate) fn new(
        servers: Vec<Server>,
        connector: Connector,
        token: SecretOption,
        interval: Duration,
        directory: Directory,
    ) -> Self {
        // Spreads processes that start at once over the servers.
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "from 0 to the number of servers"
        )]
        let next = (Jitter::default().fraction() * servers.len() as f64) as usize;
        Self { servers, next, connector, token, interval, directory }
    }

    /// Connects, and asks for everything without revisions.
    async fn first_round(
        &mut self,
        server: &Server,
        catalog: &mut CatalogWriter,
    ) -> Result<Stream, SessionError> {
        self.directory.begin();
        let mut questions: VecDeque<Question> = self.directory.questions().into();
        let mut stream = self.connect(server, questions.front()).await?;
        catalog.requested();
        let asked: VecDeque<Question> = questions.pop_front().into_iter().collect();
        self.round(&mut stream, questions, asked, catalog, false).await?;
        catalog.replace(self.directory.services());
        Ok(stream)
    }

    /// Polls for changes, for ever.
    async fn rounds(
        &mut self,
        mut stream: Stream,
        catalog: &mut CatalogWriter,
    ) -> Result<Infallible, SessionError> {
        let mut next = Instant::now() + self.interval;
        loop {
            sleep_until(next).await;
            next = Instant::now() + self.interval;
            let questions = self.directory.questions().into();
            self.round(&mut stream, questions, VecDeque::new(), catalog, true).await?;
            catalog.answered();
        }
    }

    /// Opens the stream with its first question: a server may send response headers only after it.
    async fn connect(&self, server: &Server, first: Option<&Question>) -> Result<Stream, SessionError> {
        let mut grpc =
            Grpc::new(grpc_channel(self.connector.clone(), server)?).max_decoding_message_size(MAX_MESSAGE);
        let (questions, asked) = mpsc::channel(WINDOW);
        let first = first.and_then(|question| self.directory.request(question));
        questions.try_send(first.ok_or_else(|| SessionError::new("no namespace is named"))?)?;
        let mut request = Request::new(ReceiverStream::new(asked));
        if let Some(token) = self.token.read().await? {
            let mut token: MetadataValue<Ascii> = token.parse()?;
            token.set_sensitive(true);
            request.metadata_mut().insert("x-polaris-token", token);
        }
        let path = PathAndQuery::from_static("/v1.PolarisGRPC/Discover");
        let opened = timeout(TIMEOUT, async {
            grpc.ready().await?;
            let answered = grpc.streaming(request, path, ProstCodec::default()).await;
            Ok::<_, SessionError>(answered.map_err(|status| reason(&status))?.into_inner())
        });
        let answers = opened.await.map_err(|_| silent())??;
        Ok(Stream { questions, answers })
    }

    /// Asks these questions, and the follow-up questions of their answers. `asked` are already in flight.
    async fn round(
        &mut self,
        stream: &mut Stream,
        mut questions: VecDeque<Question>,
        mut asked: VecDeque<Question>,
        catalog: &mut CatalogWriter,
        is_told: bool,
    ) -> Result<(), SessionError> {
        let mut count = 0;
        let mut window = Instant::now() + WINDOW_TIME;
        loop {
            while asked.len() < WINDOW
                && let Some(question) = questions.pop_front()
            {
                // The service may have left the list meanwhile.
                let Some(request) = self.directory.request(&question) else { continue };
                stream.questions.try_send(request)?;
                catalog.requested();
                asked.push_back(question);
                count += 1;
            }
            let Some(question) = asked.pop_front() else { return Ok(()) };
            let answer = timeout(TIMEOUT, stream.answers.message()).await.map_err(|_| silent())?;
            let answer = answer.map_err(|status| reason(&status))?;
            let answer = answer.ok_or_else(|| SessionError::new("Polaris ended the stream"))?;
            let Difference { set, removed, ask } = self.directory.take(&question, answer)?;
            questions.extend(ask);
            if is_told && !(set.is_empty() && removed.is_empty()) {
                catalog.apply(set, removed);
            }
            if count >= WINDOW {
                sleep_until(window).await;
                count = 0;
                window = Instant::now() + WINDOW_TIME;
            }
        }
    }
}

fn silent() -> SessionError {
    SessionError::new(format!("Polaris did not answer within {} s", TIMEOUT.as_secs()))
}

/// Returns the message of a status with its causes.
fn reason(status: &Status) -> SessionError {
    match std::error::Error::source(status) {
        Some(source) => SessionError::new(pilotfish_runtime::error_chain(source)),
        None if status.message().is_empty() => SessionError::new(status.code().description()),
        None => SessionError::new(status.message()),
    }
}
