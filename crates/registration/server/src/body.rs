//! Request bodies with limits of bytes and time, and response bodies that report their end.

use crate::activity::Busy;
use crate::failure::Failure;
use crate::limits::QuotaGuard;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pilotfish_grpc_framing::{Begun, Boundaries};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// Scope of the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The whole body, which is not gRPC.
    Whole,
    /// The whole body, which is one gRPC message.
    Single,
    /// Each gRPC message of a stream.
    Message,
}

/// A request body with limits. Its error is sent to the client.
pub(crate) struct LimitedBody<B> {
    body: B,
    part: Part,
    bytes: usize,
    time: Duration,
    held: Arc<QuotaGuard>,
    received: usize,
    messages: Boundaries,
    /// Deadline of the current part.
    until: Option<Pin<Box<Sleep>>>,
}

impl<B> LimitedBody<B> {
    pub(crate) fn new(body: B, part: Part, bytes: usize, time: Duration, held: Arc<QuotaGuard>) -> Self {
        let until = (part != Part::Message).then(|| Box::pin(tokio::time::sleep(time)));
        Self { body, part, bytes, time, held, received: 0, messages: Boundaries::default(), until }
    }

    /// Bytes of the messages that begin in the data.
    fn begun(&mut self, data: &[u8]) -> Result<usize, Failure> {
        let Begun { bytes, longest } = self.messages.read(data);
        if longest > self.bytes { Err(Failure::too_long(self.bytes)) } else { Ok(bytes) }
    }

