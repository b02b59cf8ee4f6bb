//! Registries that bring configuration: a source of objects over the protocol of its product.
//!
//! It is one more source of the configuration feed, beside files and API servers: its objects are read by the registries that read
//! objects, and by translation. It has no services of its own.

use crate::live::LiveSettings;
use crate::report::SourceReport;
use pilotfish_config::{ObjectCheck, SourceBatch};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// A source of objects over the protocol of its product.
pub trait ObjectSource: Send {
    /// Reads the product and sends what differs until the task is dropped or nobody takes batches any more. It connects again by itself,
    /// with backoff, and reports with [`pilotfish_config::SourceEvent`]s how it is.
    fn run(self: Box<Self>, batches: BatchSender) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// What such a source is made from.
#[derive(Clone, Debug)]
pub struct ObjectSettings {
    /// What the source is called in messages, and in `/ready`.
    pub name: Arc<str>,
    /// Address and options.
    pub live: LiveSettings,
    /// More checks of each object.
    pub checks: Vec<ObjectCheck>,
}

/// Tells whether a batch was taken.
pub type Delivery = Pin<Box<dyn Future<Output = bool> + Send>>;

/// The way of a source's batches. It takes a batch when there is room for it.
pub struct BatchSender {
    deliver: Box<dyn Fn(SourceBatch) -> Delivery + Send + Sync>,
    report: SourceReport,
}

impl BatchSender {
    /// A way that leads there, and what the source tells about itself.
    pub fn new(
        report: SourceReport,
        deliver: impl Fn(SourceBatch) -> Delivery + Send + Sync + 'static,
    ) -> Self {
        Self { deliver: Box::new(deliver), report }
    }

    /// What the source tells about itself beside its objects.
    #[must_use]
    pub const fn report(&self) -> &SourceReport {
        &self.report
    }

    /// Sends a batch, and waits for room. `false`: nobody takes batches any more.
    pub async fn send(&self, batch: SourceBatch) -> bool {
        (self.deliver)(batch).await
    }
}
