//! Revocation lists of an authority (`ca-crl.pem`).

use crate::AuthorityError;
use crate::error::certificate_error;
use pilotfish_identity::Pem;
use rustls::pki_types::CertificateRevocationListDer;
use rustls::pki_types::pem::PemObject;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use webpki::{BorrowedCertRevocationList, CertRevocationList, OwnedCertRevocationList};
use x509_parser::prelude::FromDer;
use x509_parser::revocation_list::CertificateRevocationList;

/// Tag of a list in PEM.
const TAG: &str = "X509 CRL";

/// Lists of revoked certificates, parsed, and in PEM for others.
pub(crate) struct Revocations {
    pub(crate) lists: Vec<CertRevocationList<'static>>,
    pem: String,
    /// The file or other source.
    pub(crate) origin: String,
    /// End of the list that ends first.
    pub(crate) ends: SystemTime,
}

impl fmt::Debug for Revocations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Revocations").field("lists", &self.lists.len()).finish_non_exhaustive()
    }
}

impl Revocations {
    /// Parses lists; their signatures are verified with a chain.
    ///
    /// # Errors
    /// When there is none, or one cannot be parsed.
    pub(crate) fn from_pem(text: Pem<'_>) -> Result<Self, AuthorityError> {
        let fail = |reason: String| certificate_error(text.origin, reason);
        let (mut lists, mut pem, mut ends) = (Vec::new(), String::new(), Vec::new());
        for list in CertificateRevocationListDer::pem_slice_iter(text.text) {
            let list = list.map_err(|error| fail(error.to_string()))?;
            let parsed = BorrowedCertRevocationList::from_der(&list).and_then(|list| list.to_owned());
            let parsed: OwnedCertRevocationList = parsed.map_err(|error| fail(error.to_string()))?;
            lists.push(parsed.into());
            ends.push(end(&list).map_err(fail)?);
            let section = pem::Pem::new(TAG, list.as_ref());
            let config = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
            pem.push_str(&pem::encode_config(&section, config));
        }
        let ends = ends.into_iter().min().ok_or_else(|| fail("no revocation list in PEM".into()))?;
        Ok(Self { lists, pem, origin: text.origin.to_owned(), ends })
    }

    /// Returns the lists in PEM.
    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }
}

/// Returns the end of a list.
fn end(list: &CertificateRevocationListDer<'_>) -> Result<SystemTime, String> {
    let (_, parsed) = CertificateRevocationList::from_der(list).map_err(|error| error.to_string())?;
    let end = parsed.next_update().ok_or("a list has no end")?.timestamp();
    Ok(UNIX_EPOCH + Duration::from_secs(u64::try_from(end).unwrap_or_default()))
}
