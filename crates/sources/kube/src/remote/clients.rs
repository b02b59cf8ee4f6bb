//! Clients of remote clusters, for single requests such as TokenReviews.

use super::ClusterGeneration;
use crate::client::Client;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;

/// Clients of the remote clusters that are read. Clones share them.
#[derive(Clone, Default)]
pub struct RemoteClients(Arc<Clients>);

#[derive(Default)]
struct Clients {
    by_generation: RwLock<BTreeMap<ClusterGeneration, Client>>,
    /// Changes with every removal of a client.
    removals: watch::Sender<()>,
}

impl RemoteClients {
    /// Returns the client of a cluster: of two generations that of the older one, which is in force.
    #[must_use]
    pub fn of(&self, cluster: &str) -> Option<Client> {
        let clients = self.0.by_generation.read();
        let first = ClusterGeneration { cluster: cluster.into(), number: 0 };
        let (generation, client) = clients.range(first..).next()?;
        (*generation.cluster == *cluster).then(|| client.clone())
    }

    /// True if no remote cluster is read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.by_generation.read().is_empty()
    }

    /// True if the cluster is read.
    #[must_use]
    pub fn reads(&self, cluster: &str) -> bool {
        self.of(cluster).is_some()
    }

    /// Notifies of removed generations. Another generation of the same cluster may still be read.
    #[must_use]
    pub fn removals(&self) -> watch::Receiver<()> {
        self.0.removals.subscribe()
    }

    pub(crate) fn insert(&self, generation: ClusterGeneration, client: Client) {
        self.0.by_generation.write().insert(generation, client);
    }

    pub(super) fn remove(&self, generation: &ClusterGeneration) {
        self.0.by_generation.write().remove(generation);
        self.0.removals.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_cluster_has_the_client_of_the_reading_in_force() {
        let clients = RemoteClients::default();
        let generation = |cluster: &str, number| ClusterGeneration { cluster: cluster.into(), number };
        let client = |namespace: &str| {
            let mut config = kube::Config::new(http::Uri::from_static("https://192.0.2.1"));
            config.default_namespace = namespace.to_owned();
            crate::client::of_config(config).unwrap()
        };
        let of = |cluster| clients.of(cluster).map(|client| client.default_namespace().to_owned());
        clients.insert(generation("west", 2), client("old"));
        clients.insert(generation("west", 5), client("new"));
        clients.insert(generation("east", 3), client("east"));
        assert_eq!(of("west").as_deref(), Some("old"));
        let mut removals = clients.removals();
        clients.remove(&generation("west", 2));
        assert!(removals.has_changed().unwrap() && clients.reads("west"), "another reading goes on");
        removals.mark_unchanged();
        assert_eq!(of("west").as_deref(), Some("new"));
        assert_eq!(of("east").as_deref(), Some("east"));
        clients.remove(&generation("west", 5));
        assert!(removals.has_changed().unwrap() && !clients.reads("west"));
        assert_eq!((of("west"), of("wes"), of("")), (None, None, None));
    }
}
