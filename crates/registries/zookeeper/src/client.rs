//! One session with one server: requests, responses, watch events and pings. It ends with its connection: a
//! reader has no ephemeral nodes to keep, and must read everything again, because ZooKeeper does not resend
//! missed events.

use crate::wire::{self, Accepted, Answer, Body, Connect, Event, Garbled, Refusal, Request, take_frame};
use bytes::{Buf, BytesMut};
use std::collections::VecDeque;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::time::{Instant, sleep_until, timeout};

/// Size of a read in bytes. The receive buffer holds at most this and one frame.
const CHUNK: usize = 64 << 10;

/// Reason for the end of a session.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    #[error("the connection broke")]
    Broken(#[from] io::Error),
    /// The server closed the connection.
    #[error("the server closed the connection")]
    Closed,
    /// The server closed the connection without a connect response.
    #[error(
        "the server refuses the session: it does not serve now, or has not seen yet what was read before"
    )]
    Refused,
    /// No data for the session timeout.
    #[error("the server is silent for {0:?}")]
    Silent(Duration),
    /// The server expired the session.
    #[error("the session has expired")]
    Expired,
    /// The data is not ZooKeeper's protocol.
    #[error(transparent)]
    Garbled(#[from] Garbled),
    /// The server rejected the digest.
    #[error(transparent)]
    Authentication(Refusal),
}

/// Message from a server.
#[derive(Debug, PartialEq)]
pub(crate) enum Incoming {
    Event(Event),
    Answer(Request, Result<Body, Refusal>),
}

/// Parameters of a new session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening<'a> {
    pub(crate) connect: Connect,
    /// `USER:PASSWORD` for the scheme `digest`.
    pub(crate) digest: Option<&'a [u8]>,
}

/// A session on one connection.
pub(crate) struct Session<S> {
    reader: ReadHalf<S>,
    writer: WriteHalf<S>,
    received: BytesMut,
    to_send: BytesMut,
    /// In sending order, which is the order of the responses.
    unanswered: VecDeque<(i32, Request)>,
    next_number: i32,
    last_zxid: i64,
    session_timeout: Duration,
    heard: Instant,
    said: Instant,
}

impl<S: AsyncRead + AsyncWrite> Session<S> {
    /// Connects, authenticates and starts the session.
    pub(crate) async fn open(stream: S, opening: Opening<'_>) -> Result<Self, ClientError> {
        let (reader, writer) = split(stream);
        let wanted = opening.connect.session_timeout;
        let mut session = Self {
            reader,
            writer,
            received: BytesMut::with_capacity(CHUNK),
            to_send: BytesMut::new(),
            unanswered: VecDeque::new(),
            next_number: 1,
            last_zxid: 0,
            session_timeout: wanted,
            heard: Instant::now(),
            said: Instant::now(),
        };
        opening.connect.write(&mut session.to_send);
        let silence = session.silence();
        let accepted =
            timeout(silence, session.accepted()).await.map_err(|_| ClientError::Silent(silence))??;
        if accepted.session_timeout.is_zero() {
            return Err(ClientError::Expired);
        }
        tracing::debug!(session = format_args!("{:#x}", accepted.session), "ZooKeeper opened a session");
        // The server's value is limited: a wrong one would cause rare pings or a storm of them.
        session.session_timeout = accepted
            .session_timeout
            .clamp(Duration::from_millis(300), wanted.max(Duration::from_secs(1)) * 4);
        if let Some(secret) = opening.digest {
            wire::authenticate("digest", secret, &mut session.to_send);
        }
        Ok(session)
    }

    /// Queues a request. Responses arrive in the order of requests.
    pub(crate) fn send(&mut self, request: Request) {
        request.write(self.next_number, &mut self.to_send);
        self.unanswered.push_back((self.next_number, request));
        self.next_number = if self.next_number == i32::MAX { 1 } else { self.next_number + 1 };
    }

    /// Number of requests without a response.
    pub(crate) fn unanswered(&self) -> usize {
        self.unanswered.len()
    }

    /// The newest transaction id in the server's responses.
    pub(crate) const fn last_zxid(&self) -> i64 {
        self.last_zxid
    }

    /// Returns the next message already received, without waiting.
    pub(crate) fn received(&mut self) -> Result<Option<Incoming>, ClientError> {
        while let Some(frame) = take_frame(&mut self.received)? {
            match Answer::parse(&frame)? {
                Answer::Pong | Answer::Authenticated(Ok(())) => {}
                Answer::Authenticated(Err(refusal)) => return Err(ClientError::Authentication(refusal)),
                Answer::Event(event) => return Ok(Some(Incoming::Event(event))),
                Answer::Reply { number, zxid, body } => {
                    self.last_zxid = self.last_zxid.max(zxid);
                    return self.reply(number, body).map(Some);
                }
            }
        }
        Ok(None)
    }

    /// Sends queued requests and pings, and waits for the next response or event.
    pub(crate) async fn next(&mut self) -> Result<Incoming, ClientError> {
        loop {
            if let Some(incoming) = self.received()? {
                return Ok(incoming);
            }
            self.exchange().await?;
        }
    }

    fn reply(&mut self, number: i32, body: Result<&[u8], Refusal>) -> Result<Incoming, ClientError> {
        let Some((expected, request)) = self.unanswered.pop_front() else {
            return Err(Garbled("an answer to nothing").into());
        };
        if number != expected {
            return Err(Garbled("an answer to another request").into());
        }
        let answer = match body {
            Err(Refusal::SessionExpired) => return Err(ClientError::Expired),
            Err(refusal) => Err(refusal),
            Ok(bytes) => Ok(Body::parse(&request, bytes)?),
        };
        Ok(Incoming::Answer(request, answer))
    }

    /// Waits for the connect response.
    async fn accepted(&mut self) -> Result<Accepted, ClientError> {
        loop {
            if let Some(frame) = take_frame(&mut self.received)? {
                return Ok(Accepted::parse(&frame)?);
            }
            self.exchange().await.map_err(|error| match error {
                ClientError::Closed => ClientError::Refused,
                // The server closed the connection with unread data.
                ClientError::Broken(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    ClientError::Refused
                }
                other => other,
            })?;
        }
    }

    /// Does one step of input or output.
    async fn exchange(&mut self) -> Result<(), ClientError> {
        let Self { reader, writer, received, to_send, heard, said, .. } = self;
        received.reserve(CHUNK);
        let silence = self.session_timeout * 2 / 3;
        let ping_due = *said + self.session_timeout / 3;
        let has_output = !to_send.is_empty();
        tokio::select! {
            count = reader.read_buf(received) => match count? {
                0 => return Err(ClientError::Closed),
                _ => *heard = Instant::now(),
            },
            count = writer.write(to_send), if has_output => {
                to_send.advance(count?);
                *said = Instant::now();
                if to_send.is_empty() {
                    writer.flush().await?;
                }
            }
            () = sleep_until(ping_due), if !has_output => wire::ping(to_send),
            () = sleep_until(*heard + silence) => return Err(ClientError::Silent(silence)),
        }
        Ok(())
    }

    fn silence(&self) -> Duration {
        self.session_timeout * 2 / 3
    }
}

#[cfg(test)]
mod tests;
