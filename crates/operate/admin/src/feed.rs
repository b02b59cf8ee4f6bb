//! Events for subscribers of `/api/v1/events`.
//!
//! ```text
//! publish(Event) ─▶ the newest of each kind ─▶ subscribers: each takes kinds newer than its last ones
//! ```
//!
//! Events are not queued: a slow subscriber reads the newest of each kind next time, so it costs a permit and
//! a few numbers.

use axum::http::{StatusCode, header};
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use pilotfish_api::v1::{ChangeProgress, Overview, Sample};
use serde::Serialize;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

/// Maximum number of concurrent event streams.
pub const SUBSCRIBERS: usize = 32;
/// Lifetime of a stream; browsers reconnect automatically.
const LIFE: Duration = Duration::from_secs(600);
/// Interval of keepalive comments without events, below the idle timeout of connections.
const ALIVE: Duration = Duration::from_secs(15);
/// Minimum interval between events of a stream.
const PAUSE: Duration = Duration::from_millis(100);
/// Maximum number of stored samples, one per second.
pub const SAMPLES: usize = 600;
/// Maximum number of changes in an event.
pub const CHANGES: usize = 50;

const KINDS: [&str; 3] = ["overview", "changes", "sample"];

/// Newest event of each kind, with an ascending number.
#[derive(Default)]
struct Newest {
    texts: [Option<(u64, Arc<str>)>; KINDS.len()],
    number: u64,
}

/// Newest events, and their subscribers.
pub struct Feed {
    newest: Mutex<Newest>,
    samples: Mutex<VecDeque<Sample>>,
    /// Number of the newest event.
    news: watch::Sender<u64>,
    places: Arc<Semaphore>,
    /// Notified when a subscriber connects.
    arrived: Notify,
}

impl Default for Feed {
    fn default() -> Self {
        Self {
            newest: Mutex::default(),
            samples: Mutex::default(),
            news: watch::Sender::new(0),
            places: Arc::new(Semaphore::new(SUBSCRIBERS)),
            arrived: Notify::new(),
        }
    }
}

impl Feed {
    /// True if there are subscribers.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        self.places.available_permits() < SUBSCRIBERS
    }

    /// Waits until a subscriber connects, which needs current numbers.
    pub async fn arrival(&self) {
        self.arrived.notified().await;
    }

    /// Publishes the overview if it changed.
    pub fn overview(&self, overview: &Overview) {
        self.tell(0, overview);
    }

    /// Publishes the last changes, the newest first, if they changed.
    pub fn changes(&self, changes: &[ChangeProgress]) {
        self.tell(1, &changes);
    }

    /// Publishes a sample and stores it.
    pub fn sample(&self, sample: Sample) {
        self.tell(2, &sample);
        let mut samples = self.samples.lock();
        if samples.len() >= SAMPLES {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    /// Stored samples, the oldest first.
    pub(crate) fn samples(&self) -> Vec<Sample> {
        self.samples.lock().iter().cloned().collect()
    }

    fn tell(&self, kind: usize, what: &impl Serialize) {
        // Fields are numbers and strings: serialisation cannot fail.
        let Ok(text) = serde_json::to_string(what) else { return };
        let mut newest = self.newest.lock();
        let number = newest.number + 1;
        let Some(slot) = newest.texts.get_mut(kind) else { return };
        if slot.as_ref().is_some_and(|(_, before)| **before == *text) {
            return;
        }
        *slot = Some((number, text.into()));
        newest.number = number;
        drop(newest);
        self.news.send_replace(number);
    }

    /// Subscribes to events; `None` if the maximum number of streams is reached.
    fn subscribe(self: &Arc<Self>) -> Option<Subscriber> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok()?;
        self.arrived.notify_one();
        let mut news = self.news.subscribe();
        // A new subscriber receives the existing events as well.
        news.mark_changed();
        Some(Subscriber {
            feed: Arc::clone(self),
            news,
            taken: [0; KINDS.len()],
            waiting: VecDeque::new(),
            end: Instant::now() + LIFE,
            next: Instant::now(),
            _place: place,
        })
    }
}

