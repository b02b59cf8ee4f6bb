//! Registries of configuration: sources of objects over the protocol of a product.
//!
//! Each is a source of the configuration feed, beside files and API servers: its objects are read by the
//! registries that read objects, and by translation. It has no services of its own.

use crate::live::LiveSettings;
use crate::report::SourceReport;
use pilotfish_config::{ObjectCheck, SourceBatch};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// Source of objects over the protocol of a product.
pub trait ObjectSource: Send {
    /// Reads the product and sends differences until the task is dropped or the receiver of batches is gone.
    /// The source reconnects with backoff, and reports its state with [`pilotfish_config::SourceEvent`]s.
    fn run(self: Box<Self>, batches: BatchSender) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// Settings of a source of objects.
#[derive(Clone, Debug)]
pub struct ObjectSettings {
    /// Name of the source in messages and in `/ready`.
    pub name: Arc<str>,
    pub live: LiveSettings,
    /// Additional checks of each object.
    pub checks: Vec<ObjectCheck>,
}

/// Resolves once a batch was taken (true) or the receiver is gone (false).
pub type Delivery = Pin<Box<dyn Future<Output = bool> + Send>>;

/// Sender of a source's batches, which waits while the queue is full.
pub struct BatchSender {
    deliver: Box<dyn Fn(SourceBatch) -> Delivery + Send + Sync>,
    report: SourceReport,
}

impl BatchSender {
    /// Returns a sender that passes batches to `deliver`. The source writes its state to `report`.
    pub fn new(
        report: SourceReport,
        deliver: impl Fn(SourceBatch) -> Delivery + Send + Sync + 'static,
    ) -> Self {
        Self { deliver: Box::new(deliver), report }
    }

    /// Returns the report of the source's state.
    #[must_use]
    pub const fn report(&self) -> &SourceReport {
        &self.report
    }

    /// Sends a batch, and waits while the queue is full. Returns `false` if the receiver is gone.
    pub async fn send(&self, batch: SourceBatch) -> bool {
        (self.deliver)(batch).await
    }
}
