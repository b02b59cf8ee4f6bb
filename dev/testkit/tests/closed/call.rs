//! What a client does: a connection, and perhaps a request with a token on it.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// One connection of a client.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) port: u32,
    /// The address that the client connects to.
    pub(crate) destination: IpAddr,
    /// The address of the connection, and that of the client behind proxies.
    pub(crate) source: IpAddr,
    pub(crate) remote: IpAddr,
    /// `None` for plain text.
    pub(crate) tls: Option<Tls>,
    /// `None` for a stream of bytes.
    pub(crate) http: Option<Request>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Tls {
    pub(crate) server_name: String,
    pub(crate) protocols: Vec<&'static str>,
    /// The name in the client's certificate, which its authority has signed; `None` when it has none.
    pub(crate) certificate: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) host: &'static str,
    pub(crate) headers: BTreeMap<&'static str, &'static str>,
    pub(crate) token: Option<Token>,
}

/// A JSON web token.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) place: Place,
    pub(crate) issuer: &'static str,
    pub(crate) subject: &'static str,
    pub(crate) audience: &'static str,
    /// The name of the key that signed it: a set of keys that has the name is taken to have the key.
    pub(crate) key: &'static str,
    pub(crate) claims: BTreeMap<&'static str, &'static str>,
}

/// Where a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A header and what stands before the token.
    Header(&'static str, &'static str),
    Parameter(&'static str),
    Cookie(&'static str),
}

impl Request {
    /// A header as Envoy has it, the pseudo headers among them.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        match name {
            ":authority" => Some(self.host),
            ":method" => Some(self.method),
            ":path" => Some(self.path),
            name => self.headers.get(name).copied(),
        }
    }
}
