//! The source: sessions with a server, one after the other, and what they find as batches.

use super::content::{Content, ContentSettings, Taken};
use super::settings::McpSettings;
use super::stream::{Answered, ClientStream, Protocol, RELISTED};
use super::synthetic::Synthetic;
use super::transport::{MessageStream, TransportError, TransportSettings, handshake};
use pilotfish_config::{ObjectCheck, Severity, SourceBatch, SourceEvent};
use pilotfish_model::Kind;
use pilotfish_registry::{BatchSender, CatalogProblems, ObjectSource, SourceReport};
use pilotfish_registry_client::{ConnectError, Server};
use pilotfish_source::{Backoff, BackoffPolicy, Jitter, error_chain};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::watch;
use tokio::time::Instant;

/// Istio's: half a second after the first failure, a minute at most.
const RECONNECT: BackoffPolicy = BackoffPolicy::new(Duration::from_millis(500), Duration::from_secs(60));
/// The time until every kind has an answer, before that counts as a failure.
const FIRST_ANSWERS: Duration = Duration::from_secs(30);
/// The time between two requests for lists of which changes are not pushed; longer for more than [`RELIST_RESOURCES`].
const RELIST: Duration = Duration::from_secs(1);
/// Resources of these lists for which [`RELIST`] is the time between two requests.
const RELIST_RESOURCES: usize = 1_000;
/// Bytes of one answer. Ten thousand large ServiceEntries are some 20 MB.
const MOST_BYTES: usize = 256 << 20;
/// The time between two lines of the log about refused answers.
const LOG_AGAIN: Duration = Duration::from_secs(1);
/// Resources of one kind.
const MOST_RESOURCES: usize = 500_000;
/// Refused resources that the source itself lists; `/debug/problemz` has more.
const SHOWN_PROBLEMS: usize = 100;
const TRANSPORT: TransportSettings = TransportSettings {
    most_bytes: MOST_BYTES,
    timeout: Duration::from_secs(10),
    ping: Duration::from_secs(20),
};

const SERVICE: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/";

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
enum SessionError {
    #[error("{}", error_chain(.0))]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error("an answer that is none of xDS: {0}")]
    Malformed(#[from] prost::DecodeError),
    #[error("the second answer of what is held back is due")]
    SecondAnswer,
    #[error("the server's differences have no versions")]
    Unversioned,
    #[error("the process is stopping")]
    Stopping,
}

/// See the module's description.
pub(crate) struct McpSource {
    name: Arc<str>,
    settings: McpSettings,
    content: Content,
    synthetic: Synthetic,
    backoff: Backoff,
    /// What is spoken where the settings leave that open.
    protocol: Protocol,
    /// The server has no lists, so its differences are taken as they are.
    takes_unversioned: bool,
    /// Sessions so far.
    sessions: usize,
    /// When a refused answer was logged last.
    logged: Option<Instant>,
    /// The failure that was reported and is not over.
    failing: Option<String>,
}

impl McpSource {
    pub(crate) fn new(settings: McpSettings, name: &str, checks: Vec<ObjectCheck>) -> Self {
        let name: Arc<str> = name.into();
        let content = ContentSettings {
            origin: name.clone(),
            checks,
            revision: settings.revision.clone(),
            guard: settings.guard,
            most_resources: MOST_RESOURCES,
            kinds: settings.kinds.clone(),
        };
        let synthetic = Synthetic::new(settings.guard);
        let backoff = Backoff::new(RECONNECT, Jitter::default());
        Self {
            name,
            settings,
            content: Content::new(content),
            synthetic,
            backoff,
            protocol: Protocol::Delta,
            takes_unversioned: false,
            sessions: 0,
            logged: None,
            failing: None,
        }
    }

    /// Sessions without end.
    async fn run_sessions(&mut self, batches: &BatchSender) {
        loop {
            let protocol = self.settings.protocol.unwrap_or(self.protocol);
            let mut ended = self.session(protocol, batches).await;
            let lacks = matches!(
                ended,
                SessionError::Transport(TransportError::Unimplemented) | SessionError::Unversioned
            );
            if lacks && self.settings.protocol.is_none() {
                tracing::info!(source = %self.name, reason = %ended, "asking in the other protocol");
                self.try_other(&ended);
                ended = self.session(self.protocol, batches).await;
            }
            if matches!(ended, SessionError::SecondAnswer) {
                continue;
            }
            batches.report().change(|state| state.failures += 1);
            if matches!(ended, SessionError::Stopping) || !self.fail(ended.to_string(), batches).await {
                return;
            }
            tokio::time::sleep(self.backoff.wait()).await;
        }
    }

