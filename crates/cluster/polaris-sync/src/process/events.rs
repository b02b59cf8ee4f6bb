//! Kubernetes Events on Services with problems.

use crate::reconcile::ObjectName;
use pilotfish_admission::TokenBucket;
use pilotfish_kube::client::Client;
use pilotfish_kube_writer::events::{ServiceWarning, warn};
use pilotfish_runtime::Jitter;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Capacity of the queue of Events. Further ones wait for the next pass; their problems are in the log and at
/// `/debug/syncz` meanwhile.
const WAITING: usize = 256;
/// Size of a burst of Events, and the interval after it.
const BURST: u32 = 25;
const PERIOD: Duration = Duration::from_secs(1);
/// Reason of the Events, as in the original controller.
const REASON: &str = "PolarisRegister";

/// Writer of an Event whenever the problems of a Service change. Its task ends when this is dropped.
pub(super) struct Events {
    sender: mpsc::Sender<ServiceWarning>,
    /// Problems of the last pass, all of which were logged.
    told: BTreeMap<ObjectName, Vec<String>>,
    /// Problems for which an Event was queued.
    queued: BTreeMap<ObjectName, Vec<String>>,
    jitter: Jitter,
    task: JoinHandle<()>,
}

impl Drop for Events {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Events {
    pub(super) fn start(client: Client) -> Self {
        let (sender, receiver) = mpsc::channel(WAITING);
        let task = tokio::spawn(write(client, receiver));
        Self::over(sender, task)
    }

    fn over(sender: mpsc::Sender<ServiceWarning>, task: JoinHandle<()>) -> Self {
        Self { sender, told: BTreeMap::new(), queued: BTreeMap::new(), jitter: Jitter::default(), task }
    }

    /// Compares all current problems with the last ones, and queues Events for the changes.
    pub(super) fn tell(&mut self, problems: &BTreeMap<ObjectName, Vec<String>>) {
        self.queued.retain(|service, lines| problems.get(service) == Some(lines));
        for (service, lines) in problems {
            if self.told.get(service) != Some(lines) {
                tracing::warn!(
                    %service, problems = lines.join("; "),
                    "problems of a Service in the sync with Polaris"
                );
            }
            if self.queued.contains_key(service) {
                continue;
            }
            let warning = ServiceWarning {
                namespace: service.namespace.to_string(),
                name: service.name.to_string(),
                reason: REASON,
                message: lines.join("; "),
                id: self.jitter.bits(),
            };
            if self.sender.try_send(warning).is_ok() {
                self.queued.insert(service.clone(), lines.clone());
            } else {
                tracing::debug!(%service, "too many Events wait; this one waits for the next pass");
            }
        }
        self.told.clone_from(problems);
    }
}

async fn write(client: Client, mut warnings: mpsc::Receiver<ServiceWarning>) {
    let mut limiter = TokenBucket::new(BURST, PERIOD);
    while let Some(warning) = warnings.recv().await {
        let wait = limiter.wait(Instant::now());
        tokio::time::sleep(wait).await;
        limiter.take(Instant::now());
        if let Err(error) = warn(client.clone(), &warning).await {
            tracing::warn!(
                service = %warning.name, namespace = %warning.namespace, %error,
                "an Event was not written"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn event_that_a_full_queue_did_not_take_is_queued_in_the_next_pass() {
        let (sender, mut queue) = mpsc::channel(1);
        let mut events = Events::over(sender, tokio::spawn(async {}));
        let problem = |name: &str| (ObjectName::new("shop", name), vec!["no port".to_owned()]);
        let problems: BTreeMap<_, _> = [problem("a"), problem("b")].into();
        let mut pass = |events: &mut Events, problems| {
            events.tell(problems);
            queue.try_recv().ok().map(|warning| warning.name)
        };
        assert_eq!(pass(&mut events, &problems).as_deref(), Some("a"));
        assert_eq!(pass(&mut events, &problems).as_deref(), Some("b"));
        assert_eq!(pass(&mut events, &problems), None, "each has its Event");
        // A problem that was over has another Event.
        let first: BTreeMap<_, _> = [problem("a")].into();
        assert_eq!(pass(&mut events, &first), None);
        assert_eq!(pass(&mut events, &problems).as_deref(), Some("b"));
    }
}
