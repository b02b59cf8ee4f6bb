//! Admission webhooks: what `pilotfish validate` checks in files, they check in objects before they are stored; and what
//! `pilotfish inject` does to files, it does to Pods.
//!
//! ```text
//!  API server ── AdmissionReview ──▶ server (TLS) ──▶ routes ──▶ validate, inject (pure) ──▶ answer
//!       ▲                                ▲ certificate, swapped while running
//!       └── caBundle, failurePolicy ── controller ── Secret, shared by replicas
//! ```
//!
//! The certificates are made here, by an authority of their own: nothing else has to be installed for webhooks.

mod arrival;
mod certificate;
mod clock;
mod controller;
mod error;
pub mod inject;
mod probe;
mod registration;
mod review;
mod routes;
mod server;
mod store;
mod validate;
mod watch;

pub use certificate::CertificateLifetimes;
pub use controller::{Clock, WebhookController, WebhookControllerSettings};
pub use registration::{INJECTOR, VALIDATOR};
pub use routes::{Observer, Outcome, router};
pub use server::{Bound, Certificates, LIMITS, ServerError};
pub use store::SECRET;
pub use validate::{Analysis, RevisionNow, Validator};

/// Limits by the names that answers and metrics give them, beside those of connections ([`LIMITS`]).
pub const NAMED_LIMITS: [(&str, usize); 3] = [
    ("review-bytes", arrival::LARGEST),
    ("review-values", review::MOST_VALUES),
    ("reviews-in-memory", arrival::SMALL_AT_A_TIME),
];
