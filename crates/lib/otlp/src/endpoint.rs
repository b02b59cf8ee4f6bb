//! Addresses of OTLP collectors.

use pilotfish_connect::{Connector, Scheme, Server, Target, TlsOptions};
use std::path::PathBuf;

/// Default port of collectors for OTLP over gRPC.
const PORT: u16 = 4317;
const SCHEMES: &[Scheme] =
    &[Scheme { name: "http", port: PORT, is_tls: false }, Scheme { name: "https", port: PORT, is_tls: true }];

/// The address of a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    server: Server,
    is_tls: bool,
}

/// The text is not a valid address of a collector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not http://HOST:PORT or https://HOST:PORT: {0}")]
pub struct EndpointError(String);

impl Endpoint {
    /// Parses `http://HOST[:4317]` or `https://HOST[:4317]`.
    ///
    /// # Errors
    /// With what is wrong, in one line.
    pub fn parse(text: &str) -> Result<Self, EndpointError> {
        let target = Target::parse(text, SCHEMES).map_err(EndpointError)?;
        if !target.path.is_empty() {
            return Err(EndpointError("OTLP over gRPC has no path".to_owned()));
        }
        match <[Server; 1]>::try_from(target.servers) {
            Ok([server]) => Ok(Self { server, is_tls: target.scheme.is_tls }),
            Err(_) => Err(EndpointError("one server is named".to_owned())),
        }
    }

    /// True for an `https` endpoint.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    /// Returns the connector for this endpoint. Without `ca`, TLS trusts the system's certificate
    /// authorities.
    pub(crate) fn connector(&self, ca: Option<PathBuf>) -> Connector {
        Connector::new(self.is_tls.then(|| TlsOptions::new(ca, None, None).with_alpn(&["h2"])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_host_and_no_path() {
        let parsed = |text: &str| Endpoint::parse(text).map(|it| (it.server.to_string(), it.is_tls));
        assert_eq!(parsed("http://collector"), Ok(("collector:4317".to_owned(), false)));
        assert_eq!(parsed("collector:5000"), Ok(("collector:5000".to_owned(), false)));
        assert_eq!(parsed("https://[::1]:5000"), Ok(("[::1]:5000".to_owned(), true)));
        for wrong in ["", "http://", "http://a/v1/traces", "http://a,b", "ftp://a", "http://u:p@a", "a:x"] {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
    }
}
