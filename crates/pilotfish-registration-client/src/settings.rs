//! Settings of the client.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Settings of the client.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// Where the servers are: `http://HOST:PORT`, or `https://` for TLS.
    pub servers: Vec<String>,
    /// What proves who the client is, where a certificate does not.
    pub token: Option<Token>,
    /// PEM of the authorities of the servers' certificates; needed with `https://`.
    pub authorities: Option<Vec<u8>>,
    /// PEM of the client's certificate and of its key.
    pub certificate: Option<(Vec<u8>, Vec<u8>)>,
    /// The name in the servers' certificates, where it is not that of the address.
    pub server_name: Option<String>,
    /// The time for a connection, and then for an answer.
    pub timeout: Duration,
}

/// A bearer token.
#[derive(Clone)]
pub enum Token {
    /// This one.
    Text(String),
    /// The content of a file, which is read for each request: it may be rotated.
    File(PathBuf),
}

/// Leaves out the token.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(_) => f.write_str("Token"),
            Self::File(path) => write!(f, "Token({})", path.display()),
        }
    }
}

impl ClientSettings {
    /// The defaults, with these servers.
    #[must_use]
    pub fn new<S: Into<String>>(servers: impl IntoIterator<Item = S>) -> Self {
        Self {
            servers: servers.into_iter().map(Into::into).collect(),
            token: None,
            authorities: None,
            certificate: None,
            server_name: None,
            timeout: Duration::from_secs(5),
        }
    }
}
