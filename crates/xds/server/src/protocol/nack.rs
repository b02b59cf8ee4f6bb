//! Short form of a NACK for logs.

use crate::source::{ClientId, ViewId};
use pilotfish_proto::ResourceType;
use std::sync::Arc;

/// Maximum number of named resources.
const MAX_RESOURCES: usize = 3;
/// Bytes of each name, and of a connection's id.
const MAX_NAME: usize = 256;
/// Bytes of the beginning and of the end of a reason.
const REASON_HEAD: usize = 400;
const REASON_TAIL: usize = 200;

/// A response that a client refused. The client keeps its previous resources.
#[derive(Clone, Copy, Debug)]
pub struct Nack<'a> {
    /// The type of its resources.
    pub ty: ResourceType,
    /// The id of the connection, as in [`ConnectionStatus`](crate::ConnectionStatus); at most 256 bytes of
    /// it.
    pub connection: &'a str,
    /// The source's number of the client.
    pub client: ClientId,
    /// The client's view of the type.
    pub view: ViewId,
    /// The newest revision that the client has accepted of the type.
    pub after: u64,
    /// The revision of the response.
    pub revision: u64,
    resources: &'a [Arc<str>],
    /// Error message of the client, at most some 4 KiB.
    pub error: &'a str,
}

impl<'a> Nack<'a> {
    /// A refusal of a response with these resources.
    #[must_use]
    pub fn new(ty: ResourceType, connection: &'a str, resources: &'a [Arc<str>], error: &'a str) -> Self {
        let (view, after, revision) = (ViewId::NONE, 0, 0);
        Self {
            ty,
            connection: shown(connection),
            client: ClientId(0),
            view,
            after,
            revision,
            resources,
            error,
        }
    }

    /// Adds the client, its view of the type, the accepted revision `after` and the refused `revision`.
    #[must_use]
    pub fn of(self, client: ClientId, view: ViewId, after: u64, revision: u64) -> Self {
        Self { client, view, after, revision, ..self }
    }

    /// Resources that the client's message names; all of the response if it names none.
    #[must_use]
    pub fn refused(&self) -> Vec<Arc<str>> {
        let named: Vec<_> =
            self.resources.iter().filter(|name| self.error.contains(&***name)).cloned().collect();
        if named.is_empty() { self.resources.to_vec() } else { named }
    }

    /// Comma-separated names of the resources that the client's message names, or of all of the response if
    /// it names none. At most three, with the number of omitted ones.
    #[must_use]
    pub fn resources(&self) -> String {
        let named = self.resources.iter().filter(|name| self.error.contains(&***name));
        let named: Vec<_> = named.take(MAX_RESOURCES + 1).collect();
        let (listed, more) = match named.len() {
            0 => {
                let listed: Vec<_> = self.resources.iter().take(MAX_RESOURCES).collect();
                let more = self.resources.len() - listed.len();
                (listed, (more > 0).then(|| format!("{more} more")))
            }
            count => (named, (count > MAX_RESOURCES).then(|| "more".to_owned())),
        };
        let mut words: Vec<_> =
            listed.iter().take(MAX_RESOURCES).map(|name| prefix(name, MAX_NAME).to_owned()).collect();
        words.extend(more);
        words.join(", ")
    }

    /// The client's reason on one line of a few hundred bytes. Envoy's messages hold the refused resource as
    /// text, before or after the reason: message fields are shown as `{...}`.
    #[must_use]
    pub fn reason(&self) -> String {
        let text = match self.error.split_once(CUT) {
            Some((head, tail)) => without_messages(head) + CUT + &without_messages_backwards(tail),
            None => without_messages(self.error),
        };
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if text.len() <= REASON_HEAD + REASON_TAIL {
            return text;
        }
        let tail = text.ceil_char_boundary(text.len() - REASON_TAIL);
        format!("{}{CUT}{}", prefix(&text, REASON_HEAD), text.get(tail..).unwrap_or_default())
    }
}

/// Placeholder for the omitted middle of a long text.
pub(crate) const CUT: &str = " ... ";

