//! Cancellation of work for requests whose client has disconnected.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Flag for long work: true once its client has disconnected.
#[derive(Clone, Debug, Default)]
pub struct Abandoned(Arc<AtomicBool>);

impl Abandoned {
    /// True once the client has disconnected.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Guard for the waiting client: dropping it abandons the work.
    pub(crate) fn waiting(&self) -> Waiting {
        Waiting(self.clone())
    }
}

/// Guard that abandons the work when dropped.
pub(crate) struct Waiting(Abandoned);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Release);
    }
}
