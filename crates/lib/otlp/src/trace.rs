//! Traces as callers build them, and their conversion to OTLP messages.

use crate::message::{
    AnyValue, AnyValueKind, KeyValue, Span as SpanMessage, SpanEvent, SpanKind, SpanStatus, StatusCode,
};
use ring::rand::{SecureRandom, SystemRandom};
use std::time::{SystemTime, UNIX_EPOCH};

/// Maximum length of a text attribute in bytes; longer texts are truncated. Names and messages of proxies may
/// be of any length.
const MOST_TEXT: usize = 1024;

/// A root span and its children, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    pub root: Span,
    /// Child spans of `root`.
    pub parts: Vec<Span>,
}

/// A timed operation of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Operation name, from a closed set.
    pub name: &'static str,
    pub start: SystemTime,
    pub end: SystemTime,
    pub attributes: Vec<(&'static str, Value)>,
    pub events: Vec<Event>,
    /// Error message if the operation failed.
    pub error: Option<String>,
}

/// A timestamped event within a span.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Event name, from a closed set.
    pub name: &'static str,
    pub at: SystemTime,
    pub attributes: Vec<(&'static str, Value)>,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Text(String),
    Number(u64),
    Flag(bool),
}

impl Span {
    /// Returns a successful span without attributes and events.
    #[must_use]
    pub fn new(name: &'static str, start: SystemTime, end: SystemTime) -> Self {
        Self { name, start, end, attributes: Vec::new(), events: Vec::new(), error: None }
    }

    fn message(self, trace: &[u8], parent: &[u8], id: [u8; 8]) -> SpanMessage {
        let status =
            self.error.map(|message| SpanStatus { message: cut(message), code: StatusCode::Error.into() });
        let events = self.events.into_iter().map(|event| SpanEvent {
            time_unix_nano: nanoseconds(event.at),
            name: event.name.to_owned(),
            attributes: attributes(event.attributes),
        });
        SpanMessage {
            trace_id: trace.to_vec(),
            span_id: id.to_vec(),
            parent_span_id: parent.to_vec(),
            name: self.name.to_owned(),
            kind: SpanKind::Internal.into(),
            start_time_unix_nano: nanoseconds(self.start),
            // If the clock was set back, the span gets a duration of zero.
            end_time_unix_nano: nanoseconds(self.end.max(self.start)),
            attributes: attributes(self.attributes),
            events: events.collect(),
            status,
        }
    }
}

impl Trace {
    /// Returns the number of spans, including the root.
    #[must_use]
    pub fn spans(&self) -> usize {
        1 + self.parts.len()
    }

    /// Converts the trace to OTLP spans with random ids.
    pub(crate) fn messages(self) -> Vec<SpanMessage> {
        let trace: [u8; 16] = random();
        let root: [u8; 8] = random();
        let mut messages = vec![self.root.message(&trace, &[], root)];
        messages.extend(self.parts.into_iter().map(|part| part.message(&trace, &root, random())));
        messages
    }
}

/// Returns a random id that is not all zeros: OTLP treats such an id as invalid.
fn random<const N: usize>() -> [u8; N] {
    let mut id = [0; N];
    if SystemRandom::new().fill(&mut id).is_err() || id == [0; N] {
        id = [1; N];
    }
    id
}

fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Converts attributes to OTLP key-value pairs.
pub(crate) fn attributes(all: Vec<(&'static str, Value)>) -> Vec<KeyValue> {
    let message = |(key, value): (&'static str, Value)| {
        let value = match value {
            Value::Text(text) => AnyValueKind::StringValue(cut(text)),
            Value::Number(number) => AnyValueKind::IntValue(i64::try_from(number).unwrap_or(i64::MAX)),
            Value::Flag(flag) => AnyValueKind::BoolValue(flag),
        };
        KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
    };
    all.into_iter().map(message).collect()
}

fn cut(mut text: String) -> String {
    if text.len() > MOST_TEXT {
        let end = (0..=MOST_TEXT).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn parts_belong_to_their_root_and_texts_are_cut() {
        let now = UNIX_EPOCH + Duration::from_secs(5);
        let mut root = Span::new("change", now, now + Duration::from_secs(1));
        root.attributes =
            vec![("text", Value::Text("é".repeat(MOST_TEXT))), ("number", Value::Number(u64::MAX))];
        root.error = Some("late".to_owned());
        let part = Span::new("part", now, now - Duration::from_secs(1));
        let trace = Trace { root, parts: vec![part.clone(), part] };
        assert_eq!(trace.spans(), 3);
        let spans = trace.messages();
        assert!(spans.iter().all(|span| span.trace_id == spans[0].trace_id && span.trace_id.len() == 16));
        assert!(spans[0].parent_span_id.is_empty() && spans[0].span_id.len() == 8);
        assert!(spans[1..].iter().all(|span| span.parent_span_id == spans[0].span_id));
        assert_ne!(spans[1].span_id, spans[2].span_id);
        assert_eq!(spans[0].start_time_unix_nano, 5_000_000_000);
        assert_eq!(spans[1].end_time_unix_nano, 5_000_000_000, "not before it began");
        let Some(AnyValueKind::StringValue(text)) = &spans[0].attributes[0].value.as_ref().unwrap().value
        else {
            panic!("{spans:?}")
        };
        assert_eq!(text.len(), MOST_TEXT);
        assert_eq!(spans[0].status.as_ref().unwrap().code, 2);
    }
}
