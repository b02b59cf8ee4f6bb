//! Kubernetes Events on Services with problems.

use pilotfish_kube::client::Client;
use pilotfish_kube_writer::events::{ServiceWarning, warn};
use pilotfish_source::{Jitter, RateLimiter};
use pilotfish_sync::ObjectName;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Capacity of the queue of Events. Further ones are dropped; their problems stay in the log and at
/// `/debug/syncz`.
const WAITING: usize = 256;
/// Size of a burst of Events, and the interval after it.
const BURST: u32 = 25;
const PERIOD: Duration = Duration::from_secs(1);
/// Reason of the Events, as in the original controller.
const REASON: &str = "PolarisRegister";

/// Writer of an Event whenever the problems of a Service change. Its task ends when this is dropped.
pub(super) struct Events {
    sender: mpsc::Sender<ServiceWarning>,
    told: BTreeMap<ObjectName, Vec<String>>,
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
        Self { sender, told: BTreeMap::new(), jitter: Jitter::default(), task }
    }

    /// Compares all current problems with the last ones, and queues Events for the changes.
    pub(super) fn tell(&mut self, problems: &BTreeMap<ObjectName, Vec<String>>) {
        for (service, lines) in problems {
            if self.told.get(service) == Some(lines) {
                continue;
            }
            tracing::warn!(%service, problems = lines.join("; "), "problems of a Service in the sync with Polaris");
            let warning = ServiceWarning {
                namespace: service.namespace.to_string(),
                name: service.name.to_string(),
                reason: REASON,
                message: lines.join("; "),
                id: self.jitter.bits(),
            };
            if self.sender.try_send(warning).is_err() {
                tracing::debug!(%service, "too many Events wait; this one is left out");
            }
        }
        self.told.clone_from(problems);
    }
}

async fn write(client: Client, mut warnings: mpsc::Receiver<ServiceWarning>) {
    let mut limiter = RateLimiter::new(BURST, PERIOD);
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
