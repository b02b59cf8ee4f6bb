//! Authentication of clients, and their limits, for listeners.
//!
//! ```text
//!   socket ── TlsContext::handshake ──▶ certificate ── spiffe_ids ──▶ identities
//!                                            │ none
//!                                            └──▶ Authentication::run ── Authenticator ──▶ identities, or a refusal
//! ```
//!
//! - [`Tls`] holds the server's certificate and the authorities of clients' certificates. Both can be
//!   replaced while connections are open.
//! - The identity of a client with a verified certificate is the certificate's SPIFFE id. For any other
//!   client the identities are those of the first [`Authenticator`] that accepts the metadata of its request.
//! - [`HalfOpen`] limits unauthenticated connections, so that silent ones do not block others. [`Budget`]
//!   limits shared resources, [`Slots`] those of each client, [`Pace`] and [`Metered`] the rate at which a
//!   client is read.
//!
//! The crate is independent of the protocol behind the handshake and of the validation of tokens, which
//! callers provide.

mod authentication;
mod budget;
mod certificate;
mod context;
mod der;
mod half_open;
mod local;
mod log_limit;
mod meter;
mod network;
mod pace;
mod rate;
mod refusals;
mod slots;
mod spiffe;
mod tls;
mod validity;

pub use authentication::{
    Authenticated, Authentication, Authenticator, Call, Proof, Unauthenticated, Unproven,
};
pub use budget::{Budget, Exceeded, Shares};
pub use certificate::{CERTIFICATE, spiffe_ids};
pub use context::TlsContext;
pub use half_open::{HalfOpen, Handshake};
pub use local::{is_forwarding_header, is_this_machine};
pub use log_limit::LogLimit;
pub use meter::{FrameRates, KnownStream, KnownStreams, Metered, OnWait};
pub use network::network_of;
pub use pace::Pace;
pub use rate::Rate;
pub use refusals::{Attempt, Credential, RefusalLimit};
pub use slots::{Slot, Slots};
pub use spiffe::WorkloadId;
pub use tls::{Authorities, Pem, ServerCertificate, Tls, TlsError};
