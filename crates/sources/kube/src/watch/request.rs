//! Requests for lists and watches, and their errors.

use super::reflector::{Failure, NextRequest};
use crate::request::RequestError;
use futures::io::{AsyncBufRead, AsyncBufReadExt};
use pilotfish_runtime::error_chain;
use std::fmt;
use std::time::Duration;

/// Objects on a page of a list.
const PAGE: u32 = 500;

/// Size limit of a line of a watch: an object has at most 1.5 MB in etcd, and its JSON may be longer.
const LONGEST_LINE: usize = 16 << 20;

/// Path and selectors of the objects of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Path, such as `/api/v1/pods` or `/apis/GROUP/VERSION/namespaces/NS/PLURAL`.
    pub path: String,
    /// Value of `labelSelector`; empty for all objects.
    pub labels: String,
    /// Value of `fieldSelector`; empty for all objects.
    pub fields: String,
}

impl Resource {
    /// Returns the HTTP request for a step. `seconds` is the `timeoutSeconds` of watches.
    pub(crate) fn request(&self, step: &NextRequest, seconds: u64) -> http::Result<http::Request<Vec<u8>>> {
        let mut query = format!("{}?", self.path);
        let mut add = |name: &str, value: &str| {
            if !value.is_empty() {
                query.push_str(&format!("&{name}={}", escaped(value)));
            }
        };
        add("labelSelector", &self.labels);
        add("fieldSelector", &self.fields);
        let watch = [("watch", "true"), ("allowWatchBookmarks", "true")];
        match step {
            NextRequest::List { next } => {
                add("limit", &PAGE.to_string());
                add("continue", next.as_deref().unwrap_or_default());
            }
            NextRequest::Version => add("limit", "1"),
            NextRequest::StreamList => {
                watch.iter().for_each(|(name, value)| add(name, value));
                add("sendInitialEvents", "true");
                add("resourceVersionMatch", "NotOlderThan");
                add("timeoutSeconds", &seconds.to_string());
            }
            NextRequest::Watch { from } => {
                watch.iter().for_each(|(name, value)| add(name, value));
                add("resourceVersion", from);
                add("timeoutSeconds", &seconds.to_string());
            }
        }
        http::Request::get(query.replacen("?&", "?", 1)).body(Vec::new())
    }
}

/// Percent-encodes a value of a query.
fn escaped(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// Failure of a request or of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WatchError {
    pub(crate) failure: Failure,
    /// `Retry-After` of the server; zero without one.
    pub(crate) after: Duration,
    /// Reason in one line.
    pub(crate) reason: String,
}

impl fmt::Display for WatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl WatchError {
    pub(crate) fn other(reason: impl fmt::Display) -> Self {
        Self { failure: Failure::Other, after: Duration::ZERO, reason: reason.to_string() }
    }
}

impl From<RequestError> for WatchError {
    fn from(error: RequestError) -> Self {
        let RequestError { status, retry_after: after, message, .. } = &error;
        let too_large = message.contains("Too large resource version");
        let failure = match status {
            Some(410) => Failure::Gone,
            // The API server's version is lower than the requested one: the cluster was restored from a
            // backup.
            Some(504 | 500) if too_large => Failure::Gone,
            // Older API servers do not know the first parameter, and refuse the second for watches.
            Some(400 | 422)
                if message.contains("sendInitialEvents") || message.contains("resourceVersionMatch") =>
            {
                Failure::NoStreams
            }
            // The API server supports list streams, but its etcd is too old for them.
            Some(500) if message.contains("RequestWatchProgress") => Failure::NoStreams,
            _ => Failure::Other,
        };
        let hint = match status {
            Some(401) => " (hint: are the credentials still valid?)",
            Some(403) => " (hint: the service account needs get, list and watch; see deploy/kubernetes)",
            _ => "",
        };
        Self { failure, after: *after, reason: format!("{error}{hint}") }
    }
}

/// Reads the next line into `line`, without its newline. Returns `false` at the end of the stream.
///
/// # Errors
/// When the stream breaks or a line is too long.
pub(crate) async fn next_line(
    stream: &mut (impl AsyncBufRead + Unpin),
    line: &mut Vec<u8>,
) -> Result<bool, WatchError> {
    line.clear();
    loop {
        let buffer = stream.fill_buf().await.map_err(|error| WatchError::other(error_chain(&error)))?;
        if buffer.is_empty() {
            return Ok(!line.is_empty());
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let taken = buffer.get(..end.unwrap_or(buffer.len())).unwrap_or_default();
        if line.len() + taken.len() > LONGEST_LINE {
            return Err(WatchError::other(format!("an event is longer than {LONGEST_LINE} bytes")));
        }
        line.extend_from_slice(taken);
        let used = end.map_or(buffer.len(), |end| end + 1);
        stream.consume_unpin(used);
        if end.is_some() {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource() -> Resource {
        Resource { path: "/api/v1/secrets".into(), labels: "a=b".into(), fields: "type!=x".into() }
    }

    #[test]
    fn requests_have_bookmarks_and_pages() {
        let uri = |step| resource().request(&step, 300).unwrap().uri().to_string();
        assert_eq!(
            uri(NextRequest::List { next: Some("a b".into()) }),
            "/api/v1/secrets?labelSelector=a%3Db&fieldSelector=type%21%3Dx&limit=500&continue=a%20b"
        );
        let stream = uri(NextRequest::StreamList);
        assert!(stream.contains("sendInitialEvents=true&resourceVersionMatch=NotOlderThan"), "{stream}");
        assert!(
            uri(NextRequest::Watch { from: "7".into() }).ends_with("&resourceVersion=7&timeoutSeconds=300")
        );
    }

    #[test]
    fn answers_are_classified() {
        let of = |code, text, after| WatchError::from(RequestError::of_status(code, text, after));
        let failure = |code, text| of(code, text, 0).failure;
        assert_eq!(failure(410, "too old resource version"), Failure::Gone);
        assert_eq!(failure(504, "Too large resource version: 9, current: 3"), Failure::Gone);
        assert_eq!(failure(422, "sendInitialEvents: Forbidden"), Failure::NoStreams);
        let old = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch";
        assert_eq!(failure(422, old), Failure::NoStreams);
        let old_etcd = "the required storage feature RequestWatchProgress is disabled";
        assert_eq!(failure(500, old_etcd), Failure::NoStreams);
        assert_eq!(failure(500, "etcdserver: leader changed"), Failure::Other);
        assert_eq!(of(429, "busy", 3).after, Duration::from_secs(3));
        assert!(of(403, "no", 0).reason.contains("hint"));
    }
}