/// Truncated connection id for logs.
pub(crate) fn shown(id: &str) -> &str {
    prefix(id, MAX_NAME)
}

/// The longest prefix of at most that many bytes.
fn prefix(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or_default()
}

/// Omits braces and their content, where the opening one follows a space as in the text format of protobuf.
/// An unterminated message is omitted up to the end of the text.
fn without_messages(text: &str) -> String {
    let (mut out, mut depth, mut blank) = (String::new(), 0_usize, false);
    for c in text.chars() {
        match c {
            '{' if depth > 0 => depth += 1,
            '{' if blank => {
                out.push_str("{...}");
                depth = 1;
            }
            '}' if depth > 0 => depth -= 1,
            _ if depth > 0 => {}
            _ => out.push(c),
        }
        blank = c.is_whitespace();
    }
    out
}

/// Removes messages from a text that may start within one, scanning from its end.
fn without_messages_backwards(text: &str) -> String {
    let (mut out, mut depth) = (Vec::new(), 0_usize);
    for c in text.chars().rev() {
        match c {
            '}' => {
                if depth == 0 {
                    out.extend("}...{".chars());
                }
                depth += 1;
            }
            '{' if depth > 0 => depth -= 1,
            _ if depth > 0 => {}
            _ => out.push(c),
        }
    }
    out.into_iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nack<'a>(resources: &'a [Arc<str>], error: &'a str) -> Nack<'a> {
        Nack::new(ResourceType::Cluster, "c", resources, error)
    }

    fn names(names: &[&str]) -> Vec<Arc<str>> {
        names.iter().map(|name| Arc::from(*name)).collect()
    }

    #[test]
    fn the_resources_are_those_that_the_message_names() {
        for (all, error, expected) in [
            (&["a.x", "b.x"][..], "cluster b.x: no", "b.x"),
            (&["a.x", "b.x"], "no", "a.x, b.x"),
            (&[], "no", ""),
            (&["a.x", "b.x", "c.x", "d.x", "e.x"], "no", "a.x, b.x, c.x, 2 more"),
            (&["a.x", "b.x", "c.x", "d.x", "e.x"], "d.x c.x b.x a.x", "a.x, b.x, c.x, more"),
        ] {
            assert_eq!(nack(&names(all), error).resources(), expected, "{error}");
        }
        let long = "ä".repeat(1000);
        assert_eq!(nack(&names(&[&long]), "no").resources(), "ä".repeat(128));
    }

    #[test]
    fn the_reason_stands_without_the_refused_message() {
        let dump =
            "name: \"a\"\nload_assignment {\n  endpoints {\n    lb_endpoints {\n    }\n  }\n}\ntype: EDS\n";
        for (error, expected) in [
            ("no such filter 'x'".to_owned(), "no such filter 'x'"),
            ("regex 'a{2,1}' is bad".to_owned(), "regex 'a{2,1}' is bad"),
            (format!("bad cluster: {dump}"), "bad cluster: name: \"a\" load_assignment {...} type: EDS"),
            (format!("{dump}: is bad"), "name: \"a\" load_assignment {...} type: EDS : is bad"),
            ("bad: a {\n b {\n c".to_owned(), "bad: a {...}"),
            ("bad: a {\n b {\n ... c\n }\n}\nlast".to_owned(), "bad: a {...} ... {...} last"),
            (String::new(), ""),
        ] {
            assert_eq!(nack(&[], &error).reason(), expected);
        }
    }

    #[test]
    fn a_reason_is_bounded_and_keeps_both_ends() {
        let error = format!("begin {} end", "ä ".repeat(5_000));
        let reason = nack(&[], &error).reason();
        assert!(reason.starts_with("begin") && reason.ends_with("end"), "{reason}");
        assert!(reason.len() <= REASON_HEAD + REASON_TAIL + CUT.len(), "{}", reason.len());
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_shortened(error in "[a{} .\nä]{0,60}") {
            let all = names(&["a"]);
            let nack = nack(&all, &error);
            assert!(nack.reason().len() <= REASON_HEAD + REASON_TAIL + CUT.len());
            let _ = nack.resources();
        }
    }
}
