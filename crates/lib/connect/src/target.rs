//! The address of a service: `SCHEME://HOST:PORT[,HOST:PORT...][/PATH]`.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// A URL scheme that a client accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheme {
    /// Name of the scheme, without `://`.
    pub name: &'static str,
    /// Port of addresses without one.
    pub port: u16,
    pub is_tls: bool,
}

/// Parsed address of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub scheme: Scheme,
    /// Servers in the order of the address, at least one.
    pub servers: Vec<Server>,
    /// The path with its leading slash; empty if the address has none.
    pub path: String,
}

/// Host and port of a server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Server {
    /// A host name or an IP, without brackets.
    pub host: String,
    pub port: u16,
}

impl Target {
    /// Parses an address. Without a scheme, the first of `schemes` applies.
    ///
    /// # Errors
    /// With what is wrong, in one line.
    pub fn parse(text: &str, schemes: &[Scheme]) -> Result<Self, String> {
        let known =
            || schemes.iter().map(|scheme| format!("{}://", scheme.name)).collect::<Vec<_>>().join(", ");
        let (scheme, rest) = match text.split_once("://") {
            Some((name, rest)) => {
                let scheme = schemes.iter().find(|scheme| scheme.name.eq_ignore_ascii_case(name));
                (scheme.ok_or_else(|| format!("the scheme {name:?} is not one of {}", known()))?, rest)
            }
            None => (schemes.first().ok_or("it takes no address")?, text),
        };
        let (hosts, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        if hosts.contains('@') {
            return Err(
                "names and passwords do not belong into the address: see the options for files".to_owned()
            );
        }
        let servers: Vec<Server> =
            hosts.split(',').map(|host| server(host, scheme.port)).collect::<Result<_, _>>()?;
        Ok(Self { scheme: *scheme, servers, path: path.trim_end_matches('/').to_owned() })
    }
}

fn server(text: &str, port: u16) -> Result<Server, String> {
    let wrong = |what: &str| format!("{text:?} is not HOST:PORT: {what}");
    let (host, number) = if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or_else(|| wrong("a bracket is open"))?;
        host.parse::<Ipv6Addr>().map_err(|_| wrong("no IPv6 address in the brackets"))?;
        (
            host,
            if rest.is_empty() {
                None
            } else {
                Some(rest.strip_prefix(':').ok_or_else(|| wrong("a colon is missing"))?)
            },
        )
    } else {
        match text.split_once(':') {
            Some((_, rest)) if rest.contains(':') => return Err(wrong("an IPv6 address needs brackets")),
            Some((host, number)) => (host, Some(number)),
            None => (text, None),
        }
    };
    let is_name = !host.is_empty() && host.bytes().all(|c| c.is_ascii_alphanumeric() || b".-_".contains(&c));
    if !is_name && host.parse::<IpAddr>().is_err() {
        return Err(wrong("the host is neither a name nor an IP"));
    }
    let port = match number {
        None => port,
        Some(number) => number
            .parse()
            .ok()
            .filter(|port| *port > 0)
            .ok_or_else(|| wrong("the port is not from 1 to 65535"))?,
    };
    Ok(Server { host: host.to_owned(), port })
}

impl fmt::Display for Server {
    /// Formats `HOST:PORT`, with brackets around an IPv6 address.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMES: &[Scheme] = &[
        Scheme { name: "http", port: 80, is_tls: false },
        Scheme { name: "https", port: 443, is_tls: true },
    ];

    #[test]
    fn addresses_are_read() {
        for (text, want) in [
            ("http://a:1", "http a:1 \"\""),
            ("a", "http a:80 \"\""),
            ("HTTPS://a,b:8443/eureka/", "https a:443 b:8443 \"/eureka\""),
            ("http://[::1]:7,[::2]", "http [::1]:7 [::2]:80 \"\""),
            ("127.0.0.1:53", "http 127.0.0.1:53 \"\""),
        ] {
            let target = Target::parse(text, SCHEMES).unwrap();
            let servers: Vec<String> = target.servers.iter().map(Server::to_string).collect();
            assert_eq!(format!("{} {} {:?}", target.scheme.name, servers.join(" "), target.path), want);
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, want) in [
            ("ftp://a", "the scheme \"ftp\" is not one of http://, https://"),
            (
                "http://user:secret@a",
                "names and passwords do not belong into the address: see the options for files",
            ),
            ("http://", "\"\" is not HOST:PORT: the host is neither a name nor an IP"),
            ("http://a,,b", "\"\" is not HOST:PORT: the host is neither a name nor an IP"),
            ("http://a:0", "\"a:0\" is not HOST:PORT: the port is not from 1 to 65535"),
            ("http://::1", "\"::1\" is not HOST:PORT: an IPv6 address needs brackets"),
            ("http://[::1", "\"[::1\" is not HOST:PORT: a bracket is open"),
            ("http://[::1]7", "\"[::1]7\" is not HOST:PORT: a colon is missing"),
            ("a b", "\"a b\" is not HOST:PORT: the host is neither a name nor an IP"),
        ] {
            assert_eq!(Target::parse(text, SCHEMES).unwrap_err(), want);
        }
    }
}
