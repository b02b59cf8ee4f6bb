//! Limits on clients of listeners.
//!
//! | Type | Limits |
//! |---|---|
//! | [`Budget`] | bytes or items that clients share, with a part for each client |
//! | [`Slots`] | items of each client, such as connections |
//! | [`TokenBucket`], [`TokenBuckets`] | requests in a second: of one, or of each client |
//! | [`RefusalLimit`] | refused credentials of each address in a second |
//! | [`Metered`] | the rate at which a connection is read |
//! | [`HalfOpen`] | unauthenticated connections, so that silent ones do not block others |
//! | [`LogLimit`] | log lines that clients can cause |
//!
//! The crate is independent of the protocol of a listener and of the identities of its clients.

mod budget;
mod half_open;
mod log_limit;
mod meter;
mod network;
mod refusals;
mod slots;
mod token_bucket;

pub use budget::{Budget, Exceeded, Shares};
pub use half_open::{HalfOpen, Handshake};
pub use log_limit::LogLimit;
pub use meter::{BURST, FrameRates, KnownStream, KnownStreams, Metered, OnWait};
pub use network::network_of;
pub use refusals::{Attempt, Credential, RefusalLimit};
pub use slots::{Slot, Slots};
pub use token_bucket::{TokenBucket, TokenBuckets};
