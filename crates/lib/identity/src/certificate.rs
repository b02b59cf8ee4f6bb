//! SPIFFE identities of certificates.

use crate::authentication::{Authenticated, Proof};
use crate::{der, spiffe, validity};
use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// Method name of clients identified by a certificate, as [`Authenticator::name`](crate::Authenticator::name)
/// of the other methods.
pub const CERTIFICATE: &str = "certificate";

/// Returns the SPIFFE identity of a client: the single URI name of its own certificate, the first in the
/// verified chain. A certificate with several URIs is rejected (X509-SVID, section 2): implementations could
/// disagree on the one to use.
///
/// # Errors
/// With the reason for rejecting the certificate.
pub fn spiffe_ids(chain: Option<&[CertificateDer<'_>]>) -> Authenticated {
    let Some(own) = chain.and_then(<[_]>::first) else { return Err("none was presented".into()) };
    // Rejects invalid certificates and duplicate extensions.
    EndEntityCert::try_from(own).map_err(|error| error.to_string())?;
    let uris = der::uris(own).ok_or("its alternative names cannot be read")?;
    let uri = match *uris.as_slice() {
        [] => return Err("it has no SPIFFE identity".into()),
        [uri] => uri,
        _ => return Err(format!("it has {} URI names: a SPIFFE certificate has exactly one", uris.len())),
    };
    let refused = |reason: &str| format!("its URI name is no SPIFFE id: {reason}");
    let id = std::str::from_utf8(uri).map_err(|error| refused(&error.to_string()))?;
    spiffe::parts(id).map_err(refused)?;
    Ok(Proof { identities: vec![id.to_owned()], cluster: None, until: validity::end(own) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, SanType};

    fn certificate(names: &[&str]) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.subject_alt_names = names
            .iter()
            .map(|name| match name.contains(':') {
                true => SanType::URI((*name).try_into().unwrap()),
                false => SanType::DnsName((*name).try_into().unwrap()),
            })
            .collect();
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn the_identity_is_the_only_uri_of_the_first_certificate() {
        const WEB: &str = "spiffe://cluster.local/ns/shop/sa/web";
        const CART: &str = "spiffe://cluster.local/ns/shop/sa/cart";
        let none = || Err("it has no SPIFFE identity".to_owned());
        let several = |n| Err(format!("it has {n} URI names: a SPIFFE certificate has exactly one"));
        let invalid = |reason: &str| Err(format!("its URI name is no SPIFFE id: {reason}"));
        for (names, identities) in [
            (&[WEB][..], Ok(vec![WEB.to_owned()])),
            (&["a.test", WEB, "b.test"], Ok(vec![WEB.to_owned()])),
            (&["a.test"], none()),
            (&[], none()),
            (&[WEB, CART], several(2)),
            (&[WEB, WEB], several(2)),
            (&["https://a.test/", WEB], several(2)),
            (&[WEB, "urn:x:y", CART], several(3)),
            (&["https://a.test/"], invalid("it does not begin with spiffe://")),
            (
                &["spiffe://cluster.local/ns/shop/sa/web?x=y"],
                invalid("a part of its path is not of letters, digits, dots, dashes and underscores"),
            ),
        ] {
            let chain = [certificate(names), certificate(&["spiffe://cluster.local/ns/other/sa/x"])];
            assert_eq!(spiffe_ids(Some(&chain)).map(|proof| proof.identities), identities, "{names:?}");
        }
        assert_eq!(spiffe_ids(None), Err("none was presented".to_owned()));
        assert_eq!(spiffe_ids(Some(&[])), Err("none was presented".to_owned()));
    }

    #[test]
    fn a_uri_that_is_no_text_is_one_more_uri() {
        const WEB: &str = "spiffe://cluster.local/ns/shop/sa/web";
        let mut broken = certificate(&[WEB, "urn:aaaa"]).to_vec();
        let at = broken.windows(8).position(|bytes| bytes == b"urn:aaaa").unwrap();
        broken[at] = 0xff;
        let refused = spiffe_ids(Some(&[broken.into()])).unwrap_err();
        assert!(refused.starts_with("it has 2 URI names"), "{refused}");
    }
}
