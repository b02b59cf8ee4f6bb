//! gRPC over HTTP/2: message frames in, statuses out.

use crate::error::StreamError;
use crate::limits::{Limit, LimitExceeded, Quota, QuotaGuard};
use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use pilotfish_grpc_framing::{PREFIX, Prefix};
use std::sync::Arc;
use tonic::Code;

/// Splits a request body into gRPC messages. Bytes of an incomplete message are charged to a budget.
#[derive(Debug)]
pub(super) struct Decoder {
    partial: BytesMut,
    held: QuotaGuard,
}

impl Decoder {
    pub(super) fn new(budget: &Arc<Quota>) -> Self {
        Self { partial: BytesMut::new(), held: QuotaGuard::empty(budget) }
    }

    /// Adds a chunk of the body and calls `each` with every message that is now complete.
    ///
    /// # Errors
    /// When a message is longer than `limit` or compressed, when the budget is spent, or when `each` fails.
    pub(super) fn push(
        &mut self,
        mut chunk: Bytes,
        limit: usize,
        each: &mut impl FnMut(&[u8]) -> Result<(), StreamError>,
    ) -> Result<(), StreamError> {
        if self.partial.is_empty() {
            // The usual case: a message comes in one chunk and is read where it lies.
            while let Some(len) = complete(&chunk, limit)? {
                each(chunk.get(PREFIX..PREFIX + len).unwrap_or_default())?;
                chunk.advance(PREFIX + len);
            }
            return self.keep(&chunk);
        }
        self.keep(&chunk)?;
        while let Some(len) = complete(&self.partial, limit)? {
            each(self.partial.get(PREFIX..PREFIX + len).unwrap_or_default())?;
            self.partial.advance(PREFIX + len);
        }
        if self.partial.is_empty() {
            // Frees the buffer of a long message instead of keeping it for the life of the stream.
            self.partial = BytesMut::new();
        }
        self.held.reduce_to(self.partial.len());
        Ok(())
    }

    /// Bytes received of an incomplete message, without its prefix; `None` between messages.
    pub(super) fn incomplete(&self) -> Option<&[u8]> {
        (!self.partial.is_empty()).then(|| self.partial.get(PREFIX..).unwrap_or_default())
    }

    fn keep(&mut self, chunk: &[u8]) -> Result<(), StreamError> {
        if chunk.is_empty() {
            return Ok(());
        }
        self.held.add(chunk.len()).map_err(LimitExceeded::from)?;
        self.partial.extend_from_slice(chunk);
        Ok(())
    }
}

/// Length of the first message if it is complete.
fn complete(bytes: &[u8], limit: usize) -> Result<Option<usize>, StreamError> {
    let Some(Prefix { is_compressed, length: len }) = Prefix::read(bytes) else { return Ok(None) };
    if is_compressed {
        return Err(StreamError::Unimplemented("compressed messages are not supported".into()));
    }
    if len > limit {
        return Err(LimitExceeded { limit: Limit::RequestBytes, asked: len, allowed: limit }.into());
    }
    Ok((bytes.len() - PREFIX >= len).then_some(len))
}

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// Headers of a response whose status is in its trailers.
pub(super) fn head() -> Response<()> {
    let mut response = Response::new(());
    let headers = response.headers_mut();
    headers.insert(http::header::CONTENT_TYPE, GRPC);
    headers.insert(HeaderName::from_static("grpc-accept-encoding"), HeaderValue::from_static("identity"));
    response
}

/// Response with a status only.
pub(super) fn refusal(error: &StreamError) -> Response<()> {
    only_status(error.code(), &error.to_string())
}

/// Response with this status only.
pub(super) fn only_status(code: Code, message: &str) -> Response<()> {
    let mut response = Response::new(());
    *response.headers_mut() = status(code, message);
    response.headers_mut().insert(http::header::CONTENT_TYPE, GRPC);
    response
}

/// Trailers `grpc-status` and `grpc-message` of a status.
pub(super) fn status(code: Code, message: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(HeaderName::from_static("grpc-status"), HeaderValue::from(i32::from(code)));
    if let Ok(message) = HeaderValue::from_str(&percent_encoded(message)) {
        headers.insert(HeaderName::from_static("grpc-message"), message);
    }
    headers
}

/// Percent-encodes a `grpc-message`: printable ASCII except `%` stays.
fn percent_encoded(text: &str) -> String {
    use std::fmt::Write;
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if (b' '..=b'~').contains(&byte) && byte != b'%' {
            encoded.push(char::from(byte));
        } else {
            write!(encoded, "%{byte:02X}").expect("writing to a String cannot fail");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(message: &[u8]) -> Vec<u8> {
        let mut bytes = Prefix::uncompressed(message.len()).to_vec();
        bytes.extend(message);
        bytes
    }

    fn decoder(allowed: usize) -> Decoder {
        Decoder::new(&Quota::new(Limit::IncompleteBytes, allowed))
    }

    #[test]
    fn messages_come_out_whole_however_they_are_cut() {
        let all = [framed(b"one"), framed(b""), framed(&[7; 1000])].concat();
        for size in [1, 2, 4, 5, 6, 7, 100, all.len()] {
            let budget = Quota::new(Limit::IncompleteBytes, 1_005);
            let mut decoder = Decoder::new(&budget);
            let mut messages = Vec::new();
            for chunk in all.chunks(size) {
                let mut each = |message: &[u8]| {
                    messages.push(message.to_vec());
                    Ok(())
                };
                decoder.push(Bytes::copy_from_slice(chunk), 1000, &mut each).unwrap();
            }
            assert_eq!(messages, [b"one".to_vec(), vec![], vec![7; 1000]], "in chunks of {size}");
            assert!(decoder.incomplete().is_none());
            assert_eq!(budget.used(), 0);
        }
    }

    #[test]
    fn incomplete_messages_of_several_streams_share_a_budget() {
        let mut never = |_: &[u8]| -> Result<(), StreamError> { panic!("no message is complete") };
        let budget = Quota::new(Limit::IncompleteBytes, 100);
        let (mut a, mut b) = (Decoder::new(&budget), Decoder::new(&budget));
        let begin = Bytes::copy_from_slice(&framed(&[0; 1_000])[..60]);
        a.push(begin.clone(), 1_000, &mut never).unwrap();
        let refused = b.push(begin.clone(), 1_000, &mut never);
        let spent = LimitExceeded { limit: Limit::IncompleteBytes, asked: 120, allowed: 100 };
        assert_eq!(refused, Err(spent.into()));
        drop(a);
        b.push(begin, 1_000, &mut never).unwrap();
    }

    #[test]
    fn too_long_and_compressed_messages_are_refused_at_their_header() {
        let mut never = |_: &[u8]| -> Result<(), StreamError> { panic!("no message is complete") };
        let long = decoder(10).push(Bytes::from_static(&[0, 0, 0, 0, 11]), 10, &mut never);
        assert!(matches!(long, Err(StreamError::ResourceExhausted(_))));
        let compressed = decoder(10).push(Bytes::from_static(&[1, 0, 0, 0, 1]), 10, &mut never);
        assert!(matches!(compressed, Err(StreamError::Unimplemented(_))));
    }

    #[test]
    fn status_messages_survive_as_headers() {
        let headers = status(Code::InvalidArgument, "line\nä 100%");
        assert_eq!(headers["grpc-status"], "3");
        assert_eq!(headers["grpc-message"], "line%0A%C3%A4 100%25");
    }
}
