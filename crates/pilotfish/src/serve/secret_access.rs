//! Whether service accounts may read the Secrets of their namespace: the joint between clients that ask for secrets, the API server that
//! knows, and the control loop.

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

/// Answers that may wait for the control loop.
const WAITING: usize = 64;

/// By which right clients read Secrets where a cluster is read.
#[derive(Clone)]
pub(crate) struct SecretRights {
    /// The cluster whose Secrets are served.
    cluster: Arc<str>,
    readers: Arc<SecretReaders>,
}

/// A client that may ask for secrets.
pub(crate) struct SecretClient {
    reader: SecretReader,
    readers: Arc<SecretReaders>,
    /// From the first question on: most proxies never ask.
    wanted: OnceLock<Wanted>,
}

impl SecretRights {
    fn new(cluster: &str) -> Self {
        Self { cluster: cluster.into(), readers: Arc::default() }
    }

    /// The right of an identity that the API server of `proven_by` vouches for; `None` for those that other proof was given of.
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

    /// Whether an identity that the API server of `proven_by` vouches for is one of another cluster.
    pub(crate) fn is_foreign(&self, proven_by: Option<&str>) -> bool {
        proven_by.is_some_and(|cluster| *cluster != *self.cluster)
    }

    /// A client with that right, if it depends on the API server.
    pub(crate) fn client(&self, access: &SecretAccess) -> Option<SecretClient> {
        let SecretAccess::Reviewed(reader) = access else { return None };
        let readers = self.readers.clone();
        Some(SecretClient { reader: reader.clone(), readers, wanted: OnceLock::new() })
    }
}

impl SecretClient {
    /// The client asks for secrets: from now on it is found out whether it may have them.
    pub(crate) fn asks(&self) {
        self.wanted.get_or_init(|| self.readers.want(self.reader.clone()));
    }
}

/// The rights, and what finds them out; `None` where no cluster is read.
pub(super) fn open(settings: &Settings, sources: &Sources) -> Option<(SecretRights, AccessReviews)> {
    let (client, remote) = sources.clients()?;
    let rights = SecretRights::new(settings.registries.settings.cluster.as_str());
    let reviews = AccessReviews::new(client, remote, rights.readers.clone());
    Some((rights, reviews))
}

/// Finds out what is wanted, and tells the control loop.
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
