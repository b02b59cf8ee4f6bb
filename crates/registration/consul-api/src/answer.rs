//! Bodies of answers: JSON, lists in parts that are made when they are sent.

use bytes::Bytes;
use futures::stream;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use pilotfish_registration_server::AdapterBody;
use serde_json::Value;
use std::convert::Infallible;

/// Size in bytes at which a part of a list is sent.
const PART: usize = 64 << 10;

/// Headers of a query's answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Headers {
    pub(crate) index: u64,
    /// True if the client may not read everything.
    pub(crate) is_filtered: bool,
}

/// A JSON document.
pub(crate) fn json(value: &Value) -> Response<AdapterBody> {
    respond(Full::new(Bytes::from(value.to_string())).boxed_unsync())
}

/// An empty answer.
pub(crate) fn empty() -> Response<AdapterBody> {
    Response::new(Full::new(Bytes::new()).boxed_unsync())
}

/// A list of items.
pub(crate) fn list(items: impl Iterator<Item = Value> + Send + 'static) -> Response<AdapterBody> {
    let parts = Parts { items: Some(items), is_first: true };
    let frames = parts.map(|part| Ok::<_, Infallible>(Frame::data(Bytes::from(part))));
    respond(StreamBody::new(stream::iter(frames)).boxed_unsync())
}

/// Adds the headers of a query.
pub(crate) fn with_headers(mut response: Response<AdapterBody>, headers: Headers) -> Response<AdapterBody> {
    let Headers { index, is_filtered } = headers;
    let all = response.headers_mut();
    let mut add = |name: &'static str, value: HeaderValue| {
        all.insert(HeaderName::from_static(name), value);
    };
    add("x-consul-index", HeaderValue::from(index));
    add("x-consul-knownleader", HeaderValue::from_static("true"));
    add("x-consul-lastcontact", HeaderValue::from_static("0"));
    if is_filtered {
        add("x-consul-results-filtered-by-acls", HeaderValue::from_static("true"));
    }
    response
}

fn respond(body: AdapterBody) -> Response<AdapterBody> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Parts of a list.
struct Parts<I> {
    /// `None` after the end.
    items: Option<I>,
    is_first: bool,
}

impl<I: Iterator<Item = Value>> Iterator for Parts<I> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let items = self.items.as_mut()?;
        let mut out = String::new();
        while out.len() < PART {
            let Some(item) = items.next() else {
                self.items = None;
                out.push_str(if self.is_first { "[]" } else { "]" });
                break;
            };
            out.push(if self.is_first { '[' } else { ',' });
            self.is_first = false;
            out.push_str(&item.to_string());
        }
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_sent_in_parts() {
        for count in [0, 1, 3] {
            let items: Vec<Value> = (0..count).map(|_| Value::from("x".repeat(PART))).collect();
            let parts: Vec<String> =
                Parts { items: Some(items.clone().into_iter()), is_first: true }.collect();
            assert_eq!(parts.len(), count + 1);
            assert_eq!(serde_json::from_str::<Vec<Value>>(&parts.concat()).unwrap(), items);
        }
    }
}
