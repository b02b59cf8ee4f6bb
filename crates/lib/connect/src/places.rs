//! Connection limits of a client, per server: a permit is taken before a connection is opened, and held until
//! it is closed.

use crate::Server;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

tokio::task_local! {
    /// Closed at the end of the request that opens connections in this task.
    static REQUEST: watch::Receiver<()>;
}

/// Permit held by a connection.
#[derive(Debug)]
pub(crate) struct Place(
    #[allow(dead_code, reason = "it is free again when this is dropped")] OwnedSemaphorePermit,
);

/// Connection permits of a client, counted per server: connections to a failed server leave the permits of
/// the next one free.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    each: usize,
    /// One entry for each configured server.
    servers: Arc<Mutex<HashMap<String, Arc<Semaphore>>>>,
}

impl Places {
    /// `each` is the number of permits per server.
    pub(crate) fn new(each: usize) -> Self {
        Self { each: each.clamp(1, Semaphore::MAX_PERMITS), servers: Arc::default() }
    }

    /// Waits for a permit for the request of this task. Returns `None` if the request ends first.
    ///
    /// hyper's client opens a connection for a request while it waits for one that others leave, and opens it
    /// still when one was left; without an end to the wait, each such request would leave a task behind that
    /// waits for a place.
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

/// Runs a request; waits for connections that it started end with it.
pub(crate) async fn request<T>(work: impl Future<Output = T>) -> T {
    let (_end, is_over) = watch::channel(());
    REQUEST.scope(is_over, work).await
}
