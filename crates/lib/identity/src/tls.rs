//! TLS of a listener: the server's certificate, and the authorities for clients' certificates. Both can be
//! replaced while connections are open; a handshake uses those in force at its start.

use parking_lot::RwLock;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{RootCertStore, ServerConfig};
use std::fmt;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

/// Error of TLS material. No message holds a part of a key.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The text has no certificate.
    #[error("{0}: no certificate in PEM")]
    NoCertificate(String),
    /// A certificate cannot be parsed or used.
    #[error("{origin}: {reason}")]
    Certificate {
        /// The file or other source.
        origin: String,
        reason: String,
    },
    /// A key cannot be parsed or used.
    #[error("{origin}: no private key that can be used: {reason}")]
    Key {
        /// The file or other source.
        origin: String,
        reason: String,
    },
    /// Certificate and key are valid, but do not match.
    #[error("{certificate} and {key} do not belong together")]
    Mismatch {
        /// The source of the certificate.
        certificate: String,
        /// The source of the key.
        key: String,
    },
    /// The TLS library does not accept the combination.
    #[error("these TLS settings cannot be used: {0}")]
    Settings(String),
}

/// A PEM text and its source.
#[derive(Clone, Copy)]
pub struct Pem<'a> {
    /// The path for error messages.
    pub origin: &'a str,
    /// Certificates or a key; other PEM sections are ignored.
    pub text: &'a [u8],
}

/// Shows nothing of the text, which may be a key.
impl fmt::Debug for Pem<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pem").field("origin", &self.origin).finish_non_exhaustive()
    }
}

/// The server's certificate and its key.
#[derive(Clone, Debug)]
pub struct ServerCertificate(Arc<dyn ResolvesServerCert>);

impl ServerCertificate {
    /// Parses a chain, the server's own certificate first, and its key.
    ///
    /// # Errors
    /// When one of them is invalid or they do not match.
    pub fn from_pem(chain: Pem<'_>, key: Pem<'_>) -> Result<Self, TlsError> {
        let certificates = certificates(chain)?;
        let fail = |reason: String| TlsError::Key { origin: key.origin.to_owned(), reason };
        let private = PrivateKeyDer::from_pem_slice(key.text).map_err(|error| fail(error.to_string()))?;
        let provider = rustls::crypto::ring::default_provider();
        let certified =
            CertifiedKey::from_der(certificates, private, &provider).map_err(|error| match error {
                rustls::Error::InconsistentKeys(_) => {
                    TlsError::Mismatch { certificate: chain.origin.to_owned(), key: key.origin.to_owned() }
                }
                rustls::Error::General(reason) => fail(reason),
                other => TlsError::Certificate { origin: chain.origin.to_owned(), reason: other.to_string() },
            })?;
        Ok(Self(Arc::new(SingleCertAndKey::from(certified))))
    }

    /// Uses a resolver at each handshake, for a certificate that is renewed elsewhere.
    #[must_use]
    pub fn resolved_by(resolver: Arc<dyn ResolvesServerCert>) -> Self {
        Self(resolver)
    }
}

/// Authorities for clients' certificates. The handshake also accepts clients without a certificate; without
/// any authority, no certificate is requested.
#[derive(Clone, Debug)]
pub struct Authorities {
    roots: RootCertStore,
    revoked: Vec<CertificateRevocationListDer<'static>>,
}

impl Default for Authorities {
    fn default() -> Self {
        Self { roots: RootCertStore::empty(), revoked: Vec::new() }
    }
}

impl Authorities {
    /// Parses all certificates of these texts.
    ///
    /// # Errors
    /// When a text has none, or one that cannot be an authority.
    pub fn from_pem(texts: &[Pem<'_>]) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        for text in texts {
            for certificate in certificates(*text)? {
                roots.add(certificate).map_err(|error| TlsError::Certificate {
                    origin: text.origin.to_owned(),
                    reason: error.to_string(),
                })?;
            }
        }
        Ok(Self { roots, revoked: Vec::new() })
    }

    /// Adds lists of revoked certificates. A certificate of an authority without a list is accepted.
    ///
    /// # Errors
    /// When a text has no list, or a malformed one.
    pub fn with_revocations(mut self, texts: &[Pem<'_>]) -> Result<Self, TlsError> {
        for text in texts {
            let fail = |reason| TlsError::Certificate { origin: text.origin.to_owned(), reason };
            let found: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(text.text).collect();
            let found = found.map_err(|error| fail(error.to_string()))?;
            if found.is_empty() {
                return Err(fail("no revocation list in PEM".into()));
            }
            self.revoked.extend(found);
        }
        Ok(self)
    }
}

fn certificates(pem: Pem<'_>) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.text).collect();
    let fail = |reason| TlsError::Certificate { origin: pem.origin.to_owned(), reason };
    let found = found.map_err(|error| fail(error.to_string()))?;
    if found.is_empty() {
        return Err(TlsError::NoCertificate(pem.origin.to_owned()));
    }
    Ok(found)
}

/// The TLS configuration in force.
#[derive(Debug)]
pub struct Tls {
    config: RwLock<Arc<ServerConfig>>,
    alpn: &'static [&'static str],
}

