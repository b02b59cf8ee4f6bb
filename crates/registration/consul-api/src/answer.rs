//! Bodies of answers: JSON, lists in parts that are made when they are sent.

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use pilotfish_registration_server::AdapterBody;
use serde_json::Value;
use std::convert::Infallible;

/// Size in bytes at which a part of a list is sent.
const PART: usize = 64 << 10;
/// Number of candidates of a list after which other tasks have their turn.
pub(crate) const TURN: usize = 256;

/// Headers of a query's answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Headers {
    pub(crate) index: u64,
    /// True if the client may not read everything.
    pub(crate) is_filtered: bool,
}

/// Returns a response with a JSON document.
pub(crate) fn json(value: &Value) -> Response<AdapterBody> {
    respond(Full::new(Bytes::from(value.to_string())).boxed_unsync())
}

/// Returns a response without a body.
pub(crate) fn empty() -> Response<AdapterBody> {
    Response::new(Full::new(Bytes::new()).boxed_unsync())
}

/// A list of the items that each candidate gives. The first part is made before it returns, so that a
/// search without results ends with the time of its request.
pub(crate) async fn list(
    candidates: impl Iterator<Item = Vec<Value>> + Send + 'static,
) -> Response<AdapterBody> {
    let mut parts = Parts { candidates: Some(candidates), is_first: true };
    let first = stream::iter(parts.part().await);
    let others = stream::unfold(parts, |mut parts| async move {
        let part = parts.part().await?;
        Some((part, parts))
    });
    let frames = first.chain(others).map(|part| Ok::<_, Infallible>(Frame::data(Bytes::from(part))));
    respond(StreamBody::new(frames).boxed_unsync())
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
    /// Items of each candidate; `None` after the end.
    candidates: Option<I>,
    is_first: bool,
}

impl<I: Iterator<Item = Vec<Value>>> Parts<I> {
    /// Returns the next part; `None` after the last one.
    async fn part(&mut self) -> Option<String> {
        let candidates = self.candidates.as_mut()?;
        let mut out = String::new();
        let mut seen = 0_usize;
        while out.len() < PART {
            let Some(items) = candidates.next() else {
                self.candidates = None;
                out.push_str(if self.is_first { "[]" } else { "]" });
                break;
            };
            for item in items {
                out.push(if self.is_first { '[' } else { ',' });
                self.is_first = false;
                out.push_str(&item.to_string());
            }
            seen += 1;
            if seen.is_multiple_of(TURN) {
                tokio::task::yield_now().await;
            }
        }
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::pin::pin;

    #[tokio::test]
    async fn a_list_is_sent_in_parts() {
        for count in [0, 1, 3] {
            let items: Vec<Value> = (0..count).map(|_| Value::from("x".repeat(PART))).collect();
            let candidates = items.clone().into_iter().map(|item| vec![item]);
            let mut parts = Parts { candidates: Some(candidates), is_first: true };
            let mut sent = Vec::new();
            while let Some(part) = parts.part().await {
                sent.push(part);
            }
            assert_eq!(sent.len(), count + 1);
            assert_eq!(serde_json::from_str::<Vec<Value>>(&sent.concat()).unwrap(), items);
            let response = list(items.clone().into_iter().map(|item| vec![item])).await;
            let body = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(serde_json::from_slice::<Vec<Value>>(&body).unwrap(), items);
        }
    }

    #[tokio::test]
    async fn a_search_without_results_gives_way_to_other_tasks() {
        let candidates = (0..3 * TURN).map(|_| Vec::<Value>::new());
        let mut parts = Parts { candidates: Some(candidates), is_first: true };
        let mut part = pin!(parts.part());
        let mut turns = 0;
        let found = poll_fn(|context| {
            turns += 1;
            part.as_mut().poll(context)
        });
        assert_eq!(found.await.as_deref(), Some("[]"));
        assert_eq!(turns, 4);
    }
}