    fn count(&mut self, data: &Bytes) -> Result<(), Failure> {
        let was_open = self.messages.is_within();
        // The announced length counts, because tonic allocates it at once.
        let taken = match self.part {
            Part::Whole => data.len(),
            Part::Single | Part::Message => self.begun(data)?,
        };
        self.held.add(taken).map_err(|exceeded| {
            Failure::limit(exceeded.limit, "the requests that are being read have too many bytes: try again")
        })?;
        match self.part {
            Part::Whole | Part::Single => {
                self.received = self.received.saturating_add(data.len());
                if self.received > self.bytes {
                    return Err(Failure::too_long(self.bytes));
                }
            }
            Part::Message => {
                if !self.messages.is_within() {
                    self.held.reduce_to(0);
                    self.until = None;
                } else if !was_open || self.until.is_none() {
                    self.until = Some(Box::pin(tokio::time::sleep_until(Instant::now() + self.time)));
                }
            }
        }
        Ok(())
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for LimitedBody<B>
where
    B::Error: std::fmt::Display,
{
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        if self.part != Part::Message && self.body.size_hint().lower() > self.bytes as u64 {
            return Poll::Ready(Some(Err(Failure::too_long(self.bytes))));
        }
        if self.until.as_mut().is_some_and(|until| until.as_mut().poll(cx).is_ready()) {
            return Poll::Ready(Some(Err(Failure::slow())));
        }
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            None => return Poll::Ready(None),
            Some(Err(error)) => {
                use pilotfish_registration_api::v1::error::Code;
                let message = format!("the request broke off: {error}");
                return Poll::Ready(Some(Err(Failure::new(Code::InvalidArgument, message))));
            }
            Some(Ok(frame)) => frame,
        };
        if let Some(data) = frame.data_ref() {
            let data = data.clone();
            if let Err(failure) = self.count(&data) {
                return Poll::Ready(Some(Err(failure)));
            }
            if let Some(until) = self.until.as_mut() {
                // Registers this task's waker for the deadline.
                let _ = until.as_mut().poll(cx);
            }
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A response body that holds a guard until it ends or is dropped.
pub(crate) struct Guarded<B> {
    body: B,
    _busy: Busy,
}

impl<B> Guarded<B> {
    pub(crate) fn new(body: B, busy: Busy) -> Self {
        Self { body, _busy: busy }
    }
}

impl<B: Body + Unpin> Body for Guarded<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{Quota, ServerLimits, of_addresses, of_connection};
    use http_body_util::{BodyExt, StreamBody};
    use pilotfish_registration_api::v1::error::Code;

    /// That of a connection, with so many bytes.
    fn budget(bytes: usize) -> Arc<Quota> {
        let limits = ServerLimits { connection_request_bytes: bytes, ..ServerLimits::default() };
        of_connection(&of_addresses(&limits).of([192, 0, 2, 1].into()), &limits)
    }

    type Source = tokio::sync::mpsc::UnboundedSender<Bytes>;

    fn body(
        part: Part,
        budget: &Arc<Quota>,
    ) -> (Source, LimitedBody<impl Body<Data = Bytes, Error = std::convert::Infallible> + Unpin>) {
        let (sender, receiver) = tokio::sync::mpsc::unbounded_channel::<Bytes>();
        let frames = futures::stream::unfold(receiver, |mut receiver| async {
            receiver.recv().await.map(|data| (Ok(Frame::data(data)), receiver))
        });
        let body = StreamBody::new(Box::pin(frames));
        (
            sender,
            LimitedBody::new(body, part, 10, Duration::from_secs(30), Arc::new(QuotaGuard::empty(budget))),
        )
    }

    async fn failure<B: Body<Data = Bytes, Error = Failure> + Unpin>(body: B) -> Option<Code> {
        body.collect().await.err().map(|failure| failure.code)
    }

    #[tokio::test(start_paused = true)]
    async fn a_whole_body_has_so_many_bytes_and_so_much_time() {
        let budget = budget(1_000);
        let (sender, whole) = body(Part::Whole, &budget);
        sender.send(Bytes::from_static(b"0123456789")).unwrap();
        drop(sender);
        assert_eq!(failure(whole).await, None);
        let (sender, whole) = body(Part::Whole, &budget);
        sender.send(Bytes::from_static(b"0123456789x")).unwrap();
        assert_eq!(failure(whole).await, Some(Code::ResourceExhausted));
        let (sender, whole) = body(Part::Whole, &budget);
        sender.send(Bytes::from_static(b"0")).unwrap();
        assert_eq!(failure(whole).await, Some(Code::DeadlineExceeded), "the rest never comes");
        drop(sender);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_may_go_on_but_not_a_message() {
        let budget = budget(1_000);
        let (sender, mut stream) = body(Part::Message, &budget);
        for _ in 0..100 {
            sender.send(Bytes::from_static(b"\0\0\0\0\x03abc\0\0\0\0\0\0\0")).unwrap();
            sender.send(Bytes::from_static(b"\0\0\x02ab")).unwrap();
            for _ in 0..2 {
                assert!(matches!(stream.frame().await, Some(Ok(_))));
            }
            tokio::time::advance(Duration::from_secs(100)).await;
        }
        sender.send(Bytes::from_static(b"\0\0\0\0\x03ab")).unwrap();
        assert!(matches!(stream.frame().await, Some(Ok(_))));
        assert_eq!(stream.frame().await.unwrap().unwrap_err().code, Code::DeadlineExceeded);
        let (sender, stream) = body(Part::Message, &budget);
        sender.send(Bytes::from_static(b"\0\0\0\0\x0b")).unwrap();
        assert_eq!(failure(stream).await, Some(Code::ResourceExhausted), "it says that it will be too long");
    }

    #[tokio::test]
    async fn messages_are_counted_by_what_they_say_they_have() {
        for part in [Part::Single, Part::Message] {
            let budget = budget(30);
            let begun = || {
                let (sender, body) = body(part, &budget);
                sender.send(Bytes::from_static(b"\0\0\0\0\x0aab")).unwrap();
                (sender, body)
            };
            let ((_first, mut one), (_second, mut two), (third, three)) = (begun(), begun(), begun());
            assert!(matches!(one.frame().await, Some(Ok(_))));
            assert!(matches!(two.frame().await, Some(Ok(_))));
            drop(third);
            assert_eq!(
                failure(three).await,
                Some(Code::ResourceExhausted),
                "{part:?}: 45 bytes are said to come"
            );
        }
    }

    #[tokio::test]
    async fn bodies_share_what_may_be_read() {
        let budget = budget(12);
        let (first, mut one) = body(Part::Whole, &budget);
        first.send(Bytes::from_static(b"01234567")).unwrap();
        assert!(matches!(one.frame().await, Some(Ok(_))));
        let (second, two) = body(Part::Whole, &budget);
        second.send(Bytes::from_static(b"01234567")).unwrap();
        assert_eq!(failure(two).await, Some(Code::ResourceExhausted));
        drop(one);
        let (third, three) = body(Part::Whole, &budget);
        third.send(Bytes::from_static(b"01234567")).unwrap();
        drop(third);
        assert_eq!(failure(three).await, None, "what was dropped is given back");
    }
}
