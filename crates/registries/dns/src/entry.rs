//! The option `names`: DNS names that become services.

use crate::name::{Kind, Name, Question};
use std::fmt;

/// Address record types to query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Family {
    Ipv4,
    Ipv6,
    #[default]
    Both,
}

impl Family {
    pub(crate) const fn kinds(self) -> &'static [Kind] {
        match self {
            Self::Ipv4 => &[Kind::A],
            Self::Ipv6 => &[Kind::Aaaa],
            Self::Both => &[Kind::A, Kind::Aaaa],
        }
    }

    /// Returns the address questions of a name.
    pub(crate) fn questions(self, name: &Name) -> impl Iterator<Item = Question> {
        self.kinds().iter().map(|kind| Question { name: name.clone(), kind: *kind })
    }
}

/// One DNS name, which becomes one port of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The host of the service.
    pub(crate) host: Name,
    /// The name that is queried.
    pub(crate) name: Name,
    /// The service port for clients. `None` for the port of the servers.
    pub(crate) port: Option<u16>,
    pub(crate) kind: EntryKind,
}

/// Query type of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EntryKind {
    /// SRV records. If the name has the RFC 2782 form, its service and transport.
    Srv(Option<ServiceName>),
    /// Address records, all with the entry's port.
    Addresses,
}

/// Service and transport in `_http._tcp.web.example.com`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServiceName {
    /// Service, as in `http`.
    pub(crate) service: String,
    /// Transport, as in `tcp`.
    pub(crate) transport: String,
}

impl Entry {
    /// Parses `_http._tcp.web.example.com[:PORT]`, `srv:web.example.com[:PORT]` or `web.example.com:PORT`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| format!("{text:?}: {what}");
        let (is_srv, rest) = text.strip_prefix("srv:").map_or((false, text), |rest| (true, rest));
        let (name, port) = match rest.split_once(':') {
            None => (rest, None),
            Some((name, port)) => {
                let port = port.parse().ok().filter(|port| *port > 0);
                (name, Some(port.ok_or_else(|| wrong("the port is not from 1 to 65535"))?))
            }
        };
        let name = Name::parse(name).ok_or_else(|| wrong("not a name of DNS"))?;
        let kind_of = |service| EntryKind::Srv(service);
        if let Some((service, host)) = service_name(&name) {
            return Ok(Self { host, name, port, kind: kind_of(Some(service)) });
        }
        let kind = if is_srv { kind_of(None) } else { EntryKind::Addresses };
        if kind == EntryKind::Addresses && port.is_none() {
            return Err(wrong(
                "a name without _service._proto needs a port, as in web.example.com:80, or srv: in front",
            ));
        }
        Ok(Self { host: name.clone(), name, port, kind })
    }

    /// Parses a comma-separated list.
    pub(crate) fn parse_list(text: &str) -> Result<Vec<Self>, String> {
        text.split(',').map(|entry| Self::parse(entry.trim())).collect()
    }

    /// Parses a list with one name per line, and `#` comments.
    pub(crate) fn parse_lines(text: &str) -> Result<Vec<Self>, String> {
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
        let lines = lines.enumerate().filter(|(_, line)| !line.is_empty());
        let read = |(at, line): (usize, &str)| {
            Self::parse(line).map_err(|error| format!("line {}: {error}", at + 1))
        };
        lines.map(read).collect()
    }

    /// Returns the initial questions of the entry.
    pub(crate) fn questions(&self, family: Family) -> Vec<Question> {
        match self.kind {
            EntryKind::Srv(_) => vec![Question { name: self.name.clone(), kind: Kind::Srv }],
            EntryKind::Addresses => family.questions(&self.name).collect(),
        }
    }
}

/// Splits a name in RFC 2782 form into its service, transport and host.
fn service_name(name: &Name) -> Option<(ServiceName, Name)> {
    let mut labels = name.as_str().splitn(3, '.');
    let service = labels.next()?.strip_prefix('_')?;
    let transport = labels.next()?.strip_prefix('_')?;
    let host = Name::parse(labels.next()?)?;
    let found = ServiceName { service: service.to_owned(), transport: transport.to_owned() };
    Some((found, host))
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Result<String, String> {
        let entry = Entry::parse(text)?;
        let kind = match &entry.kind {
            EntryKind::Srv(Some(name)) => format!("{} over {}", name.service, name.transport),
            EntryKind::Srv(None) => "services".to_owned(),
            EntryKind::Addresses => "addresses".to_owned(),
        };
        Ok(format!("{} of {} as {} {:?}", kind, entry.name, entry.host, entry.port))
    }

    #[test]
    fn names_say_what_they_are() {
        for (text, expected) in [
            (
                "_http._tcp.Web.example.com",
                "http over tcp of _http._tcp.web.example.com as web.example.com None",
            ),
            ("_grpc._tcp.web:80", "grpc over tcp of _grpc._tcp.web as web Some(80)"),
            ("srv:web.service.consul", "services of web.service.consul as web.service.consul None"),
            ("srv:_http._tcp.web", "http over tcp of _http._tcp.web as web None"),
            ("db.example.com.:5432", "addresses of db.example.com as db.example.com Some(5432)"),
            ("_odd.example.com:1", "addresses of _odd.example.com as _odd.example.com Some(1)"),
        ] {
            assert_eq!(shown(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, expected) in [
            ("", "\"\": not a name of DNS"),
            (
                "web.example.com",
                "\"web.example.com\": a name without _service._proto needs a port, as in web.example.com:80, or srv: in front",
            ),
            ("web:0", "\"web:0\": the port is not from 1 to 65535"),
            ("web:x", "\"web:x\": the port is not from 1 to 65535"),
            ("we b:1", "\"we b:1\": not a name of DNS"),
            (
                "_http._tcp",
                "\"_http._tcp\": a name without _service._proto needs a port, as in web.example.com:80, or srv: in front",
            ),
        ] {
            assert_eq!(shown(text), Err(expected.to_owned()), "{text}");
        }
        assert!(Entry::parse_list("a:1, b:2").is_ok_and(|list| list.len() == 2));
        assert!(Entry::parse_list("a:1,,b:2").is_err());
    }
}
