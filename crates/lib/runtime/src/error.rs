//! Classification of failed requests.

use std::error::Error;
use std::fmt;

/// Class of a failed request. Each client library maps its errors to it once ([`Classify`]); callers decide
/// by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// A repeated request may succeed later: no connection, no answer in time, too many requests, an error of
    /// the server. Retry with backoff and keep the last known state.
    Transient,
    /// The caller lacks permission: credentials are missing, expired or insufficient. An operator has to act,
    /// so retry rarely and report it.
    Denied,
    /// The server will never accept this request. Do not repeat it unchanged.
    Rejected,
    /// The object changed since the caller read it. Read again, then decide again.
    Conflict,
    /// The object of the request does not exist, or not any more.
    Gone,
}

impl ErrorClass {
    /// Returns the class of an HTTP status.
    #[must_use]
    pub const fn of_http(status: u16) -> Self {
        match status {
            401 | 403 | 407 => Self::Denied,
            404 | 410 => Self::Gone,
            409 | 412 => Self::Conflict,
            408 | 425 | 429 => Self::Transient,
            400..=499 => Self::Rejected,
            _ => Self::Transient,
        }
    }

    /// True if the same request may succeed later without intervention.
    #[must_use]
    pub const fn is_transient(self) -> bool {
        matches!(self, Self::Transient)
    }

    /// Returns the class as one word, for logs and metric labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Denied => "denied",
            Self::Rejected => "rejected",
            Self::Conflict => "conflict",
            Self::Gone => "gone",
        }
    }
}

impl fmt::Display for ErrorClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An error with a class.
pub trait Classify {
    /// Returns the class of the error.
    fn class(&self) -> ErrorClass;
}

/// Formats an error with its causes in [one line](one_line). A cause already quoted by its error is not
/// repeated.
#[must_use]
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    one_line(&text)
}

/// Normalizes external text for a log line or a status: white space becomes single spaces, at most 500
/// characters.
#[must_use]
pub fn one_line(text: &str) -> String {
    const LONGEST: usize = 500;
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_statuses_have_classes() {
        let cases: [(ErrorClass, &[u16]); 5] = [
            (ErrorClass::Denied, &[401, 403]),
            (ErrorClass::Gone, &[404, 410]),
            (ErrorClass::Conflict, &[409, 412]),
            (ErrorClass::Rejected, &[400, 405, 413, 415, 422]),
            (ErrorClass::Transient, &[0, 301, 408, 429, 500, 503, 504, 599]),
        ];
        for (class, statuses) in cases {
            for status in statuses {
                assert_eq!(ErrorClass::of_http(*status), class, "{status}");
            }
        }
    }

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Layer {
        text: &'static str,
        source: Option<Box<Layer>>,
    }

    fn layers(texts: &[&'static str]) -> Layer {
        let (text, causes) = texts.split_first().expect("at least one");
        let source = (!causes.is_empty()).then(|| Box::new(layers(causes)));
        Layer { text, source }
    }

    #[test]
    fn causes_follow_their_error_once() {
        let cases: [(&[&'static str], &str); 4] = [
            (&["no connection"], "no connection"),
            (&["no connection", "refused"], "no connection: refused"),
            (&["no connection: refused", "refused", "code 111"], "no connection: refused: code 111"),
            (&["two\n  lines", "of\ttext"], "two lines: of text"),
        ];
        for (texts, expected) in cases {
            assert_eq!(error_chain(&layers(texts)), expected);
        }
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(one_line(&"ä ".repeat(400)).chars().count(), 500);
    }
}
