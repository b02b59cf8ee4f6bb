//! DNS names and questions.

use simple_dns::{TYPE, rdata};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// Maximum length of a DNS name as text without the last dot.
const MAX_NAME: usize = 253;

/// A DNS name in lower case, without the last dot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Name(Arc<str>);

impl Name {
    /// Parses a name of letters, digits, hyphens and underscores. Returns `None` if it is invalid.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.strip_suffix('.').unwrap_or(text);
        let is_label = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        };
        (text.len() <= MAX_NAME && text.split('.').all(is_label))
            .then(|| Self(text.to_ascii_lowercase().into()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Record type of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Srv,
    A,
    Aaaa,
}

impl Kind {
    pub(crate) const fn of_dns(self) -> TYPE {
        match self {
            Self::Srv => TYPE::SRV,
            Self::A => TYPE::A,
            Self::Aaaa => TYPE::AAAA,
        }
    }
}

/// A name and a record type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Question {
    pub(crate) name: Name,
    pub(crate) kind: Kind,
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Srv => "SRV",
            Kind::A => "A",
            Kind::Aaaa => "AAAA",
        };
        write!(f, "{kind} {}", self.name)
    }
}

/// SRV record (RFC 2782).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Srv {
    pub(crate) priority: u16,
    pub(crate) weight: u16,
    pub(crate) port: u16,
    pub(crate) target: Name,
}

impl Srv {
    /// Returns `None` for the root as target, which means that the service is not available (RFC 2782), and
    /// for invalid names.
    pub(crate) fn read(record: &rdata::SRV<'_>) -> Option<Self> {
        let target = Name::parse(&record.target.to_string())?;
        let is_port = record.port > 0;
        is_port.then_some(Self {
            priority: record.priority,
            weight: record.weight,
            port: record.port,
            target,
        })
    }
}

/// The records of one question, sorted, without duplicates. Empty for a negative answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Records {
    Srv(Vec<Srv>),
    Addresses(Vec<IpAddr>),
}

impl Records {
    pub(crate) fn none(kind: Kind) -> Self {
        match kind {
            Kind::Srv => Self::Srv(Vec::new()),
            Kind::A | Kind::Aaaa => Self::Addresses(Vec::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read() {
        let long = format!("{}.com", "a".repeat(64));
        for (text, expected) in [
            ("Web.Example.com.", Some("web.example.com")),
            ("_http._tcp.web", Some("_http._tcp.web")),
            ("localhost", Some("localhost")),
            ("", None),
            (".", None),
            ("a..b", None),
            ("a b", None),
            ("caf\u{e9}", None),
            (&long, None),
            (&"a.".repeat(130), None),
        ] {
            assert_eq!(Name::parse(text).as_ref().map(Name::as_str), expected, "{text}");
        }
    }
}
