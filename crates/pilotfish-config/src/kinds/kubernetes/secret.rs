//! Secret and ConfigMap.

use crate::Base64;
use crate::kinds::message::{kind, message};
use std::collections::BTreeMap;

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
