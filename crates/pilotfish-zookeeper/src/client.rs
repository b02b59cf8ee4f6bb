//! One session with one server: requests out, answers and events in, pings in between. It ends with its connection: a reader has nothing
//! that a server would have to keep for it, and reads everything again, since events that it missed are told to nobody.

use crate::wire::{self, Accepted, Answer, Body, Connect, Event, Garbled, Refusal, Request, take_frame};
use bytes::{Buf, BytesMut};
use std::collections::VecDeque;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::time::{Instant, sleep_until, timeout};

/// How many bytes are read at once; what was received and not taken yet is never more than that and one frame.
const CHUNK: usize = 64 << 10;

/// Why a session ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// The connection broke.
    #[error("the connection broke")]
    Broken(#[from] io::Error),
    /// The server closed the connection.
    #[error("the server closed the connection")]
    Closed,
    /// The server closed the connection without an answer to the connect request.
    #[error(
        "the server refuses the session: it does not serve now, or has not seen yet what was read before"
    )]
    Refused,
    /// Nothing came for too long.
    #[error("the server is silent for {0:?}")]
    Silent(Duration),
    /// The server gave up the session.
    #[error("the session has expired")]
    Expired,
    /// What came is not ZooKeeper's protocol.
    #[error(transparent)]
    Garbled(#[from] Garbled),
    /// The secret is not taken.
    #[error(transparent)]
    Authentication(Refusal),
}

/// What comes from a server.
#[derive(Debug, PartialEq)]
pub(crate) enum Incoming {
    Event(Event),
    Answer(Request, Result<Body, Refusal>),
}

/// What a session begins with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening<'a> {
    pub(crate) connect: Connect,
    /// `USER:PASSWORD` for the scheme `digest`.
    pub(crate) digest: Option<&'a [u8]>,
}

/// A session.
pub(crate) struct Session<S> {
    reader: ReadHalf<S>,
    writer: WriteHalf<S>,
    received: BytesMut,
    to_send: BytesMut,
    /// In the order in which they were sent, which is that of the answers.
    unanswered: VecDeque<(i32, Request)>,
    next_number: i32,
    last_zxid: i64,
    session_timeout: Duration,
    heard: Instant,
    said: Instant,
}

impl<S: AsyncRead + AsyncWrite> Session<S> {
    /// Opens a session.
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
        // What a server answers with is its own limit; a wrong one must not make pings rare, or a storm.
        session.session_timeout = accepted
            .session_timeout
            .clamp(Duration::from_millis(300), wanted.max(Duration::from_secs(1)) * 4);
        if let Some(secret) = opening.digest {
            wire::authenticate("digest", secret, &mut session.to_send);
        }
        Ok(session)
    }

    /// Sends a request soon. Answers come in the order of requests.
    pub(crate) fn send(&mut self, request: Request) {
        request.write(self.next_number, &mut self.to_send);
        self.unanswered.push_back((self.next_number, request));
        self.next_number = if self.next_number == i32::MAX { 1 } else { self.next_number + 1 };
    }

    /// How many requests have no answer yet.
    pub(crate) fn unanswered(&self) -> usize {
        self.unanswered.len()
    }

    /// The newest transaction that the server told of.
    pub(crate) const fn last_zxid(&self) -> i64 {
        self.last_zxid
    }

    /// What came already, without waiting.
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

    /// Sends what is to be sent, keeps the session, and waits for the next answer or event.
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

    /// The answer to the connect request.
    async fn accepted(&mut self) -> Result<Accepted, ClientError> {
        loop {
            if let Some(frame) = take_frame(&mut self.received)? {
                return Ok(Accepted::parse(&frame)?);
            }
            self.exchange().await.map_err(|error| match error {
                ClientError::Closed => ClientError::Refused,
                // It closed before it had read everything.
                ClientError::Broken(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    ClientError::Refused
                }
                other => other,
            })?;
        }
    }

    /// One step of input or output.
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
