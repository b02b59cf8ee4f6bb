//! The certificate of a TLS server that the authority signed, and its replacements.

use parking_lot::RwLock;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::fmt;
use std::sync::Arc;

/// The certificate in force; a handshake uses the one at its start.
pub struct Serving(RwLock<Arc<CertifiedKey>>);

/// Shows nothing of the key.
impl fmt::Debug for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serving").finish_non_exhaustive()
    }
}

impl Serving {
    #[must_use]
    pub fn new(certificate: CertifiedKey) -> Self {
        Self(RwLock::new(Arc::new(certificate)))
    }

    /// Returns the certificate in force.
    #[must_use]
    pub fn current(&self) -> Arc<CertifiedKey> {
        self.0.read().clone()
    }

    /// Replaces the certificate for later handshakes.
    pub fn replace(&self, certificate: CertifiedKey) {
        *self.0.write() = Arc::new(certificate);
    }
}

impl ResolvesServerCert for Serving {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}
