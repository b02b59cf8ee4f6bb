//! Hand-written HTTP/2 that no library would send.

use std::sync::Arc;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::task::JoinHandle;

use crate::Counts;
use crate::dialer::{Dialer, Io};

/// Connection preface of a client.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Frame types (RFC 9113, section 6).
pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;
/// An unknown frame type.
pub(super) const UNKNOWN: u8 = 0xbb;

/// Frame flags (RFC 9113, section 6).
pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

/// Identifiers of settings (RFC 9113, section 6.5.2).
pub(super) const HEADER_TABLE_SIZE: u16 = 1;
pub(super) const INITIAL_WINDOW_SIZE: u16 = 4;

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    let mut out = Vec::with_capacity(payload.len() + 9);
    out.extend_from_slice(&length[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
    out
}

/// Encodes a SETTINGS frame.
pub(super) fn settings(all: &[(u16, u32)]) -> Vec<u8> {
    let payload: Vec<u8> =
        all.iter().flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()).collect();
    frame(SETTINGS, 0, 0, &payload)
}

/// Encodes an HPACK integer with a prefix of that many bits.
fn number(first: u8, bits: u32, mut value: usize, out: &mut Vec<u8>) {
    let most = (1_usize << bits) - 1;
    if value < most {
        out.push(first | u8::try_from(value).unwrap_or_default());
        return;
    }
    out.push(first | u8::try_from(most).unwrap_or_default());
    value -= most;
    while value > 127 {
        out.push(u8::try_from(value & 127).unwrap_or_default() | 128);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap_or_default());
}

fn text(value: &[u8], out: &mut Vec<u8>) {
    number(0, 7, value.len(), out);
    out.extend_from_slice(value);
}

/// Encodes a header without adding it to the table.
pub(super) fn header(name: &str, value: &[u8]) -> Vec<u8> {
    let mut out = vec![0];
    text(name.as_bytes(), &mut out);
    text(value, &mut out);
    out
}

/// Encodes a header that is added to the table as its first entry, index 62.
pub(super) fn indexed(name: &str, value: &[u8]) -> Vec<u8> {
    let mut out = header(name, value);
    if let Some(first) = out.first_mut() {
        *first = 0x40;
    }
    out
}

/// Reference to the first header of the table, in one byte.
pub(super) const FIRST_OF_TABLE: u8 = 0x80 | 62;

/// Headers of a gRPC request, compressed.
pub(super) fn grpc_headers(path: &str) -> Vec<u8> {
    // POST and http, from the static table.
    let mut out = vec![0x83, 0x86];
    number(0, 4, 4, &mut out);
    text(path.as_bytes(), &mut out);
    number(0, 4, 1, &mut out);
    text(b"attack", &mut out);
    number(0, 4, 31, &mut out);
    text(b"application/grpc", &mut out);
    out.extend(header("te", b"trailers"));
    out
}

/// Opens a gRPC stream.
pub(super) fn open(stream: u32, path: &str, more: &[u8]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &[&grpc_headers(path), more].concat())
}

/// Handling of the server's frames.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ears {
    /// All frames are read.
    Open,
    /// No frame is read: TCP blocks the server.
    Shut,
}

/// A connection for arbitrary frames. Frames of the server are counted.
pub(super) struct Raw {
    out: WriteHalf<Box<dyn Io>>,
    ears: Option<JoinHandle<()>>,
    /// Kept open without being read.
    _unread: Option<ReadHalf<Box<dyn Io>>>,
    counts: Arc<Counts>,
}

impl Drop for Raw {
    fn drop(&mut self) {
        if let Some(ears) = &self.ears {
            ears.abort();
        }
    }
}

impl Raw {
    /// Connects, and sends the preface with these settings.
    pub(super) async fn connect(
        dialer: &Dialer,
        with: &[(u16, u32)],
        ears: Ears,
        counts: &Arc<Counts>,
    ) -> Result<Self> {
        let (mut input, mut out) = tokio::io::split(dialer.dial().await?);
        out.write_all(&[PREFACE, &settings(with)].concat()).await?;
        out.flush().await?;
        let (ears, unread) = match ears {
            Ears::Open => (Some(tokio::spawn(listen(input, Arc::clone(counts)))), None),
            Ears::Shut => {
                // Only checks that the server responds.
                input.read_exact(&mut [0; 9]).await?;
                counts.answered();
                (None, Some(input))
            }
        };
        Ok(Self { out, ears, _unread: unread, counts: Arc::clone(counts) })
    }

    /// Sends bytes, counted as that many frames.
    pub(super) async fn send(&mut self, bytes: &[u8], frames: usize) -> Result<()> {
        self.out.write_all(bytes).await?;
        self.out.flush().await?;
        self.counts.sent_many(frames, bytes.len());
        Ok(())
    }

    /// True if the server has closed the connection.
    pub(super) fn is_over(&self) -> bool {
        self.ears.as_ref().is_some_and(JoinHandle::is_finished)
    }
}

/// Counts the server's frames until it closes the connection.
async fn listen(mut input: ReadHalf<Box<dyn Io>>, counts: Arc<Counts>) {
    let mut payload = Vec::new();
    let end = loop {
        let mut header = [0; 9];
        if let Err(error) = input.read_exact(&mut header).await {
            break error;
        }
        let [a, b, c, kind, flags, ..] = header;
        payload.resize(usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap_or_default(), 0);
        if let Err(error) = input.read_exact(&mut payload).await {
            break error;
        }
        match kind {
            RST_STREAM => counts.refused(format!("RST_STREAM {}", code(&payload, 0))),
            GOAWAY => counts.refused(format!("GOAWAY {}", code(&payload, 4))),
            SETTINGS if flags & ACK == 0 => {}
            _ => counts.answered(),
        }
    };
    counts.refused(format!("closed: {}", end.kind()));
}

/// Name of an HTTP/2 error code.
fn code(payload: &[u8], at: usize) -> String {
    let bytes = payload.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).unwrap_or_default();
    h2::Reason::from(u32::from_be_bytes(bytes)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A decoder that is not ours reads what is written here.
    #[tokio::test]
    async fn a_library_reads_what_is_written_by_hand() {
        let (mut client, server) = tokio::io::duplex(1 << 20);
        let more = [indexed("x-long", &[b'a'; 300]), vec![FIRST_OF_TABLE; 2]].concat();
        let all = [PREFACE.to_vec(), settings(&[(INITIAL_WINDOW_SIZE, 7)]), open(1, "/a/b", &more)].concat();
        client.write_all(&all).await.expect("the pipe has room");
        let mut server = h2::server::handshake(server).await.expect("a preface");
        let (request, _) = server.accept().await.expect("a stream").expect("of good frames");
        assert_eq!((request.method(), request.uri().path()), (&http::Method::POST, "/a/b"));
        assert_eq!(request.headers()["content-type"], "application/grpc");
        assert_eq!(request.headers().get_all("x-long").iter().count(), 3);
    }
}
