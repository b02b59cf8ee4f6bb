//! Requests whose client is gone: long work looks now and then whether anybody waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Flag for long work: its client is gone.
#[derive(Clone, Debug, Default)]
pub struct Abandoned(Arc<AtomicBool>);

impl Abandoned {
    /// True once the client is gone.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// A guard of the one who waits: dropped, the work is abandoned.
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
