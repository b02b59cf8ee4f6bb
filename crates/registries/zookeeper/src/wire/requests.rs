//! Client requests.

use super::record::Writer;
use bytes::BytesMut;
use std::time::Duration;

/// Request numbers that ZooKeeper reserves (`xid`).
pub(super) const WATCH_EVENT: i32 = -1;
pub(super) const PING: i32 = -2;
pub(super) const AUTHENTICATE: i32 = -4;

mod operation {
    pub(super) const EXISTS: i32 = 3;
    pub(super) const GET_DATA: i32 = 4;
    pub(super) const GET_CHILDREN: i32 = 8;
    pub(super) const PING: i32 = 11;
    pub(super) const AUTHENTICATE: i32 = 100;
    pub(super) const ADD_WATCH: i32 = 106;
}

/// Mode of a persistent watch of a whole subtree (ZooKeeper 3.6).
const PERSISTENT_RECURSIVE: i32 = 1;

/// The connect request for a new session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connect {
    /// The newest transaction id that the client has seen: a server that is behind refuses the session.
    pub(crate) last_zxid: i64,
    /// Session timeout that the client requests; the server may grant another.
    pub(crate) session_timeout: Duration,
}

impl Connect {
    pub(crate) fn write(self, out: &mut BytesMut) {
        let timeout = i32::try_from(self.session_timeout.as_millis()).unwrap_or(i32::MAX);
        let mut frame = Writer::new(out);
        frame.int(0).long(self.last_zxid).int(timeout).long(0).buffer(&[0; 16]).bool(false);
    }
}

/// A request with a response. `watch` sets a one-shot watch, for servers without recursive watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Names of a node's children.
    Children { path: String, watch: bool },
    /// Data of a node.
    Data { path: String, watch: bool },
    /// Watches for the creation of a node.
    Exists { path: String },
    /// Sets a persistent watch on a node, which need not exist, and everything below it.
    WatchBelow { path: String },
}

impl Request {
    pub(crate) fn path(&self) -> &str {
        match self {
            Self::Children { path, .. }
            | Self::Data { path, .. }
            | Self::Exists { path }
            | Self::WatchBelow { path } => path,
        }
    }

    pub(crate) fn write(&self, number: i32, out: &mut BytesMut) {
        let mut frame = Writer::new(out);
        frame.int(number);
        let path = self.path().as_bytes();
        match self {
            Self::Children { watch, .. } => frame.int(operation::GET_CHILDREN).buffer(path).bool(*watch),
            Self::Data { watch, .. } => frame.int(operation::GET_DATA).buffer(path).bool(*watch),
            Self::Exists { .. } => frame.int(operation::EXISTS).buffer(path).bool(true),
            Self::WatchBelow { .. } => frame.int(operation::ADD_WATCH).buffer(path).int(PERSISTENT_RECURSIVE),
        };
    }
}

/// Writes a ping, which keeps the session alive.
pub(crate) fn ping(out: &mut BytesMut) {
    Writer::new(out).int(PING).int(operation::PING);
}

/// Writes an authentication request. ZooKeeper has the scheme `digest` with `USER:PASSWORD` built in.
pub(crate) fn authenticate(scheme: &str, secret: &[u8], out: &mut BytesMut) {
    let mut frame = Writer::new(out);
    frame.int(AUTHENTICATE).int(operation::AUTHENTICATE).int(0).buffer(scheme.as_bytes()).buffer(secret);
}
