//! `/metrics`: open to all clients, so concurrent requests share one page.
//!
//! ```text
//! requests before a page was begun ─┐
//!                                   ├─▶ one thread computes the next page ─▶ the same bytes for each
//! requests during another page ─────┘
//! ```
//!
//! A page is never older than the request that it answers. A scraper waits for at most two pages, regardless
//! of the number of requests; and clients at one address that do not read their responses do not block other
//! addresses.

use crate::Metrics;
use axum::body::{Body, Bytes};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use pilotfish_admission::{KeyedSemaphore, Permit, network_of};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Maximum number of concurrent requests of one address (limit `address-metrics`).
pub(crate) const OF_AN_ADDRESS: usize = 8;
/// Maximum size of computed pages that clients have not read, in KiB (limit `metrics-bytes`).
pub(crate) const WAITING_KIB: usize = 16 << 10;
/// Timeout of a metrics request (limit `metrics-time`).
pub(crate) const PATIENCE_SECONDS: usize = 10;
const PATIENCE: Duration = Duration::from_secs(PATIENCE_SECONDS as u64);

/// The newest page, as long as some client reads it.
#[derive(Default)]
struct Newest {
    number: u64,
    page: Weak<Page>,
}

/// A page in memory.
struct Page {
    bytes: Bytes,
    _room: OwnedSemaphorePermit,
}

/// A page on its way to one client.
struct Taken {
    page: Arc<Page>,
    _of_address: Permit,
}

impl AsRef<[u8]> for Taken {
    fn as_ref(&self) -> &[u8] {
        &self.page.bytes
    }
}

/// Reason for a missing page.
enum NoPage {
    Limit(&'static str),
    /// The page cannot be computed.
    Failed(String),
}

/// Computes pages and shares them.
pub(crate) struct MetricsPage {
    /// Number of pages begun.
    begun: Arc<AtomicU64>,
    newest: Arc<Mutex<Newest>>,
    room: Arc<Semaphore>,
    addresses: KeyedSemaphore<IpAddr>,
    metrics: Arc<Metrics>,
}

impl MetricsPage {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            begun: Arc::default(),
            newest: Arc::default(),
            room: Arc::new(Semaphore::new(WAITING_KIB)),
            addresses: KeyedSemaphore::new(OF_AN_ADDRESS),
            metrics,
        }
    }

    /// Responds with the page that `make` computes, or that of another request that began later.
    pub(crate) async fn answer<F>(&self, peer: Option<IpAddr>, make: F) -> Response
    where
        F: FnOnce() -> Result<String, String> + Send + 'static,
    {
        let Some(of_address) =
            self.addresses.try_acquire(network_of(peer.unwrap_or(Ipv4Addr::LOCALHOST.into())))
        else {
            return self.refuse("address-metrics");
        };
        match timeout(PATIENCE, self.page(make)).await {
            Ok(Ok(page)) => {
                let body = Body::from(Bytes::from_owner(Taken { page, _of_address: of_address }));
                ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], body).into_response()
            }
            Ok(Err(NoPage::Limit(limit))) => self.refuse(limit),
            Ok(Err(NoPage::Failed(error))) => {
                (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response()
            }
            Err(_) => self.refuse("metrics-time"),
        }
    }

    async fn page<F>(&self, make: F) -> Result<Arc<Page>, NoPage>
    where
        F: FnOnce() -> Result<String, String> + Send + 'static,
    {
        let next = self.begun.load(Ordering::Acquire) + 1;
        let mut newest = Arc::clone(&self.newest).lock_owned().await;
        if newest.number >= next
            && let Some(page) = newest.page.upgrade()
        {
            return Ok(page);
        }
        let (begun, room) = (Arc::clone(&self.begun), Arc::clone(&self.room));
        // The lock moves along, so that one page is computed at a time, even if its client is gone.
        let made = tokio::task::spawn_blocking(move || {
            newest.number = begun.fetch_add(1, Ordering::AcqRel) + 1;
            let bytes = Bytes::from(make().map_err(NoPage::Failed)?);
            let kib = u32::try_from(bytes.len().div_ceil(1_024).min(WAITING_KIB)).unwrap_or(u32::MAX);
            let room = room.try_acquire_many_owned(kib).map_err(|_| NoPage::Limit("metrics-bytes"))?;
            let page = Arc::new(Page { bytes, _room: room });
            newest.page = Arc::downgrade(&page);
            Ok(page)
        });
        made.await.unwrap_or_else(|error| Err(NoPage::Failed(error.to_string())))
    }

    fn refuse(&self, limit: &'static str) -> Response {
        self.metrics.limit_reached("admin", limit);
        let message = format!("too much is asked for (limit {limit}): try again\n");
        (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")], message).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn page() -> Arc<MetricsPage> {
        Arc::new(MetricsPage::new(Arc::new(Metrics::new("1").unwrap())))
    }

    fn address(last: u8) -> Option<IpAddr> {
        Some(Ipv4Addr::new(192, 0, 2, last).into())
    }

    #[tokio::test]
    async fn who_asks_while_a_page_is_made_shares_the_next_one() {
        let (page, made) = (page(), Arc::new(AtomicU64::new(0)));
        let (go_on, wait) = mpsc::channel::<()>();
        let wait = Arc::new(std::sync::Mutex::new(wait));
        let ask = |last: u8| {
            let (page, made, wait) = (page.clone(), made.clone(), wait.clone());
            tokio::spawn(async move {
                let make = move || {
                    let number = made.fetch_add(1, Ordering::SeqCst) + 1;
                    // Until the test lets it go on.
                    let _ = wait.lock().unwrap().recv();
                    Ok(format!("{number}"))
                };
                let response = page.answer(address(last), make).await;
                axum::body::to_bytes(response.into_body(), 1_024).await.unwrap()
            })
        };
        let first = ask(1);
        while made.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        let others: Vec<_> = (2..100).map(ask).collect();
        // They are in the queue before the first page is done.
        tokio::task::yield_now().await;
        go_on.send(()).unwrap();
        go_on.send(()).unwrap();
        assert_eq!(first.await.unwrap(), "1");
        // One of them may take its page before the last of them looks: then that one makes another.
        drop(go_on);
        for other in others {
            let number = other.await.unwrap();
            assert!(number != "1", "its page was begun before it asked");
        }
        assert!(made.load(Ordering::SeqCst) < 50, "{made:?} pages for 99 requests");
    }

    #[tokio::test]
    async fn an_address_that_takes_nothing_keeps_no_other_from_its_metrics() {
        let page = page();
        let mut held = Vec::new();
        for _ in 0..OF_AN_ADDRESS {
            held.push(page.answer(address(1), || Ok("x".repeat(1 << 20))).await);
        }
        assert!(held.iter().all(|response| response.status() == StatusCode::OK));
        let one_more = page.answer(address(1), || Ok(String::new())).await;
        assert_eq!(one_more.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(page.answer(address(2), || Ok(String::new())).await.status(), StatusCode::OK);
        assert_eq!(page.metrics.limits_reached("admin", "address-metrics"), 1);
        drop(held);
        assert_eq!(page.answer(address(1), || Ok(String::new())).await.status(), StatusCode::OK);
        assert_eq!(page.room.available_permits(), WAITING_KIB, "nothing is kept");
    }
}
