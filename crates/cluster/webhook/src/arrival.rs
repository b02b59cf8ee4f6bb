//! Bodies of reviews: bounds their memory, since the process also serves proxies, and any client that reaches
//! the port may send.
//!
//! Nothing is reserved for announced lengths. If too many reviews are being read or wait for computation, the
//! slowest one is dropped: an API server sends a review at once, so it is none of these. A client with more
//! than a quarter of them loses its own first.

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use http_body_util::BodyExt;
use pilotfish_admission::{HalfOpen, Handshake};
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;

/// Maximum size of a review: the largest object of API servers, as its old and new version, in JSON.
pub(crate) const LARGEST: usize = 8 << 20;
/// Maximum size of a small review. Nearly all are small.
const SMALL: usize = 256 << 10;
/// Maximum number of small reviews of one webhook in memory.
pub(crate) const SMALL_AT_A_TIME: usize = 64;
/// Maximum number of larger ones. Together with the small ones at most 64 MiB.
const LARGE_AT_A_TIME: usize = 6;

/// Reason why a review is not answered.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    /// Reached limit, if there is one.
    pub(crate) limit: Option<&'static str>,
}

impl Failure {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), limit: None }
    }

    pub(crate) fn of_limit(limit: &'static str, status: StatusCode, what: &str) -> Self {
        Self { status, message: format!("{what} (limit {limit})\n"), limit: Some(limit) }
    }
}

/// Reviews of one webhook that are in memory.
pub(crate) struct Arrivals {
    small: Arc<HalfOpen>,
    large: Arc<HalfOpen>,
}

/// A review in memory; it may be dropped until it is computed.
pub(crate) struct Arrived {
    pub(crate) body: Bytes,
    place: Handshake,
}

impl Arrivals {
    pub(crate) fn new() -> Self {
        Self { small: HalfOpen::new(SMALL_AT_A_TIME), large: HalfOpen::new(LARGE_AT_A_TIME) }
    }

    /// Reads the body from a client at that address.
    ///
    /// # Errors
    /// If it is too large, incomplete, or dropped.
    pub(crate) async fn read(&self, address: IpAddr, mut body: Body) -> Result<Arrived, Failure> {
        let mut place = self.small.begin(address);
        let mut read = Vec::new();
        while let Some(frame) = or_give_way(&place, body.frame()).await? {
            let frame = frame.map_err(|error| Failure::new(StatusCode::BAD_REQUEST, format!("{error}\n")))?;
            let Ok(data) = frame.into_data() else { continue };
            if read.len() + data.len() > LARGEST {
                let what = format!("a review has at most {LARGEST} bytes");
                return Err(Failure::of_limit("review-bytes", StatusCode::PAYLOAD_TOO_LARGE, &what));
            }
            if read.len() <= SMALL && read.len() + data.len() > SMALL {
                place = self.large.begin(address);
            }
            read.extend_from_slice(&data);
        }
        Ok(Arrived { body: read.into(), place })
    }
}

impl Arrived {
    /// Waits for a future, unless other reviews need the memory first.
    ///
    /// # Errors
    /// If they do.
    pub(crate) async fn until<T>(&self, what: impl Future<Output = T>) -> Result<T, Failure> {
        or_give_way(&self.place, what).await
    }
}

async fn or_give_way<T>(place: &Handshake, what: impl Future<Output = T>) -> Result<T, Failure> {
    tokio::select! {
        biased;
        done = what => Ok(done),
        () = place.gave_way() => {
            let what = "too many reviews are being read, and this one takes longest";
            Err(Failure::of_limit("reviews-in-memory", StatusCode::SERVICE_UNAVAILABLE, what))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::task::Poll;

    fn address(last: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, last).into()
    }

    /// A body of that many bytes, and then nothing more for ever.
    fn stalled(bytes: usize) -> Body {
        let mut first = Some(Bytes::from(vec![b' '; bytes]));
        Body::from_stream(futures::stream::poll_fn(move |_| match first.take() {
            Some(first) => Poll::Ready(Some(Ok::<_, std::io::Error>(first))),
            None => Poll::Pending,
        }))
    }

    #[tokio::test]
    async fn slow_clients_give_way_to_one_that_sends_at_once() {
        let arrivals = Arc::new(Arrivals::new());
        let slow = |last: u8, bytes: usize| {
            let arrivals = arrivals.clone();
            tokio::spawn(async move { arrivals.read(address(last), stalled(bytes)).await.map(drop) })
        };
        let mut waiting: Vec<_> = (0..200_u8).map(|n| slow(n % 8, 10)).collect();
        waiting.extend((0..20_u8).map(|n| slow(n, LARGEST - 1)));
        for _ in 0..10_000 {
            tokio::task::yield_now().await;
        }
        let held = waiting.iter().filter(|task| !task.is_finished()).count();
        assert!(held <= SMALL_AT_A_TIME + LARGE_AT_A_TIME, "{held} are held");
        assert!(held > SMALL_AT_A_TIME, "{held} are held, and there is room for more");
        let body = vec![b' '; LARGEST];
        let read = arrivals.read(address(250), Body::from(body)).await;
        assert_eq!(read.map(|arrived| arrived.body.len()).map_err(|error| error.status), Ok(LARGEST));
        for task in waiting.into_iter().filter(tokio::task::JoinHandle::is_finished) {
            assert_eq!(task.await.unwrap().unwrap_err().status, StatusCode::SERVICE_UNAVAILABLE);
        }
    }

    #[tokio::test]
    async fn one_that_waits_for_its_turn_may_have_to_give_way() {
        let arrivals = Arrivals::new();
        let first = arrivals.read(address(1), Body::from("{}")).await.ok().unwrap();
        let mut others = Vec::new();
        for n in 0..SMALL_AT_A_TIME {
            others
                .push(arrivals.read(address(u8::try_from(n / 8).unwrap() + 2), Body::from("{}")).await.ok());
        }
        let waited = first.until(std::future::pending::<()>()).await;
        assert_eq!(waited.unwrap_err().status, StatusCode::SERVICE_UNAVAILABLE);
    }
}
