//! Certificates and keys from Secrets and ConfigMaps.

use super::SecretRef;
use super::reference::without_ca_suffix;
use crate::credentials::{self, Authorities, KeyPair, value};
use crate::engine::{Cx, reference};
use pilotfish_config::kubernetes::{ConfigMap, Secret};
use pilotfish_model::{Origin, Typed};
use pilotfish_proto::envoy::config::core::v3::{DataSource, data_source::Specifier};
use pilotfish_proto::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, Secret as Message, TlsCertificate, secret::Type,
};

/// A secret and the object that it is from.
pub(super) struct FoundSecret {
    pub(super) secret: Message,
    pub(super) provenance: Vec<Origin>,
}

/// Returns the secret with a name, if its Secret may be read; `None` if it does not exist or has no
/// certificate.
pub(super) fn find(
    cx: &Cx<'_>,
    resource: &str,
    wanted: &SecretRef,
    may_read: impl Fn(&Typed<Secret>) -> bool,
) -> Option<FoundSecret> {
    let (content, object) = match wanted {
        SecretRef::Secret { namespace, name, is_ca }
        | SecretRef::GatewaySecret { namespace, name, is_ca } => {
            // A CA certificate is in the Secret of that name, or else in the one with the key.
            let names = [Some(name.as_str()), is_ca.then(|| without_ca_suffix(name))];
            let secret = names
                .into_iter()
                .flatten()
                .find_map(|name| credentials::secret(cx, namespace, name).filter(&may_read))?;
            let content = if *is_ca {
                Type::ValidationContext(validation(Authorities::of_secret(&secret)?))
            } else {
                Type::TlsCertificate(certificate(&secret)?)
            };
            (content, reference(&secret))
        }
        SecretRef::ConfigMap { namespace, name } => {
            let map = cx.object::<ConfigMap>(namespace, name)?;
            (Type::ValidationContext(validation(Authorities::of_config_map(&map)?)), reference(&map))
        }
    };
    let secret = Message { name: resource.to_owned(), r#type: Some(content) };
    Some(FoundSecret { secret, provenance: vec![object] })
}

fn certificate(secret: &Secret) -> Option<TlsCertificate> {
    let KeyPair { chain, key } = KeyPair::of(secret)?;
    Some(TlsCertificate {
        certificate_chain: inline(chain),
        private_key: inline(key),
        ocsp_staple: value(secret, "tls.ocsp-staple").and_then(inline),
        ..Default::default()
    })
}

fn validation(found: Authorities<'_>) -> CertificateValidationContext {
    CertificateValidationContext {
        trusted_ca: inline(found.certificates),
        crl: found.revoked.and_then(inline),
        ..Default::default()
    }
}

fn inline(bytes: &[u8]) -> Option<DataSource> {
    Some(DataSource { specifier: Some(Specifier::InlineBytes(bytes.to_vec())), ..Default::default() })
}
