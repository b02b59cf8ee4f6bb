//! Authority in force: with its key, or with its roots only.

use anyhow::{Context, Result};
use pilotfish_ca::{Authority, AuthorityError, CertificateInfo, ExternalAuthority, SignError};
use rustls::sign::CertifiedKey;
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

/// The authority that signs.
#[derive(Debug)]
pub(super) enum Issuer {
    /// This process has the key.
    Own(Box<Authority>),
    /// A signer of the cluster has it.
    External(ExternalAuthority),
}

impl Issuer {
    /// Returns the roots in PEM.
    pub(super) fn roots_pem(&self) -> String {
        match self {
            Self::Own(authority) => authority.roots_pem(),
            Self::External(authority) => authority.roots_pem(),
        }
    }

    /// Returns the lists of revoked certificates in PEM, if there are any.
    pub(super) fn revocations_pem(&self) -> Option<&str> {
        match self {
            Self::Own(authority) => authority.revocations_pem(),
            Self::External(_) => None,
        }
    }

    /// Checks that the lists of revoked certificates have not expired.
    ///
    /// # Errors
    /// When one has expired.
    pub(super) fn check_revocations(&self, now: SystemTime) -> Result<(), AuthorityError> {
        match self {
            Self::Own(authority) => authority.check_revocations(now),
            Self::External(_) => Ok(()),
        }
    }

    /// Describes the certificates.
    ///
    /// # Errors
    /// When one cannot be parsed.
    pub(super) fn certificates(&self) -> Result<Vec<CertificateInfo>, String> {
        match self {
            Self::Own(authority) => authority.certificates(),
            Self::External(authority) => authority.certificates(),
        }
    }

    /// Returns the expiry of the root, and of the certificate that signs, as far as it is known.
    pub(super) fn expiry(&self) -> (SystemTime, SystemTime) {
        match self {
            Self::Own(authority) => (authority.root_expires(), authority.expires()),
            Self::External(authority) => (authority.expires(), authority.expires()),
        }
    }

    /// True if certificates of the other are those of this one, by their chain.
    pub(super) fn has_chain_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Own(authority), Self::Own(other)) => authority.has_chain_of(other),
            // The certificate of an external signer is not known, only its roots.
            (Self::External(authority), Self::External(other)) => authority.roots_pem() == other.roots_pem(),
            _ => false,
        }
    }

    /// True if what one has signed may be valid with the roots of the other.
    pub(super) fn shares_key_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Own(authority), Self::Own(other)) => authority.shares_key_with(other),
            // The keys of an external signer are not known.
            _ => true,
        }
    }

    /// Returns the authority with the key.
    ///
    /// # Errors
    /// When others have the key.
    pub(super) fn own(&self) -> Result<&Authority, SignError> {
        match self {
            Self::Own(authority) => Ok(authority),
            Self::External(_) => Err(SignError::Create("the key is with an external signer".into())),
        }
    }

    /// Creates a certificate for this process; `None` if others sign, who do not know its names.
    ///
    /// # Errors
    /// When it cannot be created.
    pub(super) fn server(
        &self,
        names: &BTreeSet<String>,
        lifetime: Duration,
        now: SystemTime,
    ) -> Result<Option<CertifiedKey>> {
        match self {
            Self::Own(authority) => {
                let made = authority.server(names, lifetime, now);
                made.map(Some).context("the certificate of this process")
            }
            Self::External(_) => Ok(None),
        }
    }
}
