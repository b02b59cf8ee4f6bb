//! Watch of one kind: sends requests, passes the answers to the [`Reflector`], and retries after every
//! failure.

mod reflector;
mod request;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod turn_tests;

pub use reflector::{Change, Reader, Stored};
pub use request::Resource;

use crate::request::{BACKOFF, RequestError, within};
use kube::Client;
use pilotfish_model::Kind;
use pilotfish_runtime::{Backoff, GuardSettings, HeldLosses, HeldScope, Jitter};
use reflector::{Failure, LineContent, NextRequest, Reflector};
use request::{WatchError, next_line};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

/// Timeout for the start of an answer of the API server.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout for a complete page of a list.
const PAGE_TIMEOUT: Duration = Duration::from_secs(120);
/// Timeout of a watch without events. Bookmarks arrive about once a minute, so a stream that is silent for
/// longer is dead.
const SILENCE: Duration = Duration::from_secs(180);
/// Minimum duration of a watch that is resumed without a pause.
const SHORTEST_WATCH: Duration = Duration::from_millis(500);

/// Latency from which an answer counts as slow.
const SLOW: Duration = Duration::from_secs(1);
/// Number of consecutive expired versions that is reported as a failure.
const EXPIRED_IN_A_ROW: u32 = 2;

/// Update that a watch sends to its receiver.
#[derive(Debug)]
pub enum WatchUpdate {
    /// Differences since the last update.
    Changes(Vec<Change>),
    /// The first list is complete.
    Listed,
    /// The kind cannot be read at present, with the reason.
    Failed(String),
    /// The kind can be read, for the first time or after a failure.
    Healthy,
}

/// Receives events of watches, for metrics.
pub trait Observer: Send + Sync {
    /// An event of the watch of a kind in a cluster.
    fn watch_event(&self, cluster: &str, kind: &str, event: WatchEvent);
}

/// An event of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// A list was read to its end.
    Listed,
    /// A watch ended without an error and was resumed.
    Resumed,
    /// A request or stream failed.
    Failed,
    /// The API server no longer had the requested version, so the kind is listed again.
    Expired,
    /// An answer began only after a second or more.
    Slow,
}

impl WatchEvent {
    /// Returns the value for labels of metrics.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Listed => "listed",
            Self::Resumed => "resumed",
            Self::Failed => "failed",
            Self::Expired => "expired",
            Self::Slow => "slow",
        }
    }
}

/// [`Observer`] that discards all events.
#[derive(Debug, Default)]
pub struct NoopObserver;

impl Observer for NoopObserver {
    fn watch_event(&self, _: &str, _: &str, _: WatchEvent) {}
}

/// Cluster and kind of a watch, with its metrics and jitter.
#[derive(Clone)]
pub struct WatchTarget {
    /// The cluster's id, for messages and metrics.
    pub cluster: Arc<str>,
    pub kind: Kind,
    /// Receives the events of the watch.
    pub observer: Arc<dyn Observer>,
    /// Spreads requests over time.
    pub jitter: Jitter,
}

/// Watch of one kind in one cluster.
pub struct Watch {
    client: Client,
    target: WatchTarget,
    reflector: Reflector,
    out: mpsc::Sender<(Kind, WatchUpdate)>,
    backoff: Backoff,
    /// Losses that the guard holds back, for display and for acceptance by an operator.
    losses: HeldScope,
    listed: bool,
    failing: bool,
}

/// The receiver of the updates is gone.
struct Closed;

impl Watch {
    /// A watch that sends its updates to `out`.
    #[must_use]
    pub fn new(
        client: Client,
        target: WatchTarget,
        reader: Reader,
        out: mpsc::Sender<(Kind, WatchUpdate)>,
    ) -> Self {
        let origin = format!("cluster {}", target.cluster).into();
        let reflector = Reflector::new(reader, origin);
        let backoff = Backoff::new(BACKOFF, target.jitter.fork("backoff"));
        let losses = held_scope(&HeldLosses::default(), &target);
        Self { client, target, reflector, out, backoff, losses, listed: false, failing: false }
    }

    /// Holds back lists that lack most objects, and publishes what is held in `losses`.
    #[must_use]
    pub fn guarded(mut self, settings: GuardSettings, losses: &HeldLosses) -> Self {
        self.reflector.set_guard(settings);
        self.losses = held_scope(losses, &self.target);
        self
    }

    /// Watches until the receiver of the updates or the sender of `resource` is dropped. `resource` is the
    /// path at which the API server serves the kind; `None` while it serves it nowhere.
    pub async fn run(mut self, mut resource: watch::Receiver<Option<Resource>>) {
        loop {
            let Some(now) = resource.borrow_and_update().clone() else {
                if self.kind_removed().await.is_err() {
                    return;
                }
                let due = self.reflector.second_list_due();
                tokio::select! {
                    changed = resource.changed() => match changed {
                        Ok(()) => self.reflector.start_over(),
                        Err(_) => return,
                    },
                    () = second_look(due, &mut self.losses) => self.reflector.second_list(instant()),
                }
                continue;
            };
            tokio::select! {
                ended = self.follow(&now) => {
                    let Closed = ended;
                    return;
                }
                changed = resource.changed() => match changed {
                    Ok(()) => self.reflector.start_over(),
                    Err(_) => return,
                },
            }
        }
    }