    /// From differences to lists where there are none, or none that tell of all that is gone; and back where there are no lists.
    fn try_other(&mut self, ended: &SessionError) {
        let has_no_lists = self.protocol == Protocol::Sotw;
        self.takes_unversioned |= has_no_lists && !matches!(ended, SessionError::Unversioned);
        self.protocol = if has_no_lists { Protocol::Delta } else { Protocol::Sotw };
    }

    /// One stream, until something ends it.
    async fn session(&mut self, protocol: Protocol, batches: &BatchSender) -> SessionError {
        match self.follow(protocol, batches).await {
            Ok(never) => match never {},
            Err(error) => error,
        }
    }

    async fn follow(
        &mut self,
        protocol: Protocol,
        batches: &BatchSender,
    ) -> Result<std::convert::Infallible, SessionError> {
        let servers = &self.settings.target.servers;
        let at = self.sessions % servers.len().max(1);
        self.sessions = self.sessions.wrapping_add(1);
        let Some(server) = servers.get(at).cloned() else { return Err(SessionError::Stopping) };
        batches.report().change(|state| state.sessions += 1);
        let io = self.settings.connector.connect(&server).await?;
        let (requests, connection) = handshake(io, TRANSPORT).await?;
        let answered = || batches.report().change(|state| state.last_answer = Some(SystemTime::now()));
        let connection = Box::pin(connection.run(answered));
        tokio::select! {
            ended = connection => Err(ended.into()),
            ended = self.stream(requests, &server, protocol, batches) => ended,
        }
    }

    async fn stream(
        &mut self,
        requests: h2::client::SendRequest<bytes::Bytes>,
        server: &Server,
        protocol: Protocol,
        batches: &BatchSender,
    ) -> Result<std::convert::Infallible, SessionError> {
        let method = match protocol {
            Protocol::Sotw => "StreamAggregatedResources",
            Protocol::Delta => "DeltaAggregatedResources",
        };
        let mut stream = ClientStream::new(protocol, self.settings.node.clone(), self.settings.old_spelling);
        let mut first = stream.first_requests(&mut self.content);
        first.extend(stream.ask_endpoints(self.synthetic.begin()));
        let scheme = if self.settings.connector.is_tls() { "https" } else { "http" };
        let uri = format!("{scheme}://{server}{SERVICE}{method}");
        let open = MessageStream::open(requests, uri, first, TRANSPORT);
        let began = Instant::now();
        let late = began + FIRST_ANSWERS;
        let mut acceptances = batches.report().losses().acceptances();
        let mut messages = self.in_time(late, batches, open).await??;
        self.deliver(batches).await?;
        let mut relist_at = began + RELIST;
        loop {
            let complete = self.content.missing().is_empty() && !self.synthetic.is_waiting();
            let due = self.second_answer_due(began);
            let next = async {
                match complete {
                    true => Ok(messages.next().await?),
                    false => Ok(self.in_time(late, batches, messages.next()).await??),
                }
            };
            let message = tokio::select! {
                message = next => message,
                () = tokio::time::sleep_until(relist_at), if complete => {
                    messages.send_all(&stream.relist()).await?;
                    relist_at = Instant::now() + self.relist_interval();
                    continue;
                }
                () = second_answer(due, &mut acceptances) => Err(SessionError::SecondAnswer),
            };
            if matches!(message, Err(SessionError::SecondAnswer)) {
                self.accept();
            }
            let message = message?;
            batches.report().change(|state| {
                state.requests += 1;
                state.last_answer = Some(SystemTime::now());
            });
            let Answered { reply, taken, assignments, is_unversioned } =
                stream.on_message(&message, &mut self.content, now())?;
            if is_unversioned && self.settings.protocol.is_none() && !self.takes_unversioned {
                return Err(SessionError::Unversioned);
            }
            self.log_refusal(taken.as_ref());
            if let Some(answer) = assignments {
                self.synthetic.answer(&answer, now());
            }
            self.deliver(batches).await?;
            messages.send(&reply).await?;
            if let Some(request) = stream.ask_endpoints(self.synthetic.take_subscriptions()) {
                messages.send(&request).await?;
            }
        }
    }

