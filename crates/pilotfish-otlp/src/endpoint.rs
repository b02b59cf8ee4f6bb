//! Where a collector is.

use pilotfish_registry_client::{Connector, Scheme, Server, Target, TlsOptions};
use std::path::PathBuf;

/// The port that collectors have for OTLP over gRPC.
const PORT: u16 = 4317;
const SCHEMES: &[Scheme] =
    &[Scheme { name: "http", port: PORT, is_tls: false }, Scheme { name: "https", port: PORT, is_tls: true }];

/// The address of a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    server: Server,
    is_tls: bool,
}

/// The text is no address of a collector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not http://HOST:PORT or https://HOST:PORT: {0}")]
pub struct EndpointError(String);

impl Endpoint {
    /// Reads `http://HOST[:4317]` or `https://HOST[:4317]`.
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

    /// Whether it is reached by TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    /// What connects to it. Without a file, the authorities of the system count.
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
