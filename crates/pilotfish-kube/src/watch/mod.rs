//! The watch of one kind: asks, hands the answers to the [`Reflector`], and goes on after whatever goes wrong.

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
use pilotfish_source::{Backoff, Jitter};
use reflector::{Failure, Heard, Reflector, Step};
use request::{Trouble, next_line};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

/// How long the API server may take to answer.
const ANSWER: Duration = Duration::from_secs(30);
/// How long a whole page of a list may take.
const PAGE: Duration = Duration::from_secs(120);
/// Bookmarks come about every minute: a stream that is silent for longer than this is asked for anew.
const SILENCE: Duration = Duration::from_secs(180);
/// A watch that ends sooner than this is not asked for anew at once.
const TOO_SHORT: Duration = Duration::from_millis(500);

/// An answer that takes longer than this is counted as slow.
const SLOW: Duration = Duration::from_secs(1);
/// So many refusals to resume in a row are no accident any more.
const REFUSALS: u32 = 2;

/// What a watch has to say.
#[derive(Debug)]
pub enum News {
    /// What differs.
    Changes(Vec<Change>),
    /// The first list is complete.
    Listed,
    /// It cannot be read now, and why.
    Failed(String),
    /// It can be read again, or for the first time.
    Healthy,
}

/// What happens to watches, for metrics.
pub trait Observer: Send + Sync {
    /// Something happened to the watch of a kind in a cluster.
    fn watched(&self, cluster: &str, kind: &str, what: Watched);
}

/// What can happen to a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    /// A whole list was read.
    Listed,
    /// A watch ended without an error and goes on.
    Resumed,
    /// A request or stream failed.
    Failed,
    /// The API server no longer had the version, so everything is listed anew.
    Expired,
    /// An answer began only after a second or more.
    Slow,
}

impl Watched {
    /// In one word, for labels of metrics.
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

/// Nobody observes.
#[derive(Debug, Default)]
pub struct Silent;

impl Observer for Silent {
    fn watched(&self, _: &str, _: &str, _: Watched) {}
}

/// Where a watch belongs.
#[derive(Clone)]
pub struct Place {
    /// The cluster's id, for messages and metrics.
    pub cluster: Arc<str>,
    /// What is watched.
    pub kind: Kind,
    /// Is told what happens to the watch.
    pub observer: Arc<dyn Observer>,
    /// Spreads requests over time.
    pub jitter: Jitter,
}

/// See the module's description.
pub struct Watch {
    client: Client,
    place: Place,
    reflector: Reflector,
    out: mpsc::Sender<(Kind, News)>,
    backoff: Backoff,
    listed: bool,
    failing: bool,
}

/// Nobody listens any more.
struct Over;

impl Watch {
    /// A watch that says to `out` what it learns.
    #[must_use]
    pub fn new(client: Client, place: Place, reader: Reader, out: mpsc::Sender<(Kind, News)>) -> Self {
        let origin = format!("cluster {}", place.cluster).into();
        let reflector = Reflector::new(reader, origin);
        let backoff = Backoff::new(BACKOFF, place.jitter.fork("backoff"));
        Self { client, place, reflector, out, backoff, listed: false, failing: false }
    }

    /// Watches until nobody listens, or the kind is gone: `resource` says where it is served, `None` when nowhere any more.
    pub async fn run(mut self, mut resource: watch::Receiver<Option<Resource>>) {
        loop {
            let Some(now) = resource.borrow_and_update().clone() else {
                let gone = self.reflector.vanished();
                // Nobody listens any more only when all of this ends anyway.
                let _ = self.say(News::Changes(gone)).await;
                return;
            };
            tokio::select! {
                ended = self.follow(&now) => {
                    let Over = ended;
                    return;
                }
                changed = resource.changed() => match changed {
                    Ok(()) => self.reflector.start_over(),
                    Err(_) => return,
                },
            }
        }
    }

