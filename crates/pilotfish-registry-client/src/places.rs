//! How many connections a client has to each server: a place is taken before a connection is opened, and held by it until it is closed.

use crate::Server;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

tokio::task_local! {
    /// Closed at the end of the request for which connections are asked here.
    static REQUEST: watch::Receiver<()>;
}

/// Held by a connection.
#[derive(Debug)]
pub(crate) struct Place(
    #[allow(dead_code, reason = "it is free again when this is dropped")] OwnedSemaphorePermit,
);

/// The places of a client. They are counted for each server, so that connections to one that has failed take none from the next.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    each: usize,
    /// As many as servers are named in the settings.
    servers: Arc<Mutex<HashMap<String, Arc<Semaphore>>>>,
}

impl Places {
    /// So many to each server.
    pub(crate) fn new(each: usize) -> Self {
        Self { each: each.clamp(1, Semaphore::MAX_PERMITS), servers: Arc::default() }
    }

    /// Waits for a place for the request of this task. `None`: the request is over, so that nobody needs it any more.
    ///
    /// hyper's client opens a connection for a request while it waits for one that others leave, and opens it still when one was left;
    /// without an end to the wait, each such request would leave a task behind that waits for a place.
    pub(crate) fn take(&self, server: &Server) -> impl Future<Output = Option<Place>> + Send + use<> {
        let places = self
            .servers
            .lock()
            .entry(server.to_string())
            .or_insert_with(|| Semaphore::new(self.each).into())
            .clone();
        let request = REQUEST.try_with(Clone::clone).ok();
        async move {
            tokio::select! {
                biased;
                place = places.acquire_owned() => place.ok().map(Place),
                () = over(request) => None,
            }
        }
    }
}

async fn over(request: Option<watch::Receiver<()>>) {
    match request {
        Some(mut request) => while request.changed().await.is_ok() {},
        None => std::future::pending().await,
    }
}

/// Runs a request: what it waits for in vain ends with it.
pub(crate) async fn request<T>(work: impl Future<Output = T>) -> T {
    let (_end, is_over) = watch::channel(());
    REQUEST.scope(is_over, work).await
}