impl Tls {
    /// Builds a configuration with these ALPN protocols.
    ///
    /// # Errors
    /// When they cannot be used.
    pub fn new(
        certificate: ServerCertificate,
        authorities: Authorities,
        alpn: &'static [&'static str],
    ) -> Result<Self, TlsError> {
        Ok(Self { config: RwLock::new(config(certificate, authorities, alpn)?), alpn })
    }

    /// Replaces certificate and authorities for later handshakes; open connections are not affected.
    ///
    /// # Errors
    /// When they cannot be used: the previous ones stay in force.
    pub fn replace(&self, certificate: ServerCertificate, authorities: Authorities) -> Result<(), TlsError> {
        let config = config(certificate, authorities, self.alpn)?;
        *self.config.write() = config;
        Ok(())
    }

    /// Does the handshake of one connection, without locks held.
    ///
    /// # Errors
    /// As [`TlsContext::handshake`](crate::TlsContext::handshake).
    pub async fn handshake<I: AsyncRead + AsyncWrite + Unpin>(&self, io: I) -> io::Result<TlsStream<I>> {
        let hello = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), io).await?;
        hello.into_stream(self.config()).await
    }

    fn config(&self) -> Arc<ServerConfig> {
        self.config.read().clone()
    }
}

fn config(
    certificate: ServerCertificate,
    authorities: Authorities,
    alpn: &[&str],
) -> Result<Arc<ServerConfig>, TlsError> {
    let fail = |error: String| TlsError::Settings(error);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| fail(error.to_string()))?;
    let builder = if authorities.roots.is_empty() {
        builder.with_no_client_auth()
    } else {
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities.roots), provider)
            .with_crls(authorities.revoked)
            .allow_unknown_revocation_status()
            .allow_unauthenticated()
            .build()
            .map_err(|error| fail(error.to_string()))?;
        builder.with_client_cert_verifier(verifier)
    };
    let mut config = builder.with_cert_resolver(certificate.0);
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    // A resumed session would outlive the client's certificate and its authority.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};

    fn pair() -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["xds.test".to_owned()]).unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    fn pem<'a>(origin: &'a str, text: &'a str) -> Pem<'a> {
        Pem { origin, text: text.as_bytes() }
    }

    #[test]
    fn errors_name_the_file_and_show_no_key() {
        let ((chain, key), (_, other)) = (pair(), pair());
        let broken = chain.replace("MII", "AAA");
        for (chain, key, expected) in [
            ("", key.as_str(), "c.pem: no certificate in PEM"),
            (key.as_str(), key.as_str(), "c.pem: no certificate in PEM"),
            (broken.as_str(), key.as_str(), "c.pem: "),
            (chain.as_str(), "", "k.pem: no private key that can be used"),
            (chain.as_str(), chain.as_str(), "k.pem: no private key that can be used"),
            (chain.as_str(), other.as_str(), "c.pem and k.pem do not belong together"),
        ] {
            let error = ServerCertificate::from_pem(pem("c.pem", chain), pem("k.pem", key)).unwrap_err();
            assert!(error.to_string().starts_with(expected), "{error}");
            assert!(!error.to_string().contains(other.lines().nth(1).unwrap()), "{error}");
        }
        assert!(ServerCertificate::from_pem(pem("c.pem", &chain), pem("k.pem", &key)).is_ok());
    }

    #[test]
    fn authorities_are_certificates() {
        let (chain, key) = pair();
        assert!(Authorities::from_pem(&[pem("a", &chain), pem("b", &chain)]).is_ok());
        for wrong in ["", "nothing", key.as_str()] {
            let error = Authorities::from_pem(&[pem("a", &chain), pem("b", wrong)]).unwrap_err();
            assert_eq!(error.to_string(), "b: no certificate in PEM");
        }
    }

    #[test]
    fn what_cannot_be_used_replaces_nothing() {
        let (chain, key) = pair();
        let good = ServerCertificate::from_pem(pem("c", &chain), pem("k", &key)).unwrap();
        let tls = Tls::new(good.clone(), Authorities::default(), &["h2"]).unwrap();
        let before = tls.config();
        tls.replace(good, Authorities::from_pem(&[pem("a", &chain)]).unwrap()).unwrap();
        assert!(!Arc::ptr_eq(&before, &tls.config()), "handshakes use the new one");
    }
}