    /// A second for short lists, and longer for long ones: each costs the server all of its resources.
    fn relist_interval(&self) -> Duration {
        let count = self.content.count_of(&RELISTED).div_ceil(RELIST_RESOURCES).max(1);
        RELIST.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// When the second answer of what is held back is due; `None` where this stream was begun for it.
    fn second_answer_due(&self, began: Instant) -> Option<Instant> {
        let kinds = self.content.held().filter_map(|(_, held)| held);
        let untils = kinds.chain(self.synthetic.held()).map(|held| Instant::from_std(held.until));
        untils.filter(|until| *until > began).min()
    }

    /// Answers of the next stream count as second ones.
    fn accept(&mut self) {
        self.content.accept(now());
        self.synthetic.accept(now());
    }

    /// Shows what is held back.
    fn show_held(&self, report: &SourceReport) {
        for (kind, held) in self.content.held() {
            report.losses().set(&self.name, kind.plural(), held);
        }
        report.losses().set(&self.name, "endpoints", self.synthetic.held());
    }

    /// Tells of a refused answer, at most once in a second: a server can send as many as it likes. `/debug/problemz` has all reasons.
    fn log_refusal(&mut self, taken: Option<&(Kind, Taken)>) {
        let Some((kind, Taken { error: Some(error) })) = taken else { return };
        let now = Instant::now();
        if self.logged.is_none_or(|logged| now.saturating_duration_since(logged) >= LOG_AGAIN) {
            self.logged = Some(now);
            tracing::warn!(source = %self.name, %kind, error, "an answer is refused in part");
        }
    }

    /// Waits for something that is due; what is late is reported once, and waited for on.
    async fn in_time<T>(
        &mut self,
        late: Instant,
        batches: &BatchSender,
        due: impl Future<Output = T>,
    ) -> Result<T, SessionError> {
        tokio::pin!(due);
        if let Ok(done) = tokio::time::timeout_at(late, &mut due).await {
            return Ok(done);
        }
        let mut missing = self.content.missing();
        if self.synthetic.is_waiting() {
            // An entry without endpoints is more than none.
            self.synthetic.give_up();
            missing.push("endpoints (EDS)");
            self.deliver(batches).await?;
        }
        let missing = missing.join(", ");
        if self.failing.is_none() && !self.fail(format!("no answer yet for {missing}"), batches).await {
            return Err(SessionError::Stopping);
        }
        Ok(due.await)
    }

    /// Sends on what an answer changed, and the end of a failure once every kind was answered.
    async fn deliver(&mut self, batches: &BatchSender) -> Result<(), SessionError> {
        let mut batch = self.batch();
        if self.content.missing().is_empty() {
            self.backoff.reset();
            if self.failing.take().is_some() {
                tracing::info!(source = %self.name, resources = self.content.count(), "the server answers again");
                batch.events.push(SourceEvent::Recovered);
            }
        }
        self.tell(&batch, batches.report());
        if !batch.is_empty() && !batches.send(batch).await {
            return Err(SessionError::Stopping);
        }
        Ok(())
    }

    /// Everything that was not sent yet.
    fn batch(&mut self) -> SourceBatch {
        let batch = self.content.batch();
        SourceBatch { events: self.synthetic.complete(batch.events), ..batch }
    }

    /// Tells what there is now, beside the batch itself.
    fn tell(&self, batch: &SourceBatch, report: &SourceReport) {
        self.show_held(report);
        let objects = self.content.count();
        let problems = batch.problems.as_ref().map(|problems| {
            let errors = problems.reports.iter().filter(|report| report.severity == Severity::Error);
            let first = errors.take(SHOWN_PROBLEMS).map(|report| report.to_string().into()).collect();
            CatalogProblems { total: problems.errors(), first }
        });
        report.change(|state| {
            state.objects = Some(objects);
            if let Some(problems) = problems {
                state.problems = problems;
            }
        });
    }

    /// Reports a failure. `false`: nobody listens any more.
    async fn fail(&mut self, reason: String, batches: &BatchSender) -> bool {
        let mut batch = self.batch();
        // Each retry fails again: the same reason is told once.
        if self.failing.as_ref() != Some(&reason) {
            let told = format!("{}: {reason}", self.name);
            batch.events.push(SourceEvent::Failed { at: SystemTime::now(), reason: told.into() });
            self.failing = Some(reason);
        }
        batch.is_empty() || batches.send(batch).await
    }
}

/// The time, as state machines take it.
fn now() -> std::time::Instant {
    Instant::now().into_std()
}

/// Ends when a second answer is due, or an operator accepts what is held back; never while nothing is.
async fn second_answer(due: Option<Instant>, acceptances: &mut watch::Receiver<u64>) {
    let Some(due) = due else { return std::future::pending().await };
    tokio::select! {
        () = tokio::time::sleep_until(due) => {}
        Ok(()) = acceptances.changed() => {}
    }
}

impl ObjectSource for McpSource {
    fn run(mut self: Box<Self>, batches: BatchSender) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move { self.run_sessions(&batches).await })
    }
}
