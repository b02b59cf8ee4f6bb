//! The source: consecutive sessions with a server, and their results as batches.

use super::content::{Content, ContentSettings, Taken};
use super::second_read::SecondRead;
use super::settings::McpSettings;
use super::stream::{Answered, ClientStream, Protocol, RELISTED};
use super::synthetic::Synthetic;
use super::transport::{MessageStream, TransportError, TransportSettings, handshake};
use pilotfish_config::{ObjectCheck, Severity, SourceBatch, SourceEvent};
use pilotfish_connect::{ConnectError, Server};
use pilotfish_model::Kind;
use pilotfish_registry::{BatchSender, CatalogProblems, ObjectSource, SourceReport};
use pilotfish_runtime::{Backoff, BackoffPolicy, Jitter, error_chain};
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::watch;
use tokio::time::Instant;

/// Reconnect delays of Istio: from half a second after the first failure up to a minute.
const RECONNECT: BackoffPolicy = BackoffPolicy::new(Duration::from_millis(500), Duration::from_secs(60));
/// Maximum time until every kind has a response; then it counts as a failure.
const FIRST_ANSWERS: Duration = Duration::from_secs(30);
/// Interval of requests for lists whose changes are not pushed; longer for more than [`RELIST_RESOURCES`].
const RELIST: Duration = Duration::from_secs(1);
/// Maximum number of resources in these lists for an interval of [`RELIST`].
const RELIST_RESOURCES: usize = 1_000;
/// Maximum size of one response in bytes. Ten thousand large ServiceEntries are about 20 MB.
const MOST_BYTES: usize = 256 << 20;
/// Minimum interval of log lines about refused responses.
const LOG_AGAIN: Duration = Duration::from_secs(1);
/// Maximum number of resources of one kind.
const MOST_RESOURCES: usize = 500_000;
/// Maximum number of refused resources in the status of the source; `/debug/problemz` has more.
const SHOWN_PROBLEMS: usize = 100;
const TRANSPORT: TransportSettings = TransportSettings {
    most_bytes: MOST_BYTES,
    timeout: Duration::from_secs(10),
    ping: Duration::from_secs(20),
};

const SERVICE: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/";

/// Reason for the end of a session.
#[derive(Debug, thiserror::Error)]
enum SessionError {
    #[error("{}", error_chain(.0))]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error("malformed xDS response: {0}")]
    Malformed(#[from] prost::DecodeError),
    #[error("reconnecting for the second read of data that the guard holds back")]
    SecondAnswer,
    #[error("the server's delta responses have no resource versions")]
    Unversioned,
    #[error("the process is stopping")]
    Stopping,
}

/// Source of configuration, as described in the module.
pub(crate) struct McpSource {
    name: Arc<str>,
    settings: McpSettings,
    content: Content,
    synthetic: Synthetic,
    backoff: Backoff,
    /// Current protocol, if the settings allow both.
    protocol: Protocol,
    /// True if the server does not support lists, so that its unversioned deltas are used.
    takes_unversioned: bool,
    /// Number of sessions so far.
    sessions: usize,
    /// Time of the last log line about a refused response.
    logged: Option<Instant>,
    /// Reported failure that is not over.
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

