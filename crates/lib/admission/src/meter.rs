//! Read rate of an HTTP/2 connection.
//!
//! HTTP/2 has many frames that are cheap to send and carry no data: pings, settings, resets, empty data,
//! split headers. They are counted on arrival, before they are processed. A client above its rate is read
//! more slowly, and TCP flow control slows it down. Nothing is refused, because a burst of legitimate
//! requests looks the same for a while. Bytes that are not HTTP/2 are not counted.

use crate::token_bucket::TokenBucket;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// Connection preface of an HTTP/2 client.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Size of a frame header: length, type, flags and stream.
const HEADER: usize = 9;
/// The type of the frame that opens a stream, and of the one that may change the windows of all streams.
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
/// Cost of a SETTINGS frame, in frames.
const HIGH_COST: usize = 100;
/// Burst of frames or requests that a client is read with, in seconds of its rate.
pub const BURST: u32 = 10;
/// Minimum cost that is charged at once: sporadic acknowledgements then need neither the clock nor a
/// division.
const OWED: usize = 64;
/// Each stream of an identified client raises the frame rate of its connection by one `STREAM_PART`th.
const STREAM_PART: usize = 20;

/// Frame rate of a connection, and the cost of frames.
#[derive(Clone, Copy, Debug)]
pub struct FrameRates {
    /// Frames per second; a burst may have ten times as many.
    pub per_second: u32,
    /// Cost of a frame that opens a stream.
    pub stream: usize,
    /// Number of payload bytes that cost as much as one more frame.
    pub bytes_of_one: usize,
}

/// Parser of frame boundaries in a client's bytes.
#[derive(Debug)]
struct Frames {
    rates: FrameRates,
    /// Expected rest of the preface; `None` if the client does not speak HTTP/2.
    preface: Option<&'static [u8]>,
    /// Bytes of payload to skip.
    skip: usize,
    header: [u8; HEADER],
    /// Number of header bytes received.
    known: usize,
}

impl Frames {
    fn new(rates: FrameRates) -> Self {
        Self { rates, preface: Some(PREFACE), skip: 0, header: [0; HEADER], known: 0 }
    }

    /// Returns the bytes after the preface; nothing if they are not HTTP/2.
    fn after_preface<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let Some(preface) = self.preface else { return &[] };
        let (begun, rest) = bytes.split_at(preface.len().min(bytes.len()));
        self.preface = preface.strip_prefix(begun);
        if self.preface.is_some() { rest } else { &[] }
    }

    /// Returns the cost of the frames that begin in these bytes.
    fn cost(&mut self, mut bytes: &[u8]) -> usize {
        let mut cost = 0;
        bytes = self.after_preface(bytes);
        loop {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = bytes.get(skipped..).unwrap_or_default();
            let Some((first, rest)) = bytes.split_first() else { return cost };
            if let Some(place) = self.header.get_mut(self.known) {
                *place = *first;
            }
            self.known += 1;
            bytes = rest;
            if self.known == HEADER {
                let [a, b, c, kind, ..] = self.header;
                let length = u32::from_be_bytes([0, a, b, c]);
                self.skip = usize::try_from(length).unwrap_or(usize::MAX);
                self.known = 0;
                cost += self.skip / self.rates.bytes_of_one.max(1)
                    + match kind {
                        HEADERS => self.rates.stream,
                        SETTINGS => HIGH_COST,
                        _ => 1,
                    };
            }
        }
    }
}

/// Number of a connection's streams with identified clients, shared with its meter.
#[derive(Clone, Debug, Default)]
pub struct KnownStreams(Arc<AtomicUsize>);

/// One such stream, until it is dropped.
#[derive(Debug)]
pub struct KnownStream(KnownStreams);

impl KnownStreams {
    /// Counts one more stream.
    #[must_use]
    pub fn enter(&self) -> KnownStream {
        self.0.fetch_add(1, Ordering::Relaxed);
        KnownStream(self.clone())
    }
}

impl Drop for KnownStream {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Called when a connection has to wait.
pub type OnWait = Box<dyn Fn() + Send + Sync>;

/// A socket that counts frames.
pub struct Metered<I> {
    io: I,
    frames: Frames,
    /// Cost that is not charged yet.
    owed: usize,
    rate: TokenBucket,
    known: KnownStreams,
    on_wait: OnWait,
    /// True if the frames counted last have to be waited for.
    is_late: bool,
    /// Timer until the socket is read again.
    wait: Option<Pin<Box<Sleep>>>,
}

impl<I> fmt::Debug for Metered<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metered")
            .field("frames", &self.frames)
            .field("rate", &self.rate)
            .finish_non_exhaustive()
    }
}

