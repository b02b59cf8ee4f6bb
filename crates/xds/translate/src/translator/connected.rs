//! Accessors to the connected proxies.

use super::{ClientId, Translator};
use crate::engine::TranslationSettings;
use crate::proxy::Proxy;
use pilotfish_model::ClusterDomain;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Translator {
    /// Creates a translator of an empty world with the same settings, for dry runs.
    #[must_use]
    pub fn scratch(&self) -> Self {
        Self::with_settings(self.settings().clone())
    }

    /// The settings of translation.
    #[must_use]
    pub fn settings(&self) -> &TranslationSettings {
        self.memo.settings()
    }

    /// The domain of Kubernetes Services.
    #[must_use]
    pub fn domain(&self) -> &ClusterDomain {
        self.memo.domain()
    }

    /// The connected proxies, with the identities that their connections proved.
    #[must_use]
    pub fn proxies(&self) -> BTreeMap<ClientId, Arc<Proxy>> {
        let clients = self.clients.lock();
        let all = clients
            .proxies
            .iter()
            .flat_map(|(proxy, connected)| connected.clients.iter().map(move |id| (*id, proxy.clone())));
        all.collect()
    }
}
