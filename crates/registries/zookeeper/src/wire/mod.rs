//! ZooKeeper's protocol, as far as a reader needs it: frames of jute records. Pure: bytes in, values out.
//!
//! A client sends a connect request, then requests with increasing numbers, and the server responds in the
//! same order. Ping responses and watch events arrive in between, with reserved numbers.

mod answers;
mod record;
mod requests;

pub(crate) use answers::{Accepted, Answer, Body, Event, EventKind, Refusal};
pub(crate) use record::Garbled;
pub(crate) use requests::{Connect, Request, authenticate, ping};

use bytes::{Buf, Bytes, BytesMut};
use record::Reader;

/// Maximum size of a frame in bytes: the children of a node with some 50,000 providers. A longer frame ends
/// the session.
pub(crate) const MAX_FRAME: usize = 32 << 20;

/// Takes a complete frame from the receive buffer; `None` if there is none yet.
pub(crate) fn take_frame(received: &mut BytesMut) -> Result<Option<Bytes>, Garbled> {
    let Some(head) = received.first_chunk::<4>() else { return Ok(None) };
    let length =
        usize::try_from(i32::from_be_bytes(*head)).map_err(|_| Garbled("a frame has a negative length"))?;
    if length > MAX_FRAME {
        return Err(Garbled("a frame is longer than 32 MiB"));
    }
    if received.len() < 4 + length {
        received.reserve(4 + length - received.len());
        return Ok(None);
    }
    received.advance(4);
    Ok(Some(received.split_to(length).freeze()))
}

/// Parses one record; ignores bytes after it, which are not used.
fn read<T>(frame: &[u8], record: impl FnOnce(&mut Reader<'_>) -> Result<T, Garbled>) -> Result<T, Garbled> {
    record(&mut Reader::new(frame))
}

#[cfg(test)]
mod tests;
