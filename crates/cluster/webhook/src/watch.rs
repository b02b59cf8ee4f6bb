//! Watches that trigger reconciliations. The content of their events is not used.

use futures::StreamExt;
use k8s_openapi::serde::de::DeserializeOwned;
use kube::Resource;
use kube::api::{Api, WatchEvent, WatchParams};
use kube::core::PartialObjectMeta;
use pilotfish_kube::request::BACKOFF;
use pilotfish_runtime::{Backoff, Jitter};
use std::fmt::Debug;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

/// Time in seconds after which the API server ends a watch.
const WATCH: u32 = 290;
/// Maximum time without an event: then the watch is dead.
const SILENCE: Duration = Duration::from_secs(310);

/// Selects the object of that name.
pub(crate) fn named(name: &str) -> WatchParams {
    WatchParams::default().fields(&format!("metadata.name={name}"))
}

/// Watches the selected objects until the receiver is dropped. Without the permission, only the clock
/// triggers.
pub(crate) async fn watch<K>(api: Api<K>, selected: WatchParams, wakes: mpsc::Sender<()>)
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut backoff = Backoff::new(BACKOFF, Jitter::default());
    while !wakes.is_closed() {
        if follow(&api, &selected, &wakes).await {
            backoff.reset();
        }
        tokio::select! {
            () = sleep(backoff.wait()) => {}
            () = wakes.closed() => return,
        }
    }
}

/// Reads one watch to its end. Returns true if an event arrived.
async fn follow<K>(api: &Api<K>, selected: &WatchParams, wakes: &mpsc::Sender<()>) -> bool
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let params = selected.clone().timeout(WATCH).disable_bookmarks();
    let mut received = false;
    let stream = match api.watch_metadata(&params, "0").await {
        Ok(stream) => stream,
        Err(error) => {
            tracing::debug!(?selected, %error, "cannot watch");
            return false;
        }
    };
    let mut stream = std::pin::pin!(stream);
    while let Ok(Some(event)) = timeout(SILENCE, stream.next()).await {
        let event: Result<WatchEvent<PartialObjectMeta<K>>, kube::Error> = event;
        match event {
            Ok(WatchEvent::Error(_)) | Err(_) => break,
            Ok(_) => {
                received = true;
                // A full channel means that a trigger is already pending.
                if let Err(mpsc::error::TrySendError::Closed(())) = wakes.try_send(()) {
                    break;
                }
            }
        }
    }
    received
}
