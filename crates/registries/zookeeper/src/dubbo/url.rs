//! Dubbo URLs, `dubbo://10.0.0.1:20880/org.example.Greeter?group=blue&version=1.0.0`: percent-encoded as a
//! whole, they are the names of the nodes below `providers` and `configurators`.

use percent_encoding::percent_decode_str;
use std::collections::BTreeMap;

/// Maximum length of a node name, far above the names that ZooKeeper accepts.
const MAX_LENGTH: usize = 64 << 10;
/// Maximum number of parameters of a URL; more are ignored.
const MAX_PARAMETERS: usize = 256;

/// URL of a Dubbo provider or configurator, decoded from a node name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DubboUrl {
    /// Scheme: `dubbo`, `tri`, `override`, ...
    pub(crate) scheme: String,
    /// An IP address or a host name; IPv6 without brackets.
    pub(crate) host: String,
    /// Port; 0 if the URL has none.
    pub(crate) port: u16,
    /// The path without its first `/`.
    pub(crate) path: String,
    parameters: BTreeMap<String, String>,
}

/// A node name is not a valid Dubbo URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UrlError {
    #[error("it is longer than {MAX_LENGTH} bytes")]
    TooLong,
    /// The decoded text is not UTF-8.
    #[error("it is not UTF-8")]
    NotText,
    /// There is no `://`, or nothing before it.
    #[error("it has no protocol")]
    NoScheme,
    /// The host is empty.
    #[error("it has no host")]
    NoHost,
    /// The port is not a number from 1 to 65535.
    #[error("its port is no number from 1 to 65535")]
    BadPort,
}

impl DubboUrl {
    /// Parses the name of a node.
    pub(crate) fn parse_node(name: &str) -> Result<Self, UrlError> {
        if name.len() > MAX_LENGTH {
            return Err(UrlError::TooLong);
        }
        // Java's URLEncoder writes a space as `+` and a plus sign as `%2B`.
        let spaced = name.replace('+', " ");
        let text = percent_decode_str(&spaced).decode_utf8().map_err(|_| UrlError::NotText)?;
        Self::parse(&text)
    }

    /// Parses a URL that is not encoded.
    pub(crate) fn parse(text: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = text.split_once("://").ok_or(UrlError::NoScheme)?;
        if scheme.is_empty() {
            return Err(UrlError::NoScheme);
        }
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = place.split_once('/').unwrap_or((place, ""));
        // User and password before `@` are not used.
        let authority = authority.rsplit_once('@').map_or(authority, |(_, after)| after);
        let (host, port) = split_port(authority)?;
        if host.is_empty() {
            return Err(UrlError::NoHost);
        }
        let parameters = query.split('&').filter_map(|pair| pair.split_once('=')).take(MAX_PARAMETERS);
        let parameters = parameters.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        Ok(Self {
            scheme: scheme.to_ascii_lowercase(),
            host: host.to_owned(),
            port,
            path: path.to_owned(),
            parameters,
        })
    }

    /// Returns the value of a parameter; `None` if it is empty.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(crate) fn parameters(&self) -> &BTreeMap<String, String> {
        &self.parameters
    }

    /// True if a parameter is `false`.
    pub(crate) fn is_unset(&self, name: &str) -> bool {
        self.parameter(name).is_some_and(|value| value.eq_ignore_ascii_case("false"))
    }
}

/// Splits `HOST`, `HOST:PORT`, `[IPV6]` or `[IPV6]:PORT`. Dubbo also writes IPv6 without brackets, then
/// always with a port.
fn split_port(authority: &str) -> Result<(&str, u16), UrlError> {
    if let Some((host, rest)) = authority.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, number(port)?)),
            None => Ok((host, 0)),
        };
    }
    match authority.rsplit_once(':') {
        Some((host, port)) => Ok((host, number(port)?)),
        None => Ok((authority, 0)),
    }
}

