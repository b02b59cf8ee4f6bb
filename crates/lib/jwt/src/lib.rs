//! Identities of JWTs (RFC 7519), verified offline with the keys of their issuers (RFC 7517).
//!
//! ```text
//! file of rules ─▶ JwtRules ─▶ Issuers ◀─ keys ─ KeyReader ◀─ file, jwksUri, discovery
//!                                 │
//! token ──────────────────────────┴─▶ namespace and service account, or the reason for refusing it
//! ```
//!
//! A token is never a reason to wait for an issuer: the keys of the last read count, however old they are.

mod issuers;
mod keys;
mod reader;
mod rules;
mod verify;

pub use issuers::{Issuers, JwtAuthenticator};
pub use keys::KeySet;
pub use reader::{KeyReader, KeySource};
pub use rules::{JwtRules, RulesError};
pub use verify::{Account, Refused};
