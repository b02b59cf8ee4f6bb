//! Secrets with the key and the certificates of a mesh's certificate authority, under istiod's names.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use pilotfish_kube::request::{RequestError, within};
use pilotfish_runtime::ErrorClass;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Secret of a plug-in authority.
pub const PLUGGED_IN: &str = "cacerts";
/// Secret of an authority that a control plane created.
pub const SELF_SIGNED: &str = "istio-ca-secret";
/// Type of the latter.
const TYPE: &str = "istio.io/ca-root";
/// Entry with the rotation of a self-signed root, which istiod does not read.
pub const ROTATION: &str = "pilotfish-rotation";
/// Timeout of one request.
const ANSWER: Duration = Duration::from_secs(10);

/// Entries of an authority's Secret by name; empty ones are left out.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CaSecret {
    pub entries: BTreeMap<String, Vec<u8>>,
    /// Version that was read, for [`replace`].
    pub version: Option<String>,
}

/// Shows names of entries only.
impl fmt::Debug for CaSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaSecret").field("entries", &self.entries.keys()).finish()
    }
}

impl From<Secret> for CaSecret {
    fn from(secret: Secret) -> Self {
        let version = secret.metadata.resource_version;
        let entries = secret.data.unwrap_or_default().into_iter();
        let entries = entries.filter(|(_, bytes)| !bytes.0.is_empty());
        Self { entries: entries.map(|(name, bytes)| (name, bytes.0)).collect(), version }
    }
}

/// Reads a Secret; `None` if it does not exist.
///
/// # Errors
/// When the API server does not answer or refuses.
pub async fn read(client: &Client, namespace: &str, name: &str) -> Result<Option<CaSecret>, RequestError> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    Ok(within(ANSWER, api.get_opt(name)).await?.map(CaSecret::from))
}

/// Creates the Secret [`SELF_SIGNED`]. Returns false if another control plane created it meanwhile; that one
/// stays.
///
/// # Errors
/// When the API server does not answer or refuses.
pub async fn create(
    client: &Client,
    namespace: &str,
    certificate: &str,
    key: &str,
) -> Result<bool, RequestError> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    match within(ANSWER, api.create(&PostParams::default(), &self_signed(certificate, key))).await {
        Ok(_) => Ok(true),
        Err(error) if error.class == ErrorClass::Conflict => Ok(false),
        Err(error) => Err(error),
    }
}

/// Replaces the entries of the Secret [`SELF_SIGNED`], if it still has this version. Returns false if it was
/// changed or deleted in the meantime.
///
/// # Errors
/// When the API server does not answer or refuses.
pub async fn replace(client: &Client, namespace: &str, secret: &CaSecret) -> Result<bool, RequestError> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let entries = secret.entries.iter();
    let data = entries.map(|(name, bytes)| (name.clone(), ByteString(bytes.clone()))).collect();
    let metadata = ObjectMeta {
        name: Some(SELF_SIGNED.to_owned()),
        resource_version: secret.version.clone(),
        ..ObjectMeta::default()
    };
    let object = Secret { metadata, data: Some(data), type_: Some(TYPE.to_owned()), ..Secret::default() };
    match within(ANSWER, api.replace(SELF_SIGNED, &PostParams::default(), &object)).await {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.class, ErrorClass::Conflict | ErrorClass::Gone) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns the Secret as istiod writes it.
fn self_signed(certificate: &str, key: &str) -> Secret {
    let entries = [
        ("ca-cert.pem", certificate),
        ("ca-key.pem", key),
        ("cert-chain.pem", ""),
        ("key.pem", ""),
        ("root-cert.pem", certificate),
    ];
    let data = entries.map(|(name, text)| (name.to_owned(), ByteString(text.as_bytes().to_vec())));
    Secret {
        metadata: ObjectMeta { name: Some(SELF_SIGNED.to_owned()), ..ObjectMeta::default() },
        data: Some(data.into()),
        type_: Some(TYPE.to_owned()),
        ..Secret::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_secret_has_istiods_entries_and_empty_ones_are_not_read() {
        let secret = self_signed("certificate", "planted-key");
        assert_eq!(secret.type_.as_deref(), Some("istio.io/ca-root"));
        let read = CaSecret::from(secret);
        let expected = [
            ("ca-cert.pem", &b"certificate"[..]),
            ("ca-key.pem", b"planted-key"),
            ("root-cert.pem", b"certificate"),
        ];
        let expected = expected.map(|(name, text)| (name.to_owned(), text.to_vec())).into();
        assert_eq!(read.entries, expected);
        let shown = format!("{read:?}");
        assert!(shown.contains("ca-key.pem") && !shown.contains("planted"), "{shown}");
    }
}
