//! TLS client configuration: options, and a configuration that follows its files.

use parking_lot::Mutex;
use pilotfish_runtime::{OptionSpec, OptionValues, SecretFile, SecretFileError};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// TLS options, common to all addresses with TLS.
pub const TLS_OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "caFile",
        value: "FILE",
        about: "certificates that sign the server's, in PEM [default: those of the system]",
    },
    OptionSpec { name: "certFile", value: "FILE", about: "the client's certificate, in PEM; needs keyFile" },
    OptionSpec { name: "keyFile", value: "FILE", about: "the key of certFile, in PEM" },
    OptionSpec {
        name: "serverName",
        value: "NAME",
        about: "the name that the server's certificate has to have [default: the host of the address]",
    },
];

/// Minimum time between two reads of the files.
const REREAD: Duration = Duration::from_secs(5);
/// Maximum size of a certificate file in bytes.
const LIMIT: u64 = 1 << 20;

/// Error of the TLS configuration.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] SecretFileError),
    /// A file has no such PEM section.
    #[error("{0} has no {1} in PEM format")]
    Pem(PathBuf, &'static str),
    /// The system has no certificate authorities.
    #[error("the system has no CA certificates; set caFile")]
    NoRoots,
    /// Certificate and key do not match, or are of an unsupported kind.
    #[error("certFile and keyFile cannot be used")]
    Identity(#[source] rustls::Error),
    /// The server name is invalid.
    #[error("{0:?} is not a valid server name")]
    Name(String),
}

/// The values of [`TLS_OPTIONS`].
#[derive(Debug)]
pub struct TlsOptions {
    ca: Option<PathBuf>,
    identity: Option<(PathBuf, PathBuf)>,
    server_name: Option<String>,
    alpn: Vec<Vec<u8>>,
    loaded: Mutex<Option<Loaded>>,
}

#[derive(Debug)]
struct Loaded {
    at: Instant,
    texts: Vec<Option<Arc<[u8]>>>,
    config: Arc<ClientConfig>,
}

impl TlsOptions {
    /// Takes its options. Returns `None` for connections without TLS.
    pub fn take(options: &mut OptionValues, is_tls: bool, mistakes: &mut Vec<String>) -> Option<Self> {
        let [ca, cert, key, server_name] =
            ["caFile", "certFile", "keyFile", "serverName"].map(|name| options.take(name));
        if !is_tls {
            if [&ca, &cert, &key, &server_name].into_iter().any(Option::is_some) {
                mistakes.push(
                    "caFile, certFile, keyFile and serverName need TLS: begin the address with https://, or \
                     with this registry's scheme for TLS"
                        .to_owned(),
                );
            }
            return None;
        }
        if cert.is_some() != key.is_some() {
            mistakes.push("certFile and keyFile go together".to_owned());
        }
        let identity = cert.zip(key).map(|(cert, key)| (cert.into(), key.into()));
        Some(Self {
            ca: ca.map(PathBuf::from),
            identity,
            server_name,
            alpn: Vec::new(),
            loaded: Mutex::new(None),
        })
    }

    /// Authorities, certificate with key, and the name of the server, by file; without them those of the
    /// system, none, and the host of the address.
    #[must_use]
    pub fn new(
        ca: Option<PathBuf>,
        identity: Option<(PathBuf, PathBuf)>,
        server_name: Option<String>,
    ) -> Self {
        Self { ca, identity, server_name, alpn: Vec::new(), loaded: Mutex::new(None) }
    }

    /// Sets the offered ALPN protocols, in order of preference.
    #[must_use]
    pub fn with_alpn(self, protocols: &[&str]) -> Self {
        Self { alpn: protocols.iter().map(|name| name.as_bytes().to_vec()).collect(), ..self }
    }

    /// The name that the server's certificate must have.
    pub(crate) fn server_name(&self, host: &str) -> Result<ServerName<'static>, TlsError> {
        let name = self.server_name.as_deref().unwrap_or(host);
        ServerName::try_from(name.to_owned()).map_err(|_| TlsError::Name(name.to_owned()))
    }

    /// Returns the current configuration; reads files again when the last read is old. Blocks.
    pub(crate) fn config(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let now = Instant::now();
        let mut loaded = self.loaded.lock();
        if let Some(known) = loaded.as_ref().filter(|known| now.saturating_duration_since(known.at) < REREAD)
        {
            return Ok(known.config.clone());
        }
        let texts = self.texts();
        let texts = match (texts, loaded.as_mut()) {
            (Ok(texts), Some(known)) if known.texts == texts => {
                known.at = now;
                return Ok(known.config.clone());
            }
            (Ok(texts), _) => texts,
            (Err(error), Some(known)) => return keep(known, now, &error),
            (Err(error), None) => return Err(error),
        };
        match (self.build(&texts), loaded.as_mut()) {
            (Ok(config), _) => {
                let config = Arc::new(config);
                *loaded = Some(Loaded { at: now, texts, config: config.clone() });
                Ok(config)
            }
            (Err(error), Some(known)) => keep(known, now, &error),
            (Err(error), None) => Err(error),
        }
    }

    /// Reads the contents of caFile, certFile and keyFile.
    fn texts(&self) -> Result<Vec<Option<Arc<[u8]>>>, TlsError> {
        let identity = self.identity.as_ref();
        let files = [self.ca.as_ref(), identity.map(|(cert, _)| cert), identity.map(|(_, key)| key)];
        files.into_iter().map(|file| file.map(read).transpose()).collect()
    }

    fn build(&self, texts: &[Option<Arc<[u8]>>]) -> Result<ClientConfig, TlsError> {
        let text = |at: usize| texts.get(at).cloned().flatten();
        let roots = match (&self.ca, text(0)) {
            (Some(path), Some(text)) => roots_of(path, &text)?,
            _ => system_roots()?,
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(TlsError::Identity)?.with_root_certificates(roots);
        let mut config = match (&self.identity, text(1), text(2)) {
            (Some((cert_path, key_path)), Some(cert), Some(key)) => {
                let chain = certificates(cert_path, &cert)?;
                let key = PrivateKeyDer::from_pem_slice(&key)
                    .map_err(|_| TlsError::Pem(key_path.clone(), "private key"))?;
                builder.with_client_auth_cert(chain, key).map_err(TlsError::Identity)?
            }
            _ => builder.with_no_client_auth(),
        };
        config.alpn_protocols.clone_from(&self.alpn);
        Ok(config)
    }
}

/// Keeps the working configuration when its files cannot be used.
fn keep(known: &mut Loaded, now: Instant, error: &TlsError) -> Result<Arc<ClientConfig>, TlsError> {
    tracing::warn!(
        %error,
        "cannot use the TLS files; the configuration from the last good ones stays in use"
    );
    known.at = now;
    Ok(known.config.clone())
}

fn read(path: &PathBuf) -> Result<Arc<[u8]>, TlsError> {
    let mut file = SecretFile::new(path).with_limit(LIMIT).with_line_break();
    file.read()?;
    Ok(file.content().map_or_else(Arc::default, |content| content.as_bytes().into()))
}

fn certificates(path: &std::path::Path, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    found.ok().filter(|found| !found.is_empty()).ok_or_else(|| TlsError::Pem(path.to_owned(), "certificate"))
}

fn roots_of(path: &std::path::Path, text: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(certificates(path, text)?);
    if added == 0 { Err(TlsError::Pem(path.to_owned(), "certificate of an authority")) } else { Ok(roots) }
}

fn system_roots() -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if added == 0 { Err(TlsError::NoRoots) } else { Ok(roots) }
}
