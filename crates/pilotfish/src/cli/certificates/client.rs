//! Client of Istio's certificate service.

use crate::serve::ca::messages::{CREATE_CERTIFICATE, IstioCertificateRequest, IstioCertificateResponse};
use anyhow::{Context, Result};
use http::uri::PathAndQuery;
use pilotfish_ca::{IssuedCertificate, WorkloadKey, first_expiry};
use pilotfish_connect::{Connector, Server, TlsOptions, grpc_channel};
use pilotfish_identity::WorkloadId;
use pilotfish_runtime::{Secret, SecretFile, error_chain, one_line};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

/// Timeout of a request. An authority that others sign for needs some seconds.
const TIMEOUT: Duration = Duration::from_secs(45);
/// Size limit of a response in bytes.
const LARGEST: usize = 1 << 20;
/// Size limit of a certificate file in bytes.
const FILE: u64 = 1 << 20;

/// Files that prove the identity of the workload.
#[derive(Clone, Debug)]
pub(super) struct Proof {
    pub(super) token: Option<PathBuf>,
    /// Certificate and key.
    pub(super) certificate: Option<(PathBuf, PathBuf)>,
}

/// Servers, and the certificate that is requested from them.
#[derive(Clone, Debug)]
pub(super) struct AuthorityClient {
    pub(super) servers: Vec<Server>,
    pub(super) ca: Option<PathBuf>,
    pub(super) proof: Proof,
    pub(super) cluster: String,
    pub(super) identity: Option<String>,
    /// Requested validity in seconds; 0 for the server's default.
    pub(super) seconds: i64,
}

/// A key with its certificate.
pub(super) type Obtained = (WorkloadKey, IssuedCertificate);

/// No certificate was obtained.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) reason: String,
    /// True if the same request fails again, until somebody changes a file, a flag or a right.
    pub(super) is_permanent: bool,
    /// True if another proof of the identity may succeed: the server refuses this one, or ends the connection
    /// before it answers. The alert of a refused certificate may be lost.
    may_be_of_proof: bool,
}

impl Failure {
    pub(super) fn permanent(error: &anyhow::Error) -> Self {
        Self { is_permanent: true, ..Self::later(format!("{error:#}")) }
    }

    fn later(reason: String) -> Self {
        Self { reason, is_permanent: false, may_be_of_proof: false }
    }

    /// The certificate and then the token did not succeed. It is permanent only if both are: the token may
    /// have been for the first request only, and another server may accept the certificate.
    fn of_both(certificate: &Self, token: Self) -> Self {
        let is_permanent = certificate.is_permanent && token.is_permanent;
        let reason = match certificate.reason == token.reason {
            true => token.reason,
            false => format!("{}; with the certificate: {}", token.reason, certificate.reason),
        };
        Self { reason, is_permanent, ..token }
    }
}

impl Proof {
    /// Returns the certificate, if it counts, or else the token.
    fn chosen(&self, now: SystemTime) -> (Option<(PathBuf, PathBuf)>, Option<&PathBuf>) {
        // Servers refuse the handshake of a client with an expired certificate.
        let is_usable = |path: &PathBuf| is_valid(path, now) || self.token.is_none();
        let certificate = self.certificate.clone().filter(|(path, _)| is_usable(path));
        let token = if certificate.is_some() { None } else { self.token.as_ref() };
        (certificate, token)
    }
}

/// True if the file has a certificate that has not expired.
fn is_valid(path: &Path, now: SystemTime) -> bool {
    let mut file = SecretFile::new(path).with_limit(FILE);
    let read = file.read().ok().and_then(|_| file.content()).map(Secret::as_bytes);
    read.and_then(|text| first_expiry(text).ok()).is_some_and(|end| end > now)
}

