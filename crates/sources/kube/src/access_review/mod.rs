//! Permissions of service accounts to read the Secrets of their namespace, by SubjectAccessReviews of the
//! cluster's API server.
//!
//! ```text
//!  clients ── want ──▶ Readers ── due ──▶ AccessReviews ── SubjectAccessReview ──▶ API server
//!                      (pure)  ◀─ answer ─┘ (IO)  └── Verdict, when it differs ──▶ control loop
//! ```
//!
//! An account is reviewed once a minute while at least one client needs its verdict, however many clients
//! there are. While the API server does not answer, its last verdict holds for ten minutes; after that the
//! account is served no Secrets.

mod readers;
mod review;

use crate::client::Client;
use crate::remote::RemoteClients;
use crate::request::{RequestError, within};
use parking_lot::Mutex;
use pilotfish_model::SecretReader;
use readers::Readers;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

/// Limit on concurrent reviews.
const AT_A_TIME: usize = 16;
/// Timeout of a review.
const LIMIT: Duration = Duration::from_secs(5);
/// Interval at which a lasting failure is logged.
const REPORT_AGAIN: Duration = Duration::from_secs(60);

/// Permission of an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub reader: SecretReader,
    /// True if the account may read the Secrets of its namespace; `None` when that is no longer known.
    pub allowed: Option<bool>,
}

/// Accounts whose permission clients need, shared between clients and [`AccessReviews`].
#[derive(Debug, Default)]
pub struct SecretReaders {
    readers: Mutex<Readers>,
    changed: Notify,
}

/// Registration of one client's interest in the permission of an account; ends when dropped.
#[derive(Debug)]
pub struct Wanted {
    reader: SecretReader,
    /// `None` if the limit of accounts was exceeded.
    readers: Option<Arc<SecretReaders>>,
}

impl SecretReaders {
    /// Registers the interest of a client in the permission of an account.
    #[must_use]
    pub fn want(self: &Arc<Self>, reader: SecretReader) -> Wanted {
        let is_kept = self.readers.lock().want(&reader, Instant::now());
        if !is_kept {
            tracing::warn!(
                account = %reader,
                "too many service accounts subscribe to Secrets; this account is served none"
            );
        }
        self.changed.notify_one();
        Wanted { reader, readers: is_kept.then(|| self.clone()) }
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        if let Some(readers) = &self.readers {
            readers.readers.lock().release(&self.reader);
        }
    }
}

/// Task that reviews the registered accounts.
pub struct AccessReviews {
    client: Client,
    remote: RemoteClients,
    readers: Arc<SecretReaders>,
    reported: Option<Instant>,
}

impl AccessReviews {
    /// Reviews accounts at the API server of `client`, the cluster whose Secrets are served; `remote` are the
    /// other clusters that are read.
    #[must_use]
    pub fn new(client: Client, remote: RemoteClients, readers: Arc<SecretReaders>) -> Self {
        Self { client, remote, readers, reported: None }
    }

