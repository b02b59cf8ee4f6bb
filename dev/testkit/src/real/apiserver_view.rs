//! Modifications of the texts between a client and an API server: other versions, and lists without objects.

use hyper::body::{Body, Bytes, Frame};
use regex::{Captures, Regex};
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll, ready};

/// Modification of an API server's texts for a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    /// Offset of the versions that the client sees from those of the API server.
    pub(super) ahead: u64,
    /// True if lists and watches have no objects.
    pub(super) empty: bool,
}

static IN_JSON: LazyLock<Regex> = LazyLock::new(|| regex(r#"("resourceVersion":\s*")(\d+)"#));
static IN_QUERY: LazyLock<Regex> = LazyLock::new(|| regex(r"([?&]resourceVersion=)(\d+)"));

fn regex(text: &str) -> Regex {
    Regex::new(text).expect("it is a regex")
}

impl View {
    /// Modifies a URI of the client for the API server. Version 0 means any.
    pub(super) fn query(self, uri: &str) -> String {
        change(&IN_QUERY, uri, |version| version.saturating_sub(self.ahead))
    }

    /// Modifies an object of the client for the API server.
    pub(super) fn request(self, text: &str) -> String {
        change(&IN_JSON, text, |version| version.saturating_sub(self.ahead))
    }

    /// Modifies a response other than a watch.
    pub(super) fn answer(self, text: &str) -> String {
        let text = self.raise(text);
        match serde_json::from_str::<serde_json::Value>(&text) {
            Ok(mut list) if self.empty && list["items"].is_array() => {
                list["items"] = serde_json::json!([]);
                if let Some(metadata) = list["metadata"].as_object_mut() {
                    metadata.remove("continue");
                    metadata.remove("remainingItemCount");
                }
                list.to_string()
            }
            _ => text,
        }
    }

    /// Modifies an event of a watch; `None` if it is dropped.
    pub(super) fn event(self, line: &str) -> Option<String> {
        (!self.empty || line.contains(r#""type":"BOOKMARK""#)).then(|| self.raise(line))
    }

    fn raise(self, text: &str) -> String {
        change(&IN_JSON, text, |version| version + self.ahead)
    }
}

fn change(place: &Regex, text: &str, change: impl Fn(u64) -> u64) -> String {
    let replaced = |found: &Captures<'_>| match found[2].parse() {
        Ok(version) => format!("{}{}", &found[1], change(version)),
        Err(_) => found[0].to_owned(),
    };
    place.replace_all(text, replaced).into_owned()
}

/// A watch with modified events.
pub(super) struct ChangedLines<B> {
    body: Pin<Box<B>>,
    view: View,
    /// Incomplete line.
    rest: Vec<u8>,
}

impl<B: Body<Data = Bytes>> ChangedLines<B> {
    pub(super) fn new(body: B, view: View) -> Self {
        Self { body: Box::pin(body), view, rest: Vec::new() }
    }

    /// Adds bytes and returns the completed lines.
    fn lines(&mut self, bytes: &[u8]) -> String {
        self.rest.extend(bytes);
        let end = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let lines: Vec<u8> = self.rest.drain(..end).collect();
        let events = String::from_utf8_lossy(&lines);
        events.lines().filter_map(|line| self.view.event(line)).map(|line| line + "\n").collect()
    }
}

impl<B: Body<Data = Bytes>> Body for ChangedLines<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        loop {
            let Some(frame) = ready!(self.body.as_mut().poll_frame(cx)) else { return Poll::Ready(None) };
            let Ok(bytes) = frame?.into_data() else { continue };
            let lines = self.lines(&bytes);
            if !lines.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(lines.into()))));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AHEAD: View = View { ahead: 100, empty: false };
    const EMPTY: View = View { ahead: 0, empty: true };

    #[test]
    fn versions_are_ahead_in_answers_and_not_in_requests() {
        let list =
            r#"{"metadata":{"resourceVersion":"250"},"items":[{"metadata":{"resourceVersion": "40"}}]}"#;
        let seen =
            r#"{"metadata":{"resourceVersion":"350"},"items":[{"metadata":{"resourceVersion": "140"}}]}"#;
        assert_eq!(AHEAD.answer(list), seen);
        assert_eq!(AHEAD.request(r#"{"resourceVersion":"350"}"#), r#"{"resourceVersion":"250"}"#);
        let query = |version| {
            format!("/api?resourceVersionMatch=NotOlderThan&resourceVersion={version}&timeoutSeconds=300")
        };
        assert_eq!(AHEAD.query(&query(350)), query(250));
        assert_eq!(AHEAD.query(&query(0)), query(0));
    }

    #[test]
    fn empty_lists_keep_their_version_and_have_no_second_page() {
        let list =
            r#"{"items":[{}],"metadata":{"continue":"x","remainingItemCount":1,"resourceVersion":"7"}}"#;
        assert_eq!(EMPTY.answer(list), r#"{"items":[],"metadata":{"resourceVersion":"7"}}"#);
        assert_eq!(EMPTY.answer("no list"), "no list");
    }

    #[test]
    fn lines_are_changed_however_they_are_cut() {
        let text = "{\"type\":\"ADDED\",\"resourceVersion\":\"101\"}\n{\"type\":\"BOOKMARK\",\"resourceVersion\":\"102\"}\n";
        for (view, expected) in [
            (
                AHEAD,
                "{\"type\":\"ADDED\",\"resourceVersion\":\"201\"}\n{\"type\":\"BOOKMARK\",\"resourceVersion\":\"202\"}\n",
            ),
            (EMPTY, "{\"type\":\"BOOKMARK\",\"resourceVersion\":\"102\"}\n"),
        ] {
            for size in 1..text.len() {
                let mut all = ChangedLines::new(http_body_util::Empty::new(), view);
                let seen: String = text.as_bytes().chunks(size).map(|part| all.lines(part)).collect();
                assert_eq!(seen, expected, "parts of {size} bytes");
            }
        }
    }
}
