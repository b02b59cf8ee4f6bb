//! The proxies that are connected, for those who ask what they get.

use super::{ClientId, Translator};
use crate::proxy::Proxy;
use pilotfish_model::ClusterDomain;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Translator {
    /// Another translator of an empty world, with the settings of this one: for those who ask what would be.
    #[must_use]
    pub fn scratch(&self) -> Self {
        Self::with_domain(self.memo.domain().clone())
    }

    /// The domain of Kubernetes Services.
    #[must_use]
    pub fn domain(&self) -> &ClusterDomain {
        self.memo.domain()
    }

    /// The connected proxies, as their connections proved them to be.
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