    /// Runs sessions in a loop.
    async fn run_sessions(&mut self, batches: &BatchSender) {
        loop {
            let protocol = self.settings.protocol.unwrap_or(self.protocol);
            let mut ended = self.session(protocol, batches).await;
            let lacks = matches!(
                ended,
                SessionError::Transport(TransportError::Unimplemented) | SessionError::Unversioned
            );
            if lacks && self.settings.protocol.is_none() {
                tracing::info!(source = %self.name, reason = %ended, "reconnecting with the other protocol");
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

    /// Switches from delta to lists if the server has no delta or an incomplete one, and back if it has no
    /// lists.
    fn try_other(&mut self, ended: &SessionError) {
        let has_no_lists = self.protocol == Protocol::Sotw;
        self.takes_unversioned |= has_no_lists && !matches!(ended, SessionError::Unversioned);
        self.protocol = if has_no_lists { Protocol::Delta } else { Protocol::Sotw };
    }

    /// Runs one stream until it ends.
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
        let mut stream = self.client(protocol);
        let mut first = stream.first_requests(&mut self.content);
        first.extend(stream.ask_endpoints(self.synthetic.begin()));
        let uri = self.uri(server, protocol);
        let open = MessageStream::open(requests.clone(), uri.clone(), first, TRANSPORT);
        let began = Instant::now();
        let late = began + FIRST_ANSWERS;
        let mut acceptances = batches.report().losses().acceptances();
        let mut messages = self.in_time(late, batches, open).await??;
        self.deliver(batches).await?;
        let (mut relist_at, mut read_at) = (began + RELIST, began);
        let mut second: Option<SecondRead> = None;
        loop {
            let complete = self.content.missing().is_empty() && !self.synthetic.is_waiting();
            let due = self.second_answer_due(read_at);
            let next = async {
                match complete {
                    true => Ok(messages.next().await?),
                    false => Ok(self.in_time(late, batches, messages.next()).await??),
                }
            };
            let message: Result<_, SessionError> = tokio::select! {
                message = next => message,
                message = SecondRead::next(&mut second) => {
                    second = self.take_second(second, message, batches).await?;
                    continue;
                }
                () = tokio::time::sleep_until(relist_at), if complete => {
                    messages.send_all(&stream.relist()).await?;
                    relist_at = Instant::now() + self.relist_interval();
                    continue;
                }
                () = second_answer(due, &mut acceptances) => {
                    read_at = Instant::now();
                    second = Some(self.second_read(protocol, requests.clone(), uri.clone()));
                    continue;
                }
            };
            let answered = self.answered(&mut stream, &message?, batches)?;
            if answered.is_unversioned && self.settings.protocol.is_none() && !self.takes_unversioned {
                return Err(SessionError::Unversioned);
            }
            self.deliver(batches).await?;
            messages.send(&answered.reply).await?;
            if let Some(request) = stream.ask_endpoints(self.synthetic.take_subscriptions()) {
                messages.send(&request).await?;
            }
        }
    }

    fn uri(&self, server: &Server, protocol: Protocol) -> String {
        let method = match protocol {
            Protocol::Sotw => "StreamAggregatedResources",
            Protocol::Delta => "DeltaAggregatedResources",
        };
        let scheme = if self.settings.connector.is_tls() { "https" } else { "http" };
        format!("{scheme}://{server}{SERVICE}{method}")
    }

    fn client(&self, protocol: Protocol) -> ClientStream {
        ClientStream::new(protocol, self.settings.node.clone(), self.settings.old_spelling)
    }

    /// Applies a response. The reply was not sent yet.
    fn answered(
        &mut self,
        stream: &mut ClientStream,
        message: &[u8],
        batches: &BatchSender,
    ) -> Result<Answered, SessionError> {
        batches.report().change(|state| {
            state.requests += 1;
            state.last_answer = Some(SystemTime::now());
        });
        let answered = stream.on_message(message, &mut self.content, now())?;
        self.log_refusal(answered.taken.as_ref());
        if let Some(assignments) = &answered.assignments {
            self.synthetic.answer(assignments, now());
        }
        Ok(answered)
    }

    /// Requests everything with a held loss once more, beside the stream.
    fn second_read(
        &mut self,
        protocol: Protocol,
        requests: h2::client::SendRequest<bytes::Bytes>,
        uri: String,
    ) -> SecondRead {
        self.accept();
        let mut client = self.client(protocol);
        let mut first = client.requests_of(self.content.held_kinds(), &mut self.content);
        if self.synthetic.held().is_some() {
            first.extend(client.ask_endpoints((self.synthetic.clusters(), BTreeSet::new())));
        }
        let opening = MessageStream::open(requests, uri, first, TRANSPORT);
        SecondRead::new(client, opening, Instant::now() + FIRST_ANSWERS)
    }

    /// Applies a response of the second read. Returns the read if it continues; one that failed is made with
    /// another session.
    async fn take_second(
        &mut self,
        read: Option<SecondRead>,
        message: Option<bytes::Bytes>,
        batches: &BatchSender,
    ) -> Result<Option<SecondRead>, SessionError> {
        let (Some(mut read), Some(message)) = (read, message) else { return Err(SessionError::SecondAnswer) };
        let answered = self.answered(&mut read.client, &message, batches)?;
        self.deliver(batches).await?;
        let continues = read.reply(&answered).await.map_err(|_| SessionError::SecondAnswer)?;
        Ok(continues.then_some(read))
    }

    /// Interval of list requests: a second for short lists, and longer for long ones, since each costs the
    /// server all of its resources.
    fn relist_interval(&self) -> Duration {
        let count = self.content.count_of(&RELISTED).div_ceil(RELIST_RESOURCES).max(1);
        RELIST.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// Time of the second read of held back data; `None` if it began at `began` or later.
    fn second_answer_due(&self, began: Instant) -> Option<Instant> {
        let kinds = self.content.held().filter_map(|(_, held)| held);
        let untils = kinds.chain(self.synthetic.held()).map(|held| Instant::from_std(held.until));
        untils.filter(|until| *until > began).min()
    }

    /// Makes responses to later requests count as second reads.
    fn accept(&mut self) {
        self.content.accept(now());
        self.synthetic.accept(now());
    }

    /// Reports losses that are held back.
    fn show_held(&self, report: &SourceReport) {
        for (kind, held) in self.content.held() {
            report.losses().set(&self.name, kind.plural(), held);
        }
        report.losses().set(&self.name, "endpoints", self.synthetic.held());
    }

    /// Logs a refused response, at most once per second: a server can send any number of them.
    /// `/debug/problemz` has all reasons.
    fn log_refusal(&mut self, taken: Option<&(Kind, Taken)>) {
        let Some((kind, Taken { error: Some(error) })) = taken else { return };
        let now = Instant::now();
        if self.logged.is_none_or(|logged| now.saturating_duration_since(logged) >= LOG_AGAIN) {
            self.logged = Some(now);
            tracing::warn!(source = %self.name, %kind, error, "refused resources of a response with a NACK");
        }
    }

    /// Waits for a future; a delay is reported once, and the wait continues.
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
            // An entry without endpoints is better than none.
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

    /// Sends the changes of a response, and the end of a failure once every kind has a response.
    async fn deliver(&mut self, batches: &BatchSender) -> Result<(), SessionError> {
        let mut batch = self.batch();
        if self.content.missing().is_empty() {
            self.backoff.reset();
            if self.failing.take().is_some() {
                tracing::info!(
                    source = %self.name,
                    resources = self.content.count(),
                    "receiving resources from the server again"
                );
                batch.events.push(SourceEvent::Recovered);
            }
        }
        self.tell(&batch, batches.report());
        if !batch.is_empty() && !batches.send(batch).await {
            return Err(SessionError::Stopping);
        }
        Ok(())
    }

    fn batch(&mut self) -> SourceBatch {
        let batch = self.content.batch();
        SourceBatch { events: self.synthetic.complete(batch.events), ..batch }
    }

    /// Updates the status of the source.
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

    /// Reports a failure. Returns false if the receiver is gone.
    async fn fail(&mut self, reason: String, batches: &BatchSender) -> bool {
        let mut batch = self.batch();
        // Retries with the same reason are reported once.
        if self.failing.as_ref() != Some(&reason) {
            let told = format!("{}: {reason}", self.name);
            batch.events.push(SourceEvent::Failed { at: SystemTime::now(), reason: told.into() });
            self.failing = Some(reason);
        }
        batch.is_empty() || batches.send(batch).await
    }
}

/// Current time for the state machines.
fn now() -> std::time::Instant {
    Instant::now().into_std()
}

/// Completes when a second read is due, or an operator accepts the held back loss; never if nothing is held
/// back.
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