impl AuthorityClient {
    /// Returns the requested identity.
    pub(super) fn identity(&self) -> Option<WorkloadId<'_>> {
        self.identity.as_deref().and_then(WorkloadId::parse)
    }

    /// Creates a key and obtains a certificate for it from the first server that answers.
    ///
    /// # Errors
    /// When no server answers, or one refuses or returns a certificate that cannot be used.
    pub(super) async fn obtain(&self) -> Result<Obtained, Failure> {
        let key = WorkloadKey::create().map_err(|error| Failure::permanent(&error.into()))?;
        let request = key.request(self.identity()).map_err(|error| Failure::permanent(&error.into()))?;
        let mut failures = Vec::new();
        for server in &self.servers {
            match self.create(server, &request).await {
                Ok(chain) => {
                    let issued = key.accept(&chain, self.identity(), SystemTime::now());
                    let failed = |error| Failure::later(format!("{server}: {error}"));
                    return issued.map(|issued| (key, issued)).map_err(failed);
                }
                Err(failure) if failure.is_permanent => return Err(failure),
                Err(failure) => failures.push(failure.reason),
            }
        }
        Err(Failure::later(failures.join("; ")))
    }

    /// Requests a certificate from a server. If that does not accept the own certificate, which may be
    /// revoked, the token counts.
    async fn create(&self, server: &Server, csr: &str) -> Result<Vec<String>, Failure> {
        let (certificate, token) = self.proof.chosen(SystemTime::now());
        let further = self.proof.token.as_ref().filter(|_| certificate.is_some());
        match (self.call(server, csr, certificate, token).await, further) {
            (Err(refused), Some(token)) if refused.may_be_of_proof => {
                let called = self.call(server, csr, None, Some(token)).await;
                if called.is_ok() {
                    let reason = &refused.reason;
                    tracing::warn!(reason, "the certificate was not accepted; the token proved the identity");
                }
                called.map_err(|failure| Failure::of_both(&refused, failure))
            }
            (called, _) => called,
        }
    }

    async fn call(
        &self,
        server: &Server,
        csr: &str,
        certificate: Option<(PathBuf, PathBuf)>,
        token: Option<&PathBuf>,
    ) -> Result<Vec<String>, Failure> {
        let request = self.request(csr, token).map_err(|error| Failure::permanent(&error))?;
        // New options for each request, so that the newest files are read.
        let tls = TlsOptions::new(self.ca.clone(), certificate, None).with_alpn(&["h2"]);
        let channel = grpc_channel(Connector::new(Some(tls)), server)
            .map_err(|error| Failure::permanent(&error.into()))?;
        let called = tokio::time::timeout(TIMEOUT, async {
            let mut client = Grpc::new(channel).max_decoding_message_size(LARGEST);
            client.ready().await.map_err(|error| Status::from_error(error.into()))?;
            let path = PathAndQuery::from_static(CREATE_CERTIFICATE);
            let codec = ProstCodec::<IstioCertificateRequest, IstioCertificateResponse>::default();
            client.unary(request, path, codec).await
        });
        match called.await {
            Ok(Ok(response)) => Ok(response.into_inner().cert_chain),
            Ok(Err(status)) => Err(failure(server, &status)),
            Err(_) => Err(Failure::later(format!("{server}: no answer within {} s", TIMEOUT.as_secs()))),
        }
    }

    fn request(&self, csr: &str, token: Option<&PathBuf>) -> Result<Request<IstioCertificateRequest>> {
        let (csr, validity_duration) = (csr.to_owned(), self.seconds);
        let mut request = Request::new(IstioCertificateRequest { csr, validity_duration, metadata: None });
        let cluster = self.cluster.parse().context("--cluster-id: not the name of a cluster")?;
        request.metadata_mut().insert("clusterid", cluster);
        if let Some(path) = token {
            request.metadata_mut().insert("authorization", bearer(path)?);
        }
        Ok(request)
    }
}