/// A subscriber of the feed.
struct Subscriber {
    feed: Arc<Feed>,
    news: watch::Receiver<u64>,
    /// Number of the last event of each kind that was taken.
    taken: [u64; KINDS.len()],
    /// Events that were taken and not sent: at most one of each kind.
    waiting: VecDeque<(&'static str, Arc<str>)>,
    end: Instant,
    next: Instant,
    _place: OwnedSemaphorePermit,
}

impl Subscriber {
    /// The next event; `None` at the end of the stream's lifetime.
    async fn next(&mut self) -> Option<(&'static str, Arc<str>)> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Some(event);
            }
            let news = async {
                tokio::time::sleep_until(self.next).await;
                self.news.changed().await
            };
            match tokio::time::timeout_at(self.end, news).await {
                Ok(Ok(())) => self.take(),
                Ok(Err(_)) | Err(_) => return None,
            }
        }
    }

    fn take(&mut self) {
        self.next = Instant::now() + PAUSE;
        let newest = self.feed.newest.lock();
        for ((kind, slot), taken) in KINDS.iter().zip(&newest.texts).zip(&mut self.taken) {
            if let Some((number, text)) = slot
                && *number > *taken
            {
                *taken = *number;
                self.waiting.push_back((kind, Arc::clone(text)));
            }
        }
    }
}

/// Responds with a stream of events.
pub(crate) fn stream(feed: &Arc<Feed>) -> Response {
    let Some(subscriber) = feed.subscribe() else {
        const MESSAGE: &str = "too many streams of events (limit event-streams): try again\n";
        return (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "5")], MESSAGE).into_response();
    };
    let events = futures::stream::unfold(subscriber, |mut subscriber| async move {
        let (kind, text) = subscriber.next().await?;
        Some((Ok::<_, Infallible>(SseEvent::default().event(kind).data(&*text)), subscriber))
    });
    let alive = KeepAlive::new().interval(ALIVE);
    ([(header::CACHE_CONTROL, "no-store")], Sse::new(events).keep_alive(alive)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overview(revision: u64) -> Overview {
        Overview { revision, ..Overview::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_subscriber_gets_what_is_there_and_then_the_newest() {
        let feed = Arc::new(Feed::default());
        feed.overview(&overview(1));
        feed.changes(&[]);
        let mut subscriber = feed.subscribe().unwrap();
        feed.arrival().await;
        assert!(feed.is_watched());
        assert_eq!(subscriber.next().await.unwrap().0, "overview");
        assert_eq!(subscriber.next().await.unwrap().0, "changes");
        for revision in 2..100 {
            feed.overview(&overview(revision));
        }
        let (kind, text) = subscriber.next().await.unwrap();
        assert!(kind == "overview" && text.contains("\"revision\":99"), "{text}");
        feed.overview(&overview(99));
        assert!(subscriber.next().await.is_none(), "equal is no news; after its life it ends");
        drop(subscriber);
        assert!(!feed.is_watched());
    }

    #[tokio::test]
    async fn there_are_so_many_places() {
        let feed = Arc::new(Feed::default());
        let all: Vec<_> = (0..SUBSCRIBERS).map(|_| feed.subscribe().unwrap()).collect();
        assert!(feed.subscribe().is_none());
        assert_eq!(stream(&feed).status(), StatusCode::SERVICE_UNAVAILABLE);
        drop(all);
        assert_eq!(stream(&feed).status(), StatusCode::OK);
    }

    #[test]
    fn samples_are_kept_for_a_while() {
        let feed = Feed::default();
        for at in 0..SAMPLES + 10 {
            feed.sample(Sample { at: at as f64, ..Sample::default() });
        }
        let samples = feed.samples();
        assert_eq!((samples.len(), samples[0].at), (SAMPLES, 10.0));
    }
}