    /// Runs until the receiver is dropped.
    pub async fn run(mut self, out: mpsc::Sender<Verdict>) {
        let mut asking: JoinSet<(SecretReader, Result<bool, String>)> = JoinSet::new();
        loop {
            let free = AT_A_TIME.saturating_sub(asking.len());
            let (ask, news) = self.readers.readers.lock().take_due(free, Instant::now());
            for reader in ask {
                let (client, is_ours) = (self.client.clone(), self.is_ours(&reader));
                asking.spawn(async move {
                    let answer = if is_ours { ask_about(&client, &reader).await } else { Ok(false) };
                    (reader, answer)
                });
            }
            for verdict in news {
                tracing::warn!(
                    account = %verdict.reader,
                    "the access review of the account has expired; it is served no Secrets"
                );
                if out.send(verdict).await.is_err() {
                    return;
                }
            }
            // At the limit of concurrent reviews, the next one starts when another ends.
            let next = self.readers.readers.lock().next().filter(|_| asking.len() < AT_A_TIME);
            let due = async {
                match next {
                    Some(due) => tokio::time::sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(done) = asking.join_next() => {
                    // The review panicked: its account is not reviewed again, and has no verdict.
                    let Ok((reader, answer)) = done else { continue };
                    let verdict = self.answered(&reader, answer);
                    if let Some(verdict) = verdict && out.send(verdict).await.is_err() {
                        return;
                    }
                }
                () = due => {}
                () = self.readers.changed.notified() => {}
                () = out.closed() => return,
            }
        }
    }

    /// True if the identity belongs to the local cluster. A certificate does not name the cluster of its
    /// account, so it counts only while no other cluster is read.
    fn is_ours(&self, reader: &SecretReader) -> bool {
        let is_named = !reader.namespace.as_str().is_empty() && !reader.service_account.is_empty();
        is_named && (reader.vouched || self.remote.is_empty())
    }

    fn answered(&mut self, reader: &SecretReader, answer: Result<bool, String>) -> Option<Verdict> {
        let now = Instant::now();
        if let Err(reason) = &answer
            && self.reported.is_none_or(|at| now.duration_since(at) >= REPORT_AGAIN)
        {
            self.reported = Some(now);
            tracing::warn!(
                account = %reader, reason,
                "the API server does not say whether an account may read Secrets; its last answer holds for \
                 {} min",
                readers::HOLD.as_secs() / 60
            );
        }
        let verdict = self.readers.readers.lock().answered(reader, answer.ok(), now)?;
        match verdict.allowed {
            Some(true) => {
                tracing::info!(account = %reader, "the account may read the Secrets of its namespace")
            }
            _ => tracing::info!(
                account = %reader,
                "the account may not list the Secrets of its namespace, so it gets only those that Gateways of the \
                 Gateway API name"
            ),
        }
        Some(verdict)
    }
}

async fn ask_about(client: &Client, reader: &SecretReader) -> Result<bool, String> {
    let request = review::request(reader).map_err(|error| error.to_string())?;
    let answer = within(LIMIT, client.request_text(request)).await;
    review::outcome(&answer.map_err(|error: RequestError| error.to_string())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(name: &str, vouched: bool) -> SecretReader {
        SecretReader { namespace: "edge".into(), service_account: name.into(), vouched }
    }

    /// An API server that is not there.
    fn unreachable() -> Client {
        let config = kube::Config::new(http::Uri::from_static("https://127.0.0.1:1"));
        crate::client::of_config(config).unwrap()
    }

    #[tokio::test]
    async fn nothing_is_known_without_an_api_server_and_nobody_without_a_name_is_asked_about() {
        let readers = Arc::new(SecretReaders::default());
        let (sender, mut verdicts) = mpsc::channel(8);
        let reviews = AccessReviews::new(unreachable(), RemoteClients::default(), readers.clone());
        let task = tokio::spawn(reviews.run(sender));
        let (_a, _nobody) = (readers.want(reader("a", true)), readers.want(reader("", false)));
        let first = verdicts.recv().await;
        assert_eq!(first, Some(Verdict { reader: reader("", false), allowed: Some(false) }));
        assert!(verdicts.try_recv().is_err(), "of the other one, nothing is known");
        drop(verdicts);
        task.await.unwrap();
    }

    #[tokio::test]
    async fn a_certificate_counts_only_where_there_is_one_cluster() {
        let remote = RemoteClients::default();
        let reviews = AccessReviews::new(unreachable(), remote.clone(), Arc::default());
        assert!(reviews.is_ours(&reader("a", false)) && reviews.is_ours(&reader("a", true)));
        remote.insert(crate::remote::ClusterGeneration { cluster: "west".into(), number: 1 }, unreachable());
        assert!(!reviews.is_ours(&reader("a", false)) && reviews.is_ours(&reader("a", true)));
    }
}
