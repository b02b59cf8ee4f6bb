//! Authentication of clients, for listeners.
//!
//! ```text
//!   socket ── TlsContext::handshake ──▶ certificate ── spiffe_ids ──▶ identities
//!                                            │ none
//!                                            └─▶ Authentication::run ─ Authenticator ─▶ identities, refusal
//! ```
//!
//! - [`Tls`] holds the server's certificate and the authorities of clients' certificates. Both can be
//!   replaced while connections are open.
//! - The identity of a client with a verified certificate is the certificate's SPIFFE id. For any other
//!   client the identities are those of the first [`Authenticator`] that accepts the metadata of its request.
//!
//! The crate is independent of the protocol behind the handshake and of the validation of tokens, which
//! callers provide.

mod authentication;
mod certificate;
mod context;
mod der;
mod local;
mod spiffe;
mod tls;
mod validity;

pub use authentication::{
    Authenticated, Authentication, Authenticator, Call, Proof, Unauthenticated, Unproven,
};
pub use certificate::{CERTIFICATE, spiffe_ids};
pub use context::TlsContext;
pub use local::{is_forwarding_header, is_this_machine};
pub use spiffe::WorkloadId;
pub use tls::{Authorities, Pem, ServerCertificate, Tls, TlsError};
