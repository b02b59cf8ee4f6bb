//! Addresses in the forms found in values: `10.0.0.1:8080`, `[2001:db8::1]:80`, `http://10.0.0.1:8080/path`,
//! `10.0.0.1`.

/// Parsed address of an instance. Missing parts are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: Option<u32>,
    /// The scheme of a URL.
    pub(crate) protocol: Option<String>,
}

impl Address {
    /// Parses an address. The host is not validated here.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let (protocol, rest) = match text.split_once("://") {
            Some((scheme, rest)) if !scheme.is_empty() => (Some(scheme.to_owned()), rest),
            _ => (None, text),
        };
        let authority = match &protocol {
            Some(_) => rest.split(['/', '?', '#']).next().unwrap_or_default(),
            None => rest,
        };
        let (host, port) = split(authority).ok_or_else(|| format!("{} is no address", short(text)))?;
        let port = port.map(parse_port).transpose()?;
        Ok(Self { host: host.to_owned(), port, protocol })
    }
}

/// Splits an authority into host and port.
fn split(authority: &str) -> Option<(&str, Option<&str>)> {
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) = rest.split_once(']')?;
        match after {
            "" => (host, None),
            after => (host, Some(after.strip_prefix(':')?)),
        }
    } else {
        match authority.split_once(':') {
            // An IPv6 address without brackets has no port.
            Some((_, port)) if port.contains(':') => (authority, None),
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        }
    };
    (!host.is_empty() && !host.contains(char::is_whitespace)).then_some((host, port))
}

/// Parses a port number.
pub(crate) fn parse_port(text: &str) -> Result<u32, String> {
    let port: Option<u16> = text.parse().ok().filter(|port| *port > 0 && !text.starts_with('+'));
    port.map(u32::from).ok_or_else(|| format!("{} is no port", short(text)))
}

/// Quotes and shortens a text for a message.
pub(crate) fn short(text: &str) -> String {
    const MOST: usize = 60;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        let cases = [
            ("10.0.0.1:8080", "10.0.0.1", Some(8080), None),
            ("10.0.0.1", "10.0.0.1", None, None),
            (" web.example.com:80 ", "web.example.com", Some(80), None),
            ("[2001:db8::1]:80", "2001:db8::1", Some(80), None),
            ("[2001:db8::1]", "2001:db8::1", None, None),
            ("2001:db8::1", "2001:db8::1", None, None),
            ("http://10.0.0.1:8080/path?a=b", "10.0.0.1", Some(8080), Some("http")),
            ("grpc://[::1]:9000?isSecure=false", "::1", Some(9000), Some("grpc")),
            ("tcp://10.0.0.1", "10.0.0.1", None, Some("tcp")),
        ];
        for (text, host, port, protocol) in cases {
            let wanted = Address { host: host.into(), port, protocol: protocol.map(str::to_owned) };
            assert_eq!(Address::parse(text), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_told() {
        for text in ["", ":80", "a b", "a:0", "a:65536", "a:x", "[::1", "[::1]80", "http://", "a:-1", "a:+1"]
        {
            assert!(Address::parse(text).is_err(), "{text}");
        }
        assert_eq!(parse_port("70000").unwrap_err(), "\"70000\" is no port");
        assert!(short(&"ä".repeat(100)).len() < 140);
    }
}
