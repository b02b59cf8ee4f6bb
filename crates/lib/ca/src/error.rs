//! Errors of the authority. No message holds a part of a key.

use std::time::Duration;

/// The key or the certificates of an authority cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The text has no certificate.
    #[error("{0}: no certificate in PEM")]
    NoCertificate(String),
    /// A certificate cannot be parsed, or is not one of an authority.
    #[error("{origin}: {reason}")]
    Certificate {
        /// The file or other source.
        origin: String,
        reason: String,
    },
    /// The key cannot be parsed, or is of another type.
    #[error(
        "{origin}: no private key of an authority (EC P-256 or P-384, RSA of 2048 to 4096 bits): {reason}"
    )]
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
    /// The certificate is not self-signed, and no root was given.
    #[error("{0} is not self-signed: the root certificate is missing")]
    NoRoot(String),
    /// Clients that trust the roots would reject what the authority signs.
    #[error("certificates signed by {origin} do not verify with its roots: {reason}")]
    Chain {
        /// The source of the authority's certificate.
        origin: String,
        reason: String,
    },
    /// Clients that use the revocation lists would reject what the authority signs.
    #[error("certificates of the authority do not verify with the revocation lists of {origin}: {reason}")]
    Revocation {
        /// The source of the lists.
        origin: String,
        reason: String,
    },
    /// A rotation cannot begin before the last one has ended.
    #[error("a rotation of the root is under way")]
    Rotating,
    /// A rotation would lose roots that cannot be joined with the new one.
    #[error("the roots in force have parts that are not usable certificates: correct or remove these first")]
    Roots,
    /// The overlap of a rotation ends beyond all times.
    #[error("the overlap of the rotation is too long")]
    Overlap,
    /// A new authority cannot be created.
    #[error("an authority cannot be created: {0}")]
    Create(String),
}

pub(crate) fn certificate_error(origin: &str, reason: String) -> AuthorityError {
    AuthorityError::Certificate { origin: origin.to_owned(), reason }
}

/// A certificate request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The text is longer than [`MAX_REQUEST_BYTES`](crate::MAX_REQUEST_BYTES).
    #[error("the certificate request has more than {0} bytes")]
    TooLong(usize),
    /// Not one PEM section of a certificate request.
    #[error("not a certificate request in PEM")]
    Pem,
    /// The DER is malformed, or is followed by other bytes.
    #[error("the certificate request cannot be parsed")]
    Malformed,
    /// The key is of another type or size.
    #[error("the key of the certificate request is neither EC P-256, EC P-384 nor RSA of 2048 to 8192 bits")]
    Key,
    /// The request is not signed with its own key.
    #[error("the signature of the certificate request does not match its key")]
    Signature,
    /// The request claims another identity than the proven one, or more.
    #[error(
        "others sign the certificate request as it is, so it must hold the SPIFFE ID of the client and \
         nothing else: {0}"
    )]
    Claims(&'static str),
}

/// A certificate that another authority issued is refused.
#[derive(Debug, thiserror::Error)]
pub enum IssuedError {
    /// The answer is empty.
    #[error("there is no certificate in the answer")]
    NoCertificate,
    /// The answer has one text only.
    #[error("there are no roots in the answer")]
    NoRoots,
    /// A certificate cannot be parsed.
    #[error("a certificate cannot be parsed: {0}")]
    Malformed(String),
    /// It would be of no use to the one who has the requested key.
    #[error("the certificate is for another key than the request's")]
    Key,
    /// Its names are not one SPIFFE id.
    #[error("the names of the certificate are not one SPIFFE id: {0}")]
    Names(String),
    /// It is for somebody else.
    #[error("the certificate is for {proven}, and not for {expected}")]
    Identity {
        expected: String,
        /// Identity in the certificate.
        proven: String,
    },
    /// It is valid for too long.
    #[error(
        "the certificate is valid for {} seconds, longer than the maximum of {} seconds",
        validity.as_secs(), longest.as_secs()
    )]
    Lifetime { validity: Duration, longest: Duration },
    /// Peers that trust the roots would reject it.
    #[error("the certificate does not verify with the roots: {0}")]
    Chain(String),
}

/// A SPIFFE bundle cannot be used. No message has a part of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    /// It is no JSON document with keys.
    #[error("it is no SPIFFE bundle (a JSON object with `keys`)")]
    Form,
    /// Too many keys are for certificates.
    #[error("it has {found} keys with the use x509-svid; at most {limit} are accepted")]
    TooMany { found: usize, limit: usize },
    /// `x5c` of a key is not one certificate.
    #[error("keys[{0}].x5c is not exactly one certificate")]
    Certificate(usize),
}

/// A certificate is not signed.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    #[error(transparent)]
    Request(#[from] RequestError),
    /// A validity was requested that is longer than allowed.
    #[error(
        "the requested validity of {asked} seconds is longer than the maximum of {} seconds",
        max.as_secs()
    )]
    Lifetime {
        /// Requested validity in seconds.
        asked: i64,
        max: Duration,
    },
    /// The authority itself is not valid at that time.
    #[error("the certificate of the authority has expired")]
    Expired,
    /// Error of the library.
    #[error("the certificate cannot be created: {0}")]
    Create(String),
}

impl From<rcgen::Error> for SignError {
    fn from(error: rcgen::Error) -> Self {
        Self::Create(error.to_string())
    }
}

impl From<time::error::ComponentRange> for SignError {
    fn from(error: time::error::ComponentRange) -> Self {
        Self::Create(error.to_string())
    }
}
