//! SPIFFE identities of certificates.

use crate::authentication::{Authenticated, Proof};
use crate::validity;
use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// The method of clients that prove who they are by a certificate, beside the [`Authenticator::name`](crate::Authenticator::name)s.
pub const CERTIFICATE: &str = "certificate";

/// The identities of one certificate that are taken; more are left out.
const MAX_IDENTITIES: usize = 16;
/// The longest identity, in bytes: the limit of the SPIFFE standard.
const MAX_IDENTITY_BYTES: usize = 2048;

/// The SPIFFE identities of a client: the URI names of its own certificate, which is the first of the chain that the handshake
/// verified.
///
/// # Errors
/// The reason why there are none.
pub fn spiffe_ids(chain: Option<&[CertificateDer<'_>]>) -> Authenticated {
    let Some(own) = chain.and_then(<[_]>::first) else { return Err("none was presented".into()) };
    let certificate = EndEntityCert::try_from(own).map_err(|error| error.to_string())?;
    let names = certificate.valid_uri_names();
    let identities = names.filter(|name| name.starts_with("spiffe://") && name.len() <= MAX_IDENTITY_BYTES);
    let identities: Vec<String> = identities.take(MAX_IDENTITIES).map(str::to_owned).collect();
    if identities.is_empty() {
        return Err("it has no SPIFFE identity".into());
    }
    Ok(Proof { identities, cluster: None, until: validity::end(own) })
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
    fn identities_are_the_spiffe_names_of_the_first_certificate() {
        const WEB: &str = "spiffe://cluster.local/ns/shop/sa/web";
        let long = format!("spiffe://{}", "a".repeat(MAX_IDENTITY_BYTES));
        for (names, identities) in [
            (&[WEB][..], Ok(vec![WEB.to_owned()])),
            (&["a.test", "https://a.test", WEB], Ok(vec![WEB.to_owned()])),
            (&["a.test"], Err("it has no SPIFFE identity".to_owned())),
            (&[long.as_str()], Err("it has no SPIFFE identity".to_owned())),
        ] {
            let chain = [certificate(names), certificate(&["spiffe://cluster.local/ns/other/sa/x"])];
            assert_eq!(spiffe_ids(Some(&chain)).map(|proof| proof.identities), identities, "{names:?}");
        }
        assert_eq!(spiffe_ids(None), Err("none was presented".to_owned()));
        assert_eq!(spiffe_ids(Some(&[])), Err("none was presented".to_owned()));
    }
}