    /// Asks step by step, for ever.
    async fn follow(&mut self, resource: &Resource) -> Over {
        loop {
            let began = Instant::now();
            let watched = matches!(self.reflector.step(), Step::Watch { .. });
            let turn = self.turn(resource).await;
            let lasted = began.elapsed() >= TOO_SHORT;
            if watched && lasted {
                // It works, however it ends. That a list was read says nothing yet: the watch after it may be refused again and
                // again, and reading everything several times in a second is what a troubled API server needs least.
                self.backoff.reset();
            }
            let wait = match turn {
                Ok(Ok(())) if watched && !lasted => self.backoff.wait().min(TOO_SHORT),
                Ok(Ok(())) => continue,
                Ok(Err(trouble)) => match self.troubled(&trouble).await {
                    Ok(wait) => wait,
                    Err(over) => return over,
                },
                Err(over) => return over,
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Takes note of trouble; says how long to wait.
    async fn troubled(&mut self, trouble: &Trouble) -> Result<Duration, Over> {
        let Place { cluster, kind, observer, .. } = &self.place;
        self.reflector.failed(&trouble.failure);
        match trouble.failure {
            Failure::NoStreams => return Ok(Duration::ZERO),
            Failure::Gone => {
                observer.watched(cluster, kind.plural(), Watched::Expired);
                tracing::info!(%cluster, %kind, reason = %trouble, "listing anew");
                // Normal once in a while, and a fault when no watch works in between.
                if self.backoff.failures() < REFUSALS {
                    return Ok(self.backoff.wait_at_least(trouble.after));
                }
            }
            Failure::Other => {
                observer.watched(cluster, kind.plural(), Watched::Failed);
                tracing::debug!(%cluster, %kind, reason = %trouble, "a watch failed");
            }
        }
        self.failing = true;
        self.say(News::Failed(trouble.reason.clone())).await?;
        Ok(self.backoff.wait_at_least(trouble.after))
    }

    /// One request with its answer.
    async fn turn(&mut self, resource: &Resource) -> Result<Result<(), Trouble>, Over> {
        let step = self.reflector.step();
        // Ends at different times, so that watches that began together do not end together.
        let seconds = 240 + (240.0 * self.place.jitter.fraction()) as u64;
        let request = match resource.request(&step, seconds) {
            Ok(request) => request,
            Err(error) => return Ok(Err(Trouble::other(error))),
        };
        match step {
            Step::List { next } => self.list(request, next.is_none()).await,
            Step::StreamList => {
                self.reflector.list_begins();
                self.stream(request).await
            }
            Step::Watch { .. } => self.stream(request).await,
        }
    }

    async fn list(
        &mut self,
        request: http::Request<Vec<u8>>,
        first: bool,
    ) -> Result<Result<(), Trouble>, Over> {
        if first {
            self.reflector.list_begins();
        }
        let began = Instant::now();
        let answer = within(PAGE, self.client.request_text(request)).await;
        self.answered(began);
        let text = match answer {
            Ok(text) => text,
            Err(error) => return Ok(Err(error.into())),
        };
        match self.reflector.page(&text) {
            Ok((changes, complete)) => {
                self.say(News::Changes(changes)).await?;
                if complete {
                    self.list_is_complete().await?;
                }
                Ok(Ok(()))
            }
            Err(error) => {
                self.reflector.start_over();
                Ok(Err(Trouble::other(format!("not a list: {error}"))))
            }
        }
    }

    async fn stream(&mut self, request: http::Request<Vec<u8>>) -> Result<Result<(), Trouble>, Over> {
        let began = Instant::now();
        let answer = within(ANSWER, self.client.request_stream(request)).await;
        self.answered(began);
        let mut stream = match answer {
            Ok(stream) => Box::pin(stream),
            Err(error) => return Ok(Err(error.into())),
        };
        // The end of a failure: what changes is heard of again. A list alone would not be that.
        self.healthy().await?;
        let mut line = Vec::new();
        loop {
            match timeout(SILENCE, next_line(&mut stream, &mut line)).await {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => break,
                Ok(Err(trouble)) => return Ok(Err(trouble)),
                Err(_) => {
                    tracing::debug!(cluster = %self.place.cluster, kind = %self.place.kind, "silent, asking anew");
                    break;
                }
            }
            if let Err(trouble) = self.hear(&line).await? {
                return Ok(Err(trouble));
            }
        }
        if self.reflector.step() == Step::StreamList {
            // To ask again at once could go on for ever, a whole list each time.
            return Ok(Err(Trouble::other("the list ended before it was complete")));
        }
        let Place { cluster, kind, observer, .. } = &self.place;
        observer.watched(cluster, kind.plural(), Watched::Resumed);
        Ok(Ok(()))
    }

    /// There is an answer, or will be none, to what was asked at `began`.
    fn answered(&self, began: Instant) {
        let Place { cluster, kind, observer, .. } = &self.place;
        if began.elapsed() >= SLOW {
            observer.watched(cluster, kind.plural(), Watched::Slow);
        }
    }

    async fn hear(&mut self, line: &[u8]) -> Result<Result<(), Trouble>, Over> {
        let Ok(text) = std::str::from_utf8(line) else {
            return Ok(Err(Trouble::other("an event is not text in UTF-8")));
        };
        match self.reflector.line(text) {
            Ok(Heard::Changes { changes, listed }) => {
                self.say(News::Changes(changes)).await?;
                if listed {
                    self.list_is_complete().await?;
                }
                Ok(Ok(()))
            }
            Ok(Heard::Error { code, message }) => Ok(Err(RequestError::of_status(code, &message, 0).into())),
            Err(error) => {
                self.reflector.start_over();
                Ok(Err(Trouble::other(format!("not an event: {error}"))))
            }
        }
    }

    async fn list_is_complete(&mut self) -> Result<(), Over> {
        let Place { cluster, kind, observer, .. } = &self.place;
        observer.watched(cluster, kind.plural(), Watched::Listed);
        tracing::debug!(%cluster, %kind, objects = self.reflector.len(), "listed");
        // This may be given up at any await when the kind moves: what was not told is told the next time.
        if !self.listed {
            self.say(News::Listed).await?;
            self.listed = true;
        }
        Ok(())
    }

    async fn healthy(&mut self) -> Result<(), Over> {
        if self.failing {
            self.say(News::Healthy).await?;
            self.failing = false;
        }
        Ok(())
    }

    async fn say(&self, news: News) -> Result<(), Over> {
        if matches!(&news, News::Changes(changes) if changes.is_empty()) {
            return Ok(());
        }
        self.out.send((self.place.kind, news)).await.map_err(|_| Over)
    }
}
