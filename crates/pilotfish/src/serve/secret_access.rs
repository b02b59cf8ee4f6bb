//! Permissions of service accounts to read the Secrets of their namespace: the adapter between clients that
//! subscribe to secrets, the API server, and the control loop.

use super::sources::Sources;
use super::subsystem::{StopOrder, Subsystem};
use crate::control::ControlMessage;
use crate::settings::Settings;
use anyhow::Result;
use pilotfish_kube::access_review::{AccessReviews, SecretReaders, Wanted};
use pilotfish_model::SecretReader;
use pilotfish_translate::{Identity, SecretAccess};
use std::sync::{Arc, OnceLock};
use tokio::sync::mpsc;

/// Capacity of the channel of verdicts.
const WAITING: usize = 64;

/// Rules by which clients may read Secrets of a cluster.
#[derive(Clone)]
pub(crate) struct SecretRights {
    /// Cluster whose Secrets are served.
    cluster: Arc<str>,
    readers: Arc<SecretReaders>,
}

/// Client whose permission is reviewed once it subscribes to secrets.
pub(crate) struct SecretClient {
    reader: SecretReader,
    readers: Arc<SecretReaders>,
    /// Set at the first subscription: most proxies never subscribe to secrets.
    wanted: OnceLock<Wanted>,
}

impl SecretRights {
    fn new(cluster: &str) -> Self {
        Self { cluster: cluster.into(), readers: Arc::default() }
    }

    /// Returns the access of an identity. `proven_by` is the cluster whose API server vouches for it; `None`
    /// for other proof.
    pub(crate) fn of(&self, identity: &Identity, proven_by: Option<&str>) -> SecretAccess {
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
    pub(crate) fn is_foreign(&self, proven_by: Option<&str>) -> bool {
        proven_by.is_some_and(|cluster| *cluster != *self.cluster)
    }

    /// Returns the client, if its access depends on the API server.
    pub(crate) fn client(&self, access: &SecretAccess) -> Option<SecretClient> {
        let SecretAccess::Reviewed(reader) = access else { return None };
        let readers = self.readers.clone();
        Some(SecretClient { reader: reader.clone(), readers, wanted: OnceLock::new() })
    }
}

impl SecretClient {
    /// Starts the reviews of the client's permission, at its first subscription to secrets.
    pub(crate) fn asks(&self) {
        self.wanted.get_or_init(|| self.readers.want(self.reader.clone()));
    }
}

/// Returns the rules and the task for reviews; `None` if no cluster is read.
pub(super) fn open(settings: &Settings, sources: &Sources) -> Option<(SecretRights, AccessReviews)> {
    let (client, remote) = sources.clients()?;
    let rights = SecretRights::new(settings.registries.settings.cluster.as_str());
    let reviews = AccessReviews::new(client, remote, rights.readers.clone());
    Some((rights, reviews))
}

/// Returns the subsystem that reviews permissions and sends verdicts to the control loop.
pub(super) fn subsystem(reviews: AccessReviews, messages: mpsc::Sender<ControlMessage>) -> Subsystem {
    let (sender, mut verdicts) = mpsc::channel(WAITING);
    Subsystem::new("reviews of access to Secrets", StopOrder::Abort)
        .task(|_| async move {
            reviews.run(sender).await;
            Ok(())
        })
        .task(|_| async move {
            while let Some(verdict) = verdicts.recv().await {
                if messages.send(ControlMessage::SecretAccess(verdict)).await.is_err() {
                    break;
                }
            }
            Result::<()>::Ok(())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_of_another_cluster_has_no_right_here() {
        let rights = SecretRights::new("east");
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
