//! Server responses.

use super::read;
use super::record::{Garbled, Reader};
use super::requests::{AUTHENTICATE, PING, Request, WATCH_EVENT};
use std::time::Duration;

/// Response to the connect request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accepted {
    pub(crate) session: i64,
    /// Session timeout granted by the server. Zero if it refused the session.
    pub(crate) session_timeout: Duration,
}

impl Accepted {
    pub(crate) fn parse(frame: &[u8]) -> Result<Self, Garbled> {
        read(frame, |record| {
            let (_version, timeout, session) = (record.int()?, record.int()?, record.long()?);
            let _password = record.buffer()?;
            Ok(Self { session, session_timeout: Duration::from_millis(u64::try_from(timeout).unwrap_or(0)) })
        })
    }
}

/// Header of every later response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer<'a> {
    Pong,
    /// Result of authentication. A wrong password succeeds, too: it only grants no access.
    Authenticated(Result<(), Refusal>),
    Event(Event),
    /// A response to a request: its number, the server's newest transaction id, and a body for
    /// [`Body::parse`].
    Reply {
        number: i32,
        zxid: i64,
        body: Result<&'a [u8], Refusal>,
    },
}

impl<'a> Answer<'a> {
    pub(crate) fn parse(frame: &'a [u8]) -> Result<Self, Garbled> {
        let head = frame.split_at_checked(16).ok_or(Garbled("an answer has no head"))?;
        let (number, zxid, error) =
            read(head.0, |record| Ok((record.int()?, record.long()?, record.int()?)))?;
        let refusal = Refusal::of(error);
        Ok(match number {
            WATCH_EVENT => Self::Event(Event::parse(head.1)?),
            PING => Self::Pong,
            AUTHENTICATE => Self::Authenticated(refusal.map_or(Ok(()), Err)),
            _ => Self::Reply { number, zxid, body: refusal.map_or(Ok(head.1), Err) },
        })
    }
}

/// Content of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    Children(Vec<String>),
    Data(Vec<u8>),
    /// Empty: the node exists, or the watch is set.
    Done,
}

impl Body {
    pub(crate) fn parse(request: &Request, bytes: &[u8]) -> Result<Self, Garbled> {
        read(bytes, |record| {
            Ok(match request {
                Request::Children { .. } => Self::Children(record.texts()?),
                Request::Data { .. } => Self::Data(record.buffer()?.to_vec()),
                Request::Exists { .. } | Request::WatchBelow { .. } => Self::Done,
            })
        })
    }
}

/// Event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) kind: EventKind,
    pub(crate) path: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    Created,
    Deleted,
    DataChanged,
    /// Sent only by non-recursive watches.
    ChildrenChanged,
    /// A change of the session or of a watch, not of a node.
    Other,
}

impl Event {
    fn parse(bytes: &[u8]) -> Result<Self, Garbled> {
        read(bytes, |record: &mut Reader<'_>| {
            let kind = match record.int()? {
                1 => EventKind::Created,
                2 => EventKind::Deleted,
                3 => EventKind::DataChanged,
                4 => EventKind::ChildrenChanged,
                _ => EventKind::Other,
            };
            let _state = record.int()?;
            Ok(Self { kind, path: record.text()?.to_owned() })
        })
    }
}

/// Error of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("there is no such node")]
    NoNode,
    #[error("reading it is not permitted")]
    NotPermitted,
    #[error("the server refuses the secret")]
    AuthenticationFailed,
    #[error("the server does not know the request")]
    Unimplemented,
    #[error("the session has expired")]
    SessionExpired,
    #[error("the server reports error {0}")]
    Other(i32),
}

impl Refusal {
    /// Converts an error code; `None` for success.
    fn of(code: i32) -> Option<Self> {
        Some(match code {
            0 => return None,
            -101 => Self::NoNode,
            -102 => Self::NotPermitted,
            -115 => Self::AuthenticationFailed,
            -6 => Self::Unimplemented,
            -112 => Self::SessionExpired,
            other => Self::Other(other),
        })
    }
}