    /// Removes the objects of a kind that is no longer served, unless the guard holds that back.
    async fn kind_removed(&mut self) -> Result<(), Closed> {
        let gone = self.reflector.kind_removed(instant());
        self.show_held();
        if let Some(gone) = gone {
            self.listed = false;
            self.send(WatchUpdate::Changes(gone)).await?;
        }
        Ok(())
    }

    /// Sends requests one after the other, with backoff after failures, until the receiver is dropped.
    async fn follow(&mut self, resource: &Resource) -> Closed {
        loop {
            let began = Instant::now();
            if self.reflector.second_list_due().is_some_and(|due| instant() >= due) {
                self.reflector.second_list(instant());
            }
            let watched = matches!(self.reflector.next_request(), NextRequest::Watch { .. });
            let result = self.request_once(resource).await;
            let lasted = began.elapsed() >= SHORTEST_WATCH;
            if watched && lasted {
                // A watch that lasted works, however it ends. A list proves nothing yet: the watch after it
                // may be rejected again and again, and an overloaded API server must not list everything
                // several times in a second.
                self.backoff.reset();
            }
            let wait = match result {
                Ok(Ok(())) if watched && !lasted => self.backoff.wait().min(SHORTEST_WATCH),
                Ok(Ok(())) => continue,
                Ok(Err(error)) => match self.handle_error(&error).await {
                    Ok(wait) => wait,
                    Err(over) => return over,
                },
                Err(over) => return over,
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Records the error; returns the pause before the next request.
    async fn handle_error(&mut self, error: &WatchError) -> Result<Duration, Closed> {
        let WatchTarget { cluster, kind, observer, .. } = &self.target;
        self.reflector.failed(&error.failure);
        match error.failure {
            Failure::NoStreams => return Ok(Duration::ZERO),
            Failure::Gone => {
                observer.watch_event(cluster, kind.plural(), WatchEvent::Expired);
                tracing::info!(%cluster, %kind, reason = %error, "the version has expired, listing again");
                // Normal once in a while, and a fault when no watch works in between.
                if self.backoff.failures() < EXPIRED_IN_A_ROW {
                    return Ok(self.backoff.wait_at_least(error.after));
                }
            }
            Failure::Other => {
                observer.watch_event(cluster, kind.plural(), WatchEvent::Failed);
                tracing::debug!(%cluster, %kind, reason = %error, "a watch failed");
            }
        }
        self.failing = true;
        self.send(WatchUpdate::Failed(error.reason.clone())).await?;
        Ok(self.backoff.wait_at_least(error.after))
    }

    /// Sends the next request and handles its answer.
    async fn request_once(&mut self, resource: &Resource) -> Result<Result<(), WatchError>, Closed> {
        let step = self.reflector.next_request();
        // Ends at different times, so that watches that began together do not end together.
        let seconds = 240 + (240.0 * self.target.jitter.fraction()) as u64;
        let request = match resource.request(&step, seconds) {
            Ok(request) => request,
            Err(error) => return Ok(Err(WatchError::other(error))),
        };
        match step {
            NextRequest::List { next } => self.list(request, next.is_none()).await,
            NextRequest::StreamList => {
                self.reflector.list_started();
                self.stream(request).await
            }
            NextRequest::Version => self.version(request).await,
            NextRequest::Watch { .. } => {
                let result = self.stream(request).await;
                self.reflector.watch_ended();
                result
            }
        }
    }

    /// Reads the API server's current version before a watch is resumed.
    async fn version(&mut self, request: http::Request<Vec<u8>>) -> Result<Result<(), WatchError>, Closed> {
        let text = match within(ANSWER_TIMEOUT, self.client.request_text(request)).await {
            Ok(text) => text,
            Err(error) => return Ok(Err(error.into())),
        };
        if let Err(error) = self.reflector.version(&text) {
            // The watch itself shows what is wrong.
            let WatchTarget { cluster, kind, .. } = &self.target;
            tracing::debug!(%cluster, %kind, %error, "the API server's version is unknown");
        }
        Ok(self.went_back())
    }

    /// An error if the API server's version went back: then everything is read again.
    fn went_back(&mut self) -> Result<(), WatchError> {
        match self.reflector.went_back() {
            Some(reason) => Err(WatchError { failure: Failure::Gone, ..WatchError::other(reason) }),
            None => Ok(()),
        }
    }

    async fn list(
        &mut self,
        request: http::Request<Vec<u8>>,
        first: bool,
    ) -> Result<Result<(), WatchError>, Closed> {
        if first {
            self.reflector.list_started();
        }
        let began = Instant::now();
        let answer = within(PAGE_TIMEOUT, self.client.request_text(request)).await;
        self.record_latency(began);
        let text = match answer {
            Ok(text) => text,
            Err(error) => return Ok(Err(error.into())),
        };
        match self.reflector.page(&text, instant()) {
            Ok((changes, complete)) => {
                self.send(WatchUpdate::Changes(changes)).await?;
                if complete {
                    self.list_is_complete().await?;
                }
                Ok(self.went_back())
            }
            Err(error) => {
                self.reflector.start_over();
                Ok(Err(WatchError::other(format!("not a list: {error}"))))
            }
        }
    }

    async fn stream(&mut self, request: http::Request<Vec<u8>>) -> Result<Result<(), WatchError>, Closed> {
        let began = Instant::now();
        let answer = within(ANSWER_TIMEOUT, self.client.request_stream(request)).await;
        self.record_latency(began);
        let mut stream = match answer {
            Ok(stream) => Box::pin(stream),
            Err(error) => return Ok(Err(error.into())),
        };
        // The end of a failure: changes arrive again. A list alone would not prove that.
        self.healthy().await?;
        let mut line = Vec::new();
        loop {
            let due = self.reflector.second_list_due();
            let read = tokio::select! {
                read = timeout(SILENCE, next_line(&mut stream, &mut line)) => read,
                () = second_look(due, &mut self.losses) => {
                    self.reflector.second_list(instant());
                    return Ok(Ok(()));
                }
            };
            match read {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => break,
                Ok(Err(error)) => return Ok(Err(error)),
                Err(_) => {
                    tracing::debug!(
                        cluster = %self.target.cluster,
                        kind = %self.target.kind,
                        "the watch is silent, requesting it again"
                    );
                    break;
                }
            }
            if let Err(error) = self.handle_line(&line).await? {
                return Ok(Err(error));
            }
        }
        if self.reflector.next_request() == NextRequest::StreamList {
            // Retrying at once could go on for ever, a whole list each time.
            return Ok(Err(WatchError::other("the list ended before it was complete")));
        }
        let WatchTarget { cluster, kind, observer, .. } = &self.target;
        observer.watch_event(cluster, kind.plural(), WatchEvent::Resumed);
        Ok(Ok(()))
    }

    /// The request sent at `began` was answered or has failed.
    fn record_latency(&self, began: Instant) {
        let WatchTarget { cluster, kind, observer, .. } = &self.target;
        if began.elapsed() >= SLOW {
            observer.watch_event(cluster, kind.plural(), WatchEvent::Slow);
        }
    }

    async fn handle_line(&mut self, line: &[u8]) -> Result<Result<(), WatchError>, Closed> {
        let Ok(text) = std::str::from_utf8(line) else {
            return Ok(Err(WatchError::other("an event is not text in UTF-8")));
        };
        match self.reflector.line(text, instant()) {
            Ok(LineContent::Changes { changes, listed }) => {
                self.send(WatchUpdate::Changes(changes)).await?;
                if listed {
                    self.list_is_complete().await?;
                }
                Ok(self.went_back())
            }
            Ok(LineContent::Error { code, message }) => {
                Ok(Err(RequestError::of_status(code, &message, 0).into()))
            }
            Err(error) => {
                self.reflector.start_over();
                Ok(Err(WatchError::other(format!("not an event: {error}"))))
            }
        }
    }

    async fn list_is_complete(&mut self) -> Result<(), Closed> {
        let WatchTarget { cluster, kind, observer, .. } = &self.target;
        observer.watch_event(cluster, kind.plural(), WatchEvent::Listed);
        tracing::debug!(%cluster, %kind, objects = self.reflector.len(), "listed");
        self.show_held();
        // This may be cancelled at any await when the kind's path changes: what was not sent is sent the next
        // time.
        if !self.listed {
            self.send(WatchUpdate::Listed).await?;
            self.listed = true;
        }
        Ok(())
    }

    /// Shows what the guard holds back of the kind.
    fn show_held(&mut self) {
        self.losses.set(self.reflector.held());
    }

    async fn healthy(&mut self) -> Result<(), Closed> {
        if self.failing {
            self.send(WatchUpdate::Healthy).await?;
            self.failing = false;
        }
        Ok(())
    }

    async fn send(&self, news: WatchUpdate) -> Result<(), Closed> {
        if matches!(&news, WatchUpdate::Changes(changes) if changes.is_empty()) {
            return Ok(());
        }
        self.out.send((self.target.kind, news)).await.map_err(|_| Closed)
    }
}

fn held_scope(losses: &HeldLosses, target: &WatchTarget) -> HeldScope {
    losses.scope(format!("cluster {}", target.cluster), target.kind.plural())
}

/// The time, as state machines take it.
fn instant() -> std::time::Instant {
    Instant::now().into_std()
}

/// Ends when a held loss has waited long enough, or an operator accepts it; never while nothing is held.
async fn second_look(due: Option<std::time::Instant>, losses: &mut HeldScope) {
    let Some(due) = due else { return std::future::pending().await };
    tokio::select! {
        () = tokio::time::sleep_until(Instant::from_std(due)) => {}
        () = losses.accepted() => {}
    }
}
