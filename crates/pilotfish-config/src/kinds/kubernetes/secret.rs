//! Secret and ConfigMap.

use crate::Base64;
use crate::kinds::message::{kind, message};
use pilotfish_model::ObjectMeta;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The keys of a ConfigMap that may have certificates of authorities, the preferred one first.
const AUTHORITIES: [&str; 2] = ["cacert", "ca.crt"];

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

/// A config map.
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

impl Secret {
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
    /// Drops what is read of no ConfigMap: a cluster has many, and large ones.
    pub(crate) fn compact(&mut self, meta: &mut ObjectMeta) {
        self.data.retain(|key, _| AUTHORITIES.contains(&key.as_str()));
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
