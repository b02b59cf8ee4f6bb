//! Rights of service accounts to read the Secrets of their namespace, as API servers decide.

use super::hooks::{ClientState, ConnectHook, ConnectingClient};
use pilotfish_kube::access_review::{SecretReaders, Wanted};
use pilotfish_model::SecretReader;
use pilotfish_translate::{Identity, SecretAccess};
use pilotfish_xds::ConnectError;
use std::sync::{Arc, OnceLock};

/// Rules by which clients may read Secrets of a cluster.
#[derive(Clone)]
pub struct SecretRights {
    /// Cluster whose Secrets are served.
    cluster: Arc<str>,
    readers: Arc<SecretReaders>,
}

/// Client whose permission is reviewed once it subscribes to secrets.
struct SecretClient {
    reader: SecretReader,
    readers: Arc<SecretReaders>,
    /// Set at the first subscription: most proxies never subscribe to secrets.
    wanted: OnceLock<Wanted>,
}

impl SecretRights {
    /// Returns the rules for the Secrets of a cluster. Readers enter `readers` at their first subscription.
    #[must_use]
    pub fn new(cluster: &str, readers: Arc<SecretReaders>) -> Self {
        Self { cluster: cluster.into(), readers }
    }

    /// Returns the access of an identity. `proven_by` is the cluster whose API server vouches for it; `None`
    /// for other proof.
    fn of(&self, identity: &Identity, proven_by: Option<&str>) -> SecretAccess {
        if self.is_foreign(proven_by) {
            return SecretAccess::Foreign;
        }
        SecretAccess::Reviewed(SecretReader {
            namespace: identity.namespace.clone(),
            service_account: identity.service_account.clone(),
            vouched: proven_by.is_some(),
        })
    }

    /// True if the API server of another cluster vouches for the identity.
    fn is_foreign(&self, proven_by: Option<&str>) -> bool {
        proven_by.is_some_and(|cluster| *cluster != *self.cluster)
    }

    /// Returns the client, if its access depends on the API server.
    fn client(&self, access: &SecretAccess) -> Option<SecretClient> {
        let SecretAccess::Reviewed(reader) = access else { return None };
        let readers = self.readers.clone();
        Some(SecretClient { reader: reader.clone(), readers, wanted: OnceLock::new() })
    }
}

impl ConnectHook for SecretRights {
    fn connect(
        &self,
        client: &mut ConnectingClient<'_>,
    ) -> Result<Option<Box<dyn ClientState>>, ConnectError> {
        let Some(identity) = &client.proxy.identity else { return Ok(None) };
        let access = self.of(identity, client.peer.cluster.as_deref());
        let state = self.client(&access).map(|state| Box::new(state) as Box<dyn ClientState>);
        client.proxy.secret_access = access;
        Ok(state)
    }
}

impl ClientState for SecretClient {
    /// Starts the reviews of the client's permission, at its first subscription to secrets.
    fn subscribes_to_secrets(&self) {
        self.wanted.get_or_init(|| self.readers.want(self.reader.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_of_another_cluster_has_no_right_here() {
        let rights = SecretRights::new("east", Arc::default());
        let identity = Identity::parse("spiffe://cluster.local/ns/edge/sa/gateway").unwrap();
        let reviewed = |vouched| {
            SecretAccess::Reviewed(SecretReader {
                namespace: "edge".into(),
                service_account: "gateway".into(),
                vouched,
            })
        };
        assert_eq!(rights.of(&identity, Some("east")), reviewed(true));
        assert_eq!(rights.of(&identity, None), reviewed(false));
        let foreign = rights.of(&identity, Some("west"));
        assert_eq!(foreign, SecretAccess::Foreign);
        assert!(rights.client(&foreign).is_none() && rights.client(&reviewed(true)).is_some());
    }
}
