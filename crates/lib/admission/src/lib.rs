//! Limits on clients of listeners.
//!
//! | Type | Limits |
//! |---|---|
//! | [`Quota`], [`Quotas`] | bytes or items that clients share, with a part for each client |
//! | [`KeyedSemaphore`] | items of each client, such as requests, of which others may wait |
//! | [`TokenBucket`], [`TokenBuckets`] | requests in a second: of one, or of each client |
//! | [`RefusalLimit`] | refused credentials of each address in a second |
//! | [`Metered`] | the rate at which a connection is read |
//! | [`HalfOpen`] | unauthenticated connections, so that silent ones do not block others |
//! | [`LogLimit`] | log lines that clients can cause |
//!
//! The crate is independent of the protocol of a listener and of the identities of its clients.

mod half_open;
mod keyed_semaphore;
mod live;
mod log_limit;
mod meter;
mod network;
mod quota;
mod refusals;
mod token_bucket;

pub use half_open::{HalfOpen, Handshake};
pub use keyed_semaphore::{KeyedSemaphore, Permit};
pub use log_limit::LogLimit;
pub use meter::{BURST, FrameRates, KnownStream, KnownStreams, Metered, OnWait};
pub use network::network_of;
pub use quota::{Exceeded, Quota, QuotaGuard, Quotas};
pub use refusals::{Attempt, Credential, RefusalLimit};
pub use token_bucket::{TokenBucket, TokenBuckets};
