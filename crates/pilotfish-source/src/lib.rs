//! Parts of every live source of services: times and rates of requests, the meaning of failures, guards
//! against mass loss, and queues for readers that are slower than their writers.
//!
//! The parts are small and know nothing of each other, of a product or of the model. State machines take the time as `now` and
//! their randomness from a [`Jitter`], so tests and simulations drive them without sleeping and get the same result each time.
//!
//! | Part | Answers |
//! |---|---|
//! | [`Backoff`] | how long to wait after a failure |
//! | [`RateLimiter`] | whether a request may be sent now, and if not, when |
//! | [`DeadlineQueue`] | what is due, and when the next thing will be |
//! | [`ErrorClass`] | what a failed request means for its caller |
//! | [`Health`] | whether a source is in sync, since when it fails and why |
//! | [`LossGuard`] | whether a read that lacks most of what there was is believed |
//! | [`HeldLosses`] | what guards hold back, for people |
//! | [`Heartbeat`] | for how long a source has been silent |
//! | [`coalescer()`] | the newest value of each key, for a reader that is slower than its writers |
//! | [`FileReader`] | a read on a thread of its own, with a deadline |
//! | [`RegularFile`] | the content of a file, without ever waiting for a pipe or a device |
//! | [`SecretFile`] | a token, password or key in a file that changes |
//!
//! A loop around a request usually looks like this:
//!
//! ```
//! use pilotfish_source::{Backoff, BackoffPolicy, Jitter};
//! use std::time::Duration;
//!
//! const POLICY: BackoffPolicy = BackoffPolicy::new(Duration::from_millis(200), Duration::from_secs(15));
//!
//! async fn follow(mut ask: impl AsyncFnMut() -> Result<(), String>, jitter: Jitter) {
//!     let mut backoff = Backoff::new(POLICY, jitter);
//!     loop {
//!         match ask().await {
//!             Ok(()) => backoff.reset(),
//!             Err(_) => tokio::time::sleep(backoff.wait()).await,
//!         }
//!     }
//! }
//! ```

mod backoff;
mod coalescer;
mod deadlines;
mod error;
mod file_reader;
mod health;
mod heartbeat;
mod held_losses;
mod jitter;
mod loss_guard;
mod rate_limiter;
mod regular_file;
mod secret_file;

pub use backoff::{Backoff, BackoffPolicy};
pub use coalescer::{CoalescingReceiver, CoalescingSender, coalescer};
pub use deadlines::DeadlineQueue;
pub use error::{Classify, ErrorClass, error_chain, one_line};
pub use file_reader::FileReader;
pub use health::{Failure, Health};
pub use heartbeat::{Heartbeat, SILENT_AFTER};
pub use held_losses::{GuardBoard, HeldLosses, HeldScope, ShownLoss};
pub use jitter::Jitter;
pub use loss_guard::{GuardSettings, HeldLoss, LOSS_FLOOR, LossGuard, LossVerdict, ReadExtent};
pub use rate_limiter::RateLimiter;
pub use regular_file::{RegularFile, RegularFileError, check_type, read_regular_file, read_regular_text};
pub use secret_file::{Secret, SecretFile, SecretFileError, SecretState};