impl<I> Metered<I> {
    /// Counts the frames of `io`. `known` counts its streams with identified clients.
    pub fn new(io: I, rates: FrameRates, known: KnownStreams, on_wait: OnWait) -> Self {
        let rate = TokenBucket::per_second(rates.per_second, rates.per_second.saturating_mul(BURST));
        let frames = Frames::new(rates);
        Self { io, frames, owed: 0, rate, known, on_wait, is_late: false, wait: None }
    }

    fn count(&mut self) {
        let cost = std::mem::take(&mut self.owed);
        // Streams of identified clients raise the rate, so each frame costs less.
        let known = self.known.0.load(Ordering::Relaxed);
        let cost = (cost * STREAM_PART).div_ceil(STREAM_PART + known);
        let now = Instant::now();
        self.rate.take_many(cost, now);
        let until = self.rate.ready_at().filter(|until| *until > now);
        let was_late = std::mem::replace(&mut self.is_late, until.is_some());
        if self.is_late && !was_late {
            (self.on_wait)();
        }
        self.wait = until.map(|until| Box::pin(tokio::time::sleep_until(until)));
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Metered<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let Some(wait) = &mut this.wait {
            std::task::ready!(wait.as_mut().poll(cx));
            this.wait = None;
        }
        let before = buf.filled().len();
        std::task::ready!(Pin::new(&mut this.io).poll_read(cx, buf))?;
        this.owed += this.frames.cost(buf.filled().get(before..).unwrap_or_default());
        if this.owed >= OWED {
            this.count();
        }
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Metered<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    const RATES: FrameRates = FrameRates { per_second: 100, stream: 100, bytes_of_one: 1_024 };

    fn frame(kind: u8, payload: usize) -> Vec<u8> {
        let length = u32::try_from(payload).unwrap().to_be_bytes();
        let mut bytes = length[1..].to_vec();
        bytes.extend([kind, 0, 0, 0, 0, 1]);
        bytes.extend(vec![9; payload]);
        bytes
    }

    #[test]
    fn frames_are_found_however_they_are_cut() {
        let all =
            [PREFACE.to_vec(), frame(4, 0), frame(6, 8), frame(HEADERS, 100), frame(0, 16_384), frame(0, 0)];
        let all = all.concat();
        for size in [1, 2, 8, 9, 10, 1_000, all.len()] {
            let mut frames = Frames::new(RATES);
            let cost: usize = all.chunks(size).map(|chunk| frames.cost(chunk)).sum();
            assert_eq!(cost, HIGH_COST + 1 + HIGH_COST + 17 + 1, "in chunks of {size}");
        }
    }

    #[test]
    fn what_is_not_http2_is_not_counted() {
        let request = [&b"POST /v1/instances HTTP/1.1\r\nhost: a\r\n\r\n"[..], &[0; 10_000]].concat();
        for size in [1, 3, request.len()] {
            let mut frames = Frames::new(RATES);
            assert_eq!(request.chunks(size).map(|chunk| frames.cost(chunk)).sum::<usize>(), 0);
        }
    }

    /// Reads as long as something comes.
    fn read(io: &mut Metered<&[u8]>, cx: &mut Context<'_>) -> usize {
        let mut total = 0;
        loop {
            let mut space = [0; 100];
            let mut buf = ReadBuf::new(&mut space);
            match Pin::new(&mut *io).poll_read(cx, &mut buf) {
                Poll::Ready(Ok(())) if !buf.filled().is_empty() => total += buf.filled().len(),
                _ => return total,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_sends_too_many_frames_is_read_more_slowly() {
        let flood = [PREFACE.to_vec(), frame(6, 8).repeat(100_000)].concat();
        let mut cx = Context::from_waker(Waker::noop());
        let mut read_of = |known: usize| {
            let streams = KnownStreams::default();
            let _known: Vec<_> = (0..known).map(|_| streams.enter()).collect();
            let mut io = Metered::new(&flood[..], RATES, streams.clone(), Box::new(|| {}));
            read(&mut io, &mut cx)
        };
        let few = read_of(0) / 17;
        assert!((1_000..1_020 + OWED).contains(&few), "{few} frames: ten seconds' worth");
        let many = read_of(STREAM_PART) / 17;
        assert!(many > 2 * few - 100 - 2 * OWED, "{many} frames, as there are many streams");
    }
}
