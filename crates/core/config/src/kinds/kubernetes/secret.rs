//! Secret and ConfigMap.

use crate::Base64;
use crate::gateway_api::OVERLAY_KEYS;
use crate::kinds::message::{kind, message};
use pilotfish_model::ObjectMeta;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Keys of a ConfigMap that can hold CA certificates, in order of preference.
const AUTHORITIES: [&str; 2] = ["cacert", "ca.crt"];

/// Keys of a Secret that are served to proxies: certificates with private keys, authorities, revocation
/// lists, OCSP responses, and credentials for images of Wasm plugins.
const SERVED: [&str; 10] = [
    ".dockerconfigjson",
    "ca.crl",
    "ca.crt",
    "cacert",
    "cert",
    "crl",
    "key",
    "tls.crt",
    "tls.key",
    "tls.ocsp-staple",
];
/// Secrets of the root namespace that belong to control planes: webhook certificates, and the mesh's CA with
/// the material to create it.
const OF_CONTROL_PLANES: [&str; 5] =
    ["cacerts", "istio-ca-secret", "istio-kubeconfig", "istiod-tls", "pilotfish-webhook-certificate"];
/// The label of kubeconfigs of remote clusters.
const REMOTE_CLUSTER: &str = "istio/multiCluster";

kind! {
    Secret = Secret;
    ConfigMap = ConfigMap;
}

message! {
/// A secret. `stringData` is already folded into `data`.
pub struct Secret {
    pub r#type: String,
    pub data: BTreeMap<String, Base64>,
    pub string_data: SecretText,
}

pub struct ConfigMap {
    pub data: BTreeMap<String, String>,
    pub binary_data: BTreeMap<String, Base64>,
}
}

/// Text values of a secret; never printed.
#[derive(Clone, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(transparent)]
pub struct SecretText(pub BTreeMap<String, String>);

impl std::fmt::Debug for SecretText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Use of a Secret, derived from its `type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretType {
    /// `Opaque`, untyped or `kubernetes.io/tls`: may hold certificates.
    Certificates,
    /// `kubernetes.io/dockerconfigjson`: credentials of image registries.
    Images,
    /// A type outside of `kubernetes.io`: usable if a Gateway refers to it.
    Unknown,
    /// Another use, although the Secret may contain certificates: service account tokens have `ca.crt`.
    Other,
}

impl Secret {
    #[must_use]
    pub fn content_type(&self) -> SecretType {
        match self.r#type.as_str() {
            "" | "Opaque" | "generic" | "kubernetes.io/tls" => SecretType::Certificates,
            "kubernetes.io/dockerconfigjson" => SecretType::Images,
            "istio.io/ca-root" | "helm.sh/release.v1" => SecretType::Other,
            known if known.contains("kubernetes.io/") => SecretType::Other,
            _ => SecretType::Unknown,
        }
    }

    /// True if a Secret with that metadata belongs to a control plane of a mesh with that root namespace. No
    /// proxy gets it.
    #[must_use]
    pub fn is_of_control_plane(meta: &ObjectMeta, root_namespace: &str) -> bool {
        let is_own =
            meta.key.namespace.as_str() == root_namespace && OF_CONTROL_PLANES.contains(&&*meta.key.name);
        is_own || meta.labels.contains_key(REMOTE_CLUSTER)
    }

    /// Drops keys that are never served to proxies, so that they are not kept in memory. The annotations are
    /// dropped, too: `kubectl apply` writes the whole object into one of them.
    pub fn keep_served(&mut self, meta: &mut ObjectMeta, root_namespace: &str) {
        meta.annotations = Arc::default();
        if self.content_type() == SecretType::Other || Self::is_of_control_plane(meta, root_namespace) {
            self.data.clear();
        } else {
            self.data.retain(|key, _| SERVED.contains(&key.as_str()));
        }
    }

    /// Moves `stringData` into `data`, where it wins, and writes the default type.
    pub(crate) fn complete(&mut self) {
        for (key, text) in std::mem::take(&mut self.string_data.0) {
            self.data.insert(key, Base64(text.into_bytes()));
        }
        if self.r#type.is_empty() {
            "Opaque".clone_into(&mut self.r#type);
        }
    }

    /// The value of a key.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&[u8]> {
        self.data.get(key).map(|value| value.0.as_slice())
    }
}

impl ConfigMap {
    /// Drops the keys that are not read of any ConfigMap: clusters have many ConfigMaps, and large ones.
    pub(crate) fn compact(&mut self, meta: &mut ObjectMeta) {
        let known = |key: &&str| AUTHORITIES.contains(key) || OVERLAY_KEYS.contains(key);
        self.data.retain(|key, _| known(&key.as_str()));
        self.binary_data.clear();
        meta.annotations = Arc::default();
    }

    /// The certificates of authorities (PEM): under `cacert`, else under `ca.crt`.
    #[must_use]
    pub fn authorities(&self) -> Option<&str> {
        let value = |key: &str| self.data.get(key).map(String::as_str).filter(|value| !value.is_empty());
        AUTHORITIES.into_iter().find_map(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pilotfish_model::{Kind, ObjectKey};

    #[test]
    fn only_what_may_be_served_is_kept() {
        for (namespace, name, label, r#type, kept) in [
            ("edge", "web", "", "kubernetes.io/tls", &["ca.crt", "tls.crt", "tls.key"][..]),
            ("edge", "web", "", "Opaque", &["ca.crt", "tls.crt", "tls.key"]),
            ("edge", "web", "", "example.com/pair", &["ca.crt", "tls.crt", "tls.key"]),
            ("edge", "cacerts", "", "Opaque", &["ca.crt", "tls.crt", "tls.key"]),
            ("mesh", "cacerts", "", "Opaque", &[]),
            ("mesh", "pilotfish-webhook-certificate", "", "kubernetes.io/tls", &[]),
            ("mesh", "west", "istio/multiCluster", "Opaque", &[]),
            ("edge", "a", "", "kubernetes.io/service-account-token", &[]),
            ("edge", "a", "", "bootstrap.kubernetes.io/token", &[]),
            ("edge", "a", "", "helm.sh/release.v1", &[]),
        ] {
            let labels = [(label, "true")].into_iter().filter(|(label, _)| !label.is_empty());
            let mut meta = ObjectMeta {
                labels: Arc::new(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()),
                annotations: Arc::new(
                    [("kubectl.kubernetes.io/last-applied-configuration".into(), "{}".into())].into(),
                ),
                ..ObjectMeta::of(ObjectKey::new(Kind::Secret, namespace, name))
            };
            let keys = ["tls.crt", "tls.key", "ca.crt", "password", "token"];
            let data = keys.map(|key| (key.to_owned(), Base64(b"x".to_vec()))).into();
            let mut secret = Secret { r#type: r#type.to_owned(), data, ..Secret::default() };
            secret.keep_served(&mut meta, "mesh");
            assert_eq!(secret.data.keys().collect::<Vec<_>>(), kept, "{namespace}/{name} {type}");
            assert!(meta.annotations.is_empty());
        }
    }
}
