//! The clients of remote clusters, for those who ask them something now and then.

use super::Reading;
use crate::client::Client;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The clients with which clusters are read now. Cloning shares them.
#[derive(Clone, Default)]
pub struct RemoteClients(Arc<RwLock<BTreeMap<Reading, Client>>>);

impl RemoteClients {
    /// The client of a cluster: of two, the one whose reading is in force, which is the older.
    #[must_use]
    pub fn of(&self, cluster: &str) -> Option<Client> {
        let clients = self.0.read();
        let first = Reading { cluster: cluster.into(), number: 0 };
        let (reading, client) = clients.range(first..).next()?;
        (*reading.cluster == *cluster).then(|| client.clone())
    }

    pub(super) fn insert(&self, reading: Reading, client: Client) {
        self.0.write().insert(reading, client);
    }

    pub(super) fn remove(&self, reading: &Reading) {
        self.0.write().remove(reading);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_cluster_has_the_client_of_the_reading_in_force() {
        let clients = RemoteClients::default();
        let reading = |cluster: &str, number| Reading { cluster: cluster.into(), number };
        let client = |namespace: &str| {
            let mut config = kube::Config::new(http::Uri::from_static("https://192.0.2.1"));
            config.default_namespace = namespace.to_owned();
            crate::client::of_config(config).unwrap()
        };
        let of = |cluster| clients.of(cluster).map(|client| client.default_namespace().to_owned());
        clients.insert(reading("west", 2), client("old"));
        clients.insert(reading("west", 5), client("new"));
        clients.insert(reading("east", 3), client("east"));
        assert_eq!(of("west").as_deref(), Some("old"));
        clients.remove(&reading("west", 2));
        assert_eq!(of("west").as_deref(), Some("new"));
        assert_eq!(of("east").as_deref(), Some("east"));
        clients.remove(&reading("west", 5));
        assert_eq!((of("west"), of("wes"), of("")), (None, None, None));
    }
}
