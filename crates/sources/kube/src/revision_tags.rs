//! Tags of a revision: labels `istio.io/tag` of webhook configurations, as `istioctl tag set` and the chart
//! write them.

use crate::request::{BACKOFF, RequestError, within};
use futures::StreamExt;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::core::PartialObjectMeta;
use kube::{Client, ResourceExt};
use pilotfish_model::{Revision, TAG_LABEL};
use pilotfish_runtime::{Backoff, Jitter};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// Timeout of a list.
const ANSWER: Duration = Duration::from_secs(20);
/// Seconds after which the API server ends a watch.
const WATCH: u32 = 290;
/// Timeout of a watch without events.
const SILENCE: Duration = Duration::from_secs(310);
/// Pause between a change and the next list, because changes arrive in groups.
const GATHER: Duration = Duration::from_millis(100);

type Metadata = PartialObjectMeta<MutatingWebhookConfiguration>;

/// Watch of the tags of a revision.
pub struct RevisionTags {
    api: Api<MutatingWebhookConfiguration>,
    selector: String,
    /// Last failure that was logged.
    reported: Option<String>,
}

impl RevisionTags {
    /// Watches the tags of a revision at the API server of `client`.
    #[must_use]
    pub fn new(client: Client, revision: &Revision) -> Self {
        Self { api: Api::all(client), selector: revision.tag_selector(), reported: None }
    }

    /// Publishes the revision whenever its tags change, until all receivers are dropped. Without the right to
    /// list webhook configurations there are no tags; any other failure leaves the tags unchanged.
    pub async fn run(mut self, out: watch::Sender<Revision>) {
        let mut backoff = Backoff::new(BACKOFF, Jitter::default());
        loop {
            let wait = match self.read_and_follow(&out).await {
                Ok(()) => {
                    backoff.reset();
                    GATHER
                }
                Err(error) => {
                    self.failed(&error, &out);
                    backoff.wait_at_least(error.retry_after)
                }
            };
            tokio::select! {
                () = sleep(wait) => {}
                () = out.closed() => return,
            }
        }
    }

    /// Reads the tags, and waits until they may have changed.
    async fn read_and_follow(&mut self, out: &watch::Sender<Revision>) -> Result<(), RequestError> {
        let params = ListParams::default().labels(&self.selector);
        let list = within(ANSWER, self.api.list_metadata(&params)).await?;
        if self.reported.take().is_some() {
            tracing::info!("the tags of the revision can be read again");
        }
        publish(out, tags(&list.items));
        let version = list.metadata.resource_version.unwrap_or_default();
        let params = WatchParams::default().labels(&self.selector).timeout(WATCH).disable_bookmarks();
        let mut events = std::pin::pin!(within(ANSWER, self.api.watch_metadata(&params, &version)).await?);
        match timeout(SILENCE, events.next()).await {
            Ok(Some(Err(error))) => Err(error.into()),
            Ok(Some(Ok(WatchEvent::Error(status)))) if status.code != 410 => {
                Err(RequestError::of_status(status.code, &status.message, 0))
            }
            // A change, or the end of the watch: both are followed by a list.
            _ => Ok(()),
        }
    }

    fn failed(&mut self, error: &RequestError, out: &watch::Sender<Revision>) {
        let text = error.to_string();
        if self.reported.as_ref() != Some(&text) {
            tracing::warn!(
                reason = %error,
                "cannot read the revision's tags from MutatingWebhookConfigurations; keeping the known tags"
            );
            self.reported = Some(text);
        }
        if error.status == Some(403) && out.borrow().is_undecided() {
            publish(out, BTreeSet::new());
        }
    }
}

fn publish(out: &watch::Sender<Revision>, tags: BTreeSet<Arc<str>>) {
    out.send_if_modified(|revision| {
        let now = revision.with_tags(tags);
        let differs = *revision != now;
        if differs {
            let tags = now.tags().collect::<Vec<_>>();
            tracing::info!(
                revision = now.label(),
                ?tags,
                is_default = now.is_default(),
                "tags of the revision"
            );
            *revision = now;
        }
        differs
    });
}

fn tags(configurations: &[Metadata]) -> BTreeSet<Arc<str>> {
    let tag = |one: &Metadata| one.labels().get(TAG_LABEL).map(|tag| Arc::from(tag.as_str()));
    configurations.iter().filter_map(tag).collect()
}