/// Reads the token of a file as the value of a header.
fn bearer(path: &Path) -> Result<MetadataValue<Ascii>> {
    let mut file = SecretFile::new(path);
    file.read().context("--xds-token-file")?;
    let token = file.content().and_then(|content| content.as_str()).map(str::trim);
    let value = token.and_then(|token| format!("Bearer {token}").parse().ok());
    let mut value: MetadataValue<Ascii> =
        value.with_context(|| format!("--xds-token-file {}: the content is no token", path.display()))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Returns the failure of a status.
fn failure(server: &Server, status: &Status) -> Failure {
    let is_permanent = matches!(
        status.code(),
        Code::Unauthenticated | Code::PermissionDenied | Code::InvalidArgument | Code::Unimplemented
    );
    let reason = match (status.code(), std::error::Error::source(status)) {
        (Code::Unimplemented, _) => "it signs no certificates (serve without --ca)".to_owned(),
        (code, _) if is_permanent => format!("refused: {} ({code:?})", one_line(status.message())),
        (_, Some(cause)) => one_line(&error_chain(cause)),
        (_, None) => one_line(status.message()),
    };
    let is_refused = matches!(status.code(), Code::Unauthenticated | Code::PermissionDenied);
    let may_be_of_proof = is_refused || std::error::Error::source(status).is_some();
    Failure { reason: format!("{server}: {reason}"), is_permanent, may_be_of_proof }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_testkit::real::Authority;

    #[test]
    fn certificate_counts_while_it_is_valid_and_else_the_token() {
        let folder = tempfile::tempdir().unwrap();
        let (chain, key, token) = (folder.path().join("c"), folder.path().join("k"), folder.path().join("t"));
        let authority = Authority::new();
        let pair = Some((chain.clone(), key));
        let both = Proof { token: Some(token.clone()), certificate: pair.clone() };
        let only = Proof { token: None, certificate: pair.clone() };
        let now = SystemTime::now();
        let id = "spiffe://cluster.local/ns/shop/sa/web";
        for (text, is_chosen) in [
            (None, false),
            (Some("no certificate".to_owned()), false),
            (Some(authority.expired(id).0), false),
            (Some(authority.workload(id).0), true),
        ] {
            if let Some(text) = text {
                std::fs::write(&chain, text).unwrap();
            }
            let expected = if is_chosen { (pair.clone(), None) } else { (None, Some(&token)) };
            assert_eq!(both.chosen(now), expected);
            assert_eq!(only.chosen(now), (pair.clone(), None), "there is nothing else to show");
        }
    }

    #[test]
    fn content_of_a_token_file_is_checked_and_never_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        for (text, expected) in [
            (None, "cannot be read"),
            (Some(""), "is empty"),
            (Some("secret\u{7}text"), "the content is no token"),
        ] {
            if let Some(text) = text {
                std::fs::write(&path, text).unwrap();
            }
            let error = format!("{:#}", bearer(&path).unwrap_err());
            assert!(error.contains("--xds-token-file") && error.contains(expected), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
        std::fs::write(&path, "abc\n").unwrap();
        let value = bearer(&path).unwrap();
        assert_eq!(value, "Bearer abc");
        assert!(!format!("{value:?}").contains("abc"));
    }

    #[test]
    fn failures_of_both_proofs_name_both_reasons_once() {
        let of = |reason: &str, is_permanent| Failure {
            is_permanent,
            may_be_of_proof: true,
            ..Failure::later(reason.to_owned())
        };
        for (certificate, token, is_permanent, reason) in [
            (of("revoked", false), of("expired", true), false, "expired; with the certificate: revoked"),
            (of("foreign", true), of("expired", true), true, "expired; with the certificate: foreign"),
            (of("no connection", false), of("no connection", false), false, "no connection"),
        ] {
            let both = Failure::of_both(&certificate, token);
            assert_eq!((both.is_permanent, &*both.reason), (is_permanent, reason));
        }
    }

    #[test]
    fn refusals_are_permanent_and_outages_are_not() {
        let server = Server { host: "a".into(), port: 1 };
        let broken = Status::from_error(Box::new(std::io::Error::other("received fatal alert")));
        for (status, is_permanent, may_be_of_proof, expected) in [
            (Status::unauthenticated("no proof"), true, true, "a:1: refused: no proof (Unauthenticated)"),
            (Status::permission_denied("x"), true, true, "a:1: refused: x (PermissionDenied)"),
            (Status::unimplemented("?"), true, false, "a:1: it signs no certificates (serve without --ca)"),
            (Status::unavailable("starting"), false, false, "a:1: starting"),
            (Status::resource_exhausted("too many"), false, false, "a:1: too many"),
            (broken, false, true, "a:1: received fatal alert"),
        ] {
            let failure = failure(&server, &status);
            let found = (failure.is_permanent, failure.may_be_of_proof, &*failure.reason);
            assert_eq!(found, (is_permanent, may_be_of_proof, expected));
        }
    }
}
