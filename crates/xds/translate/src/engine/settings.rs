//! Settings of translation that the configuration of the mesh does not have.

use pilotfish_model::{ClusterDomain, Switches};

/// Settings of a process that all results of translation may depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TranslationSettings {
    /// The domain of the host names of Kubernetes Services.
    pub domain: ClusterDomain,
    pub switches: Switches,
}

impl From<ClusterDomain> for TranslationSettings {
    fn from(domain: ClusterDomain) -> Self {
        Self { domain, ..Self::default() }
    }
}