fn number(text: &str) -> Result<u16, UrlError> {
    text.parse().ok().filter(|port| *port > 0).ok_or(UrlError::BadPort)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_name_of_a_providers_node_is_read() {
        let name = "dubbo%3A%2F%2F192.0.2.2%3A21880%2Forg.example.Greeter%3Fapplication%3Dgreeter%26deprecated%3Dfalse%26\
                    methods%3Dgreet%2Cleave%26prefer.serialization%3Dhessian2%2Cfastjson2%26owner%3DA+B%2BC%26weight%3D200%26empty%3D";
        let url = DubboUrl::parse_node(name).unwrap();
        assert_eq!((url.scheme.as_str(), url.host.as_str(), url.port), ("dubbo", "192.0.2.2", 21880));
        assert_eq!(url.path, "org.example.Greeter");
        assert_eq!(url.parameter("methods"), Some("greet,leave"));
        assert_eq!(url.parameter("prefer.serialization"), Some("hessian2,fastjson2"));
        assert_eq!(url.parameter("owner"), Some("A B+C"));
        assert_eq!(url.parameter("empty"), None);
        assert!(url.is_unset("deprecated") && !url.is_unset("methods"));
    }

    #[test]
    fn hosts_and_ports_are_told_apart() {
        let table = [
            ("tri://10.0.0.1:50051/a.B", Ok(("10.0.0.1", 50051))),
            ("TRI://host.example/a.B?x=1", Ok(("host.example", 0))),
            ("dubbo://user:pass@10.0.0.1:20880/a.B", Ok(("10.0.0.1", 20880))),
            ("dubbo://[2001:db8::1]:20880/a.B", Ok(("2001:db8::1", 20880))),
            ("dubbo://[2001:db8::1]/a.B", Ok(("2001:db8::1", 0))),
            ("dubbo://2001:db8::1:20880/a.B", Ok(("2001:db8::1", 20880))),
            ("override://0.0.0.0/a.B?weight=5", Ok(("0.0.0.0", 0))),
            ("dubbo://10.0.0.1:0/a.B", Err(UrlError::BadPort)),
            ("dubbo://10.0.0.1:70000/a.B", Err(UrlError::BadPort)),
            ("dubbo://:20880/a.B", Err(UrlError::NoHost)),
            ("dubbo:///a.B", Err(UrlError::NoHost)),
            ("://10.0.0.1:1/a.B", Err(UrlError::NoScheme)),
            ("10.0.0.1:20880", Err(UrlError::NoScheme)),
            ("", Err(UrlError::NoScheme)),
        ];
        for (text, want) in table {
            let got = DubboUrl::parse(text);
            assert_eq!(
                got.as_ref().map(|url| (url.host.as_str(), url.port)),
                want.as_ref().copied(),
                "{text}"
            );
        }
        assert_eq!(DubboUrl::parse_node("dubbo%3A%2F%2F%FF"), Err(UrlError::NotText));
        assert_eq!(DubboUrl::parse_node(&"x".repeat(MAX_LENGTH + 1)), Err(UrlError::TooLong));
    }

    proptest! {
        #[test]
        fn whatever_a_node_is_called_nothing_panics(name in ".{0,200}") {
            let _ = DubboUrl::parse_node(&name);
        }

        #[test]
        fn what_dubbo_writes_is_read_back(port in 1u16.., group in "[a-z0-9.-]{1,20}", value in "[A-Za-z0-9 ,:/._+-]{1,20}") {
            let url = format!("dubbo://10.1.2.3:{port}/org.example.Greeter?group={group}&note={value}");
            let name = percent_encoding::utf8_percent_encode(&url, percent_encoding::NON_ALPHANUMERIC).to_string();
            let read = DubboUrl::parse_node(&name).unwrap();
            prop_assert_eq!(read.port, port);
            prop_assert_eq!(read.parameter("group"), Some(group.as_str()));
            prop_assert_eq!(read.parameter("note"), Some(value.as_str()));
        }
    }
}
