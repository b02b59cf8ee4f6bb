//! Certificates and keys out of Secrets and ConfigMaps: of the type `kubernetes.io/tls`, or with the keys that Istio documents.

use super::SecretRef;
use super::reference::without_ca_suffix;
use crate::engine::{Cx, reference};
use pilotfish_config::kubernetes::{ConfigMap, Secret};
use pilotfish_model::{Namespace, Origin};
use pilotfish_proto::envoy::config::core::v3::{DataSource, data_source::Specifier};
use pilotfish_proto::envoy::extensions::transport_sockets::tls::v3::{
    CertificateValidationContext, Secret as Message, TlsCertificate, secret::Type,
};

/// A secret and the object that it is from.
pub(super) struct FoundSecret {
    pub(super) secret: Message,
    pub(super) provenance: Vec<Origin>,
}

/// What a name leads to; `None` when it is not there or has no certificate.
pub(super) fn find(cx: &Cx<'_>, resource: &str, wanted: &SecretRef) -> Option<FoundSecret> {
    let (content, object) = match wanted {
        SecretRef::Secret { namespace, name, is_ca }
        | SecretRef::GatewaySecret { namespace, name, is_ca } => {
            if *is_ca {
                authority(cx, namespace, name)?
            } else {
                let secret = cx.object::<Secret>(namespace, name)?;
                (Type::TlsCertificate(certificate(&secret)?), reference(&secret))
            }
        }
        SecretRef::ConfigMap { namespace, name } => {
            let map = cx.object::<ConfigMap>(namespace, name)?;
            (Type::ValidationContext(validation(map.authorities()?.as_bytes(), None)), reference(&map))
        }
    };
    let secret = Message { name: resource.to_owned(), r#type: Some(content) };
    Some(FoundSecret { secret, provenance: vec![object] })
}

/// A CA's certificate: out of the Secret of that name, else out of the one that holds the key as well.
fn authority(cx: &Cx<'_>, namespace: &Namespace, name: &str) -> Option<(Type, Origin)> {
    let own = cx.object::<Secret>(namespace, name);
    let secret = own.or_else(|| cx.object::<Secret>(namespace, without_ca_suffix(name)))?;
    let (ca, crl) = [("cacert", "crl"), ("ca.crt", "ca.crl")]
        .into_iter()
        .find_map(|(ca, crl)| Some((value(&secret, ca)?, value(&secret, crl))))?;
    Some((Type::ValidationContext(validation(ca, crl)), reference(&secret)))
}

fn certificate(secret: &Secret) -> Option<TlsCertificate> {
    let pairs = [("cert", "key"), ("tls.crt", "tls.key")];
    let (chain, key) =
        pairs.into_iter().find_map(|(chain, key)| Some((value(secret, chain)?, value(secret, key)?)))?;
    Some(TlsCertificate {
        certificate_chain: inline(chain),
        private_key: inline(key),
        ocsp_staple: value(secret, "tls.ocsp-staple").and_then(inline),
        ..Default::default()
    })
}

fn validation(ca: &[u8], crl: Option<&[u8]>) -> CertificateValidationContext {
    CertificateValidationContext { trusted_ca: inline(ca), crl: crl.and_then(inline), ..Default::default() }
}

fn value<'a>(secret: &'a Secret, key: &str) -> Option<&'a [u8]> {
    secret.value(key).filter(|value| !value.is_empty())
}

fn inline(bytes: &[u8]) -> Option<DataSource> {
    Some(DataSource { specifier: Some(Specifier::InlineBytes(bytes.to_vec())), ..Default::default() })
}
