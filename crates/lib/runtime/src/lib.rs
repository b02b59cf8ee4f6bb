//! Building blocks of live sources: timing of requests, classification of failures, guards against
//! mass loss, and queues for readers that are slower than their writers.
//!
//! The parts are small and independent of each other, of products and of the model. State machines take the
//! time as `now` and randomness from a [`Jitter`], so that tests and simulations run them without sleeping
//! and deterministically.
//!
//! | Part | Purpose |
//! |---|---|
//! | [`Backoff`] | delays after failures |
//! | [`DeadlineQueue`] | due times by key |
//! | [`ErrorClass`] | classes of failed requests |
//! | [`Health`] | sync and failure state of a source |
//! | [`LossGuard`] | guard against reads that lack most of the previous content |
//! | [`HeldLosses`] | losses held back by guards, for operators |
//! | [`Heartbeat`] | time since the last sign of life of a source |
//! | [`coalescer()`] | the newest value of each key, for a reader that is slower than its writers |
//! | [`FileReader`] | reads on a dedicated thread, with a timeout |
//! | [`RegularFile`] | the content of a regular file, never of a pipe or a device |
//! | [`OptionValues`] | options of an address |
//! | [`SecretFile`] | a token, password or key in a file that changes |
//!
//! A loop around a request usually looks like this:
//!
//! ```
//! use pilotfish_runtime::{Backoff, BackoffPolicy, Jitter};
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
mod control_characters;
mod deadlines;
mod error;
mod file_reader;
mod health;
mod heartbeat;
mod held_losses;
mod jitter;
mod loss_guard;
mod options;
mod regular_file;
mod secret_file;
mod session_error;

pub use backoff::{Backoff, BackoffPolicy};
pub use coalescer::{CoalescingReceiver, CoalescingSender, coalescer};
pub use control_characters::is_control;
pub use deadlines::DeadlineQueue;
pub use error::{Classify, ErrorClass, error_chain, one_line};
pub use file_reader::FileReader;
pub use health::{Failure, Health};
pub use heartbeat::{Heartbeat, SILENT_AFTER};
pub use held_losses::{GuardBoard, HeldLosses, HeldScope, ShownLoss};
pub use jitter::Jitter;
pub use loss_guard::{GuardSettings, HeldLoss, LOSS_FLOOR, LossGuard, LossVerdict, ReadExtent};
pub use options::{OptionSpec, OptionValues, OptionsError};
pub use regular_file::{RegularFile, RegularFileError, check_type, read_regular_file, read_regular_text};
pub use secret_file::{Secret, SecretFile, SecretFileError, SecretState};
pub use session_error::SessionError;
