//! ZooKeeper's protocol, as far as a reader needs it: frames of jute records. Pure: bytes in, values out.
//!
//! A client sends a connect request, then requests with rising numbers, and the server answers in the same order. Answers to pings and
//! events of watches come in between, under numbers of their own.

mod answers;
mod record;
mod requests;

pub(crate) use answers::{Accepted, Answer, Body, Event, EventKind, Refusal};
pub(crate) use record::Garbled;
pub(crate) use requests::{Connect, Request, authenticate, ping};

use bytes::{Buf, Bytes, BytesMut};
use record::Reader;

/// The longest frame that is read: the children of a node with some 50,000 providers. What is longer ends the session.
pub(crate) const MAX_FRAME: usize = 32 << 20;

/// Takes a whole frame from what was received; `None` when there is none yet.
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

/// Reads one record that is the whole of its bytes, or has more after it that nobody here needs.
fn read<T>(frame: &[u8], record: impl FnOnce(&mut Reader<'_>) -> Result<T, Garbled>) -> Result<T, Garbled> {
    record(&mut Reader::new(frame))
}

#[cfg(test)]
mod tests;
