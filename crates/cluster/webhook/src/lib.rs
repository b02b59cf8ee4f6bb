//! Admission webhooks: validation of objects before they are stored, like `pilotfish validate` for files, and
//! sidecar injection into Pods, like `pilotfish inject` for files.
//!
//! ```text
//!  API server ── AdmissionReview ──▶ server (TLS) ──▶ routes ──▶ validate, inject (pure) ──▶ answer
//!       ▲                                ▲ certificate, swapped while running
//!       └── caBundle, failurePolicy ── controller ── Secret, shared by replicas
//! ```
//!
//! The certificates are issued by an own authority: webhooks need no other component.

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
mod yaml_template;

pub use certificate::CertificateLifetimes;
pub use controller::{Clock, WebhookController, WebhookControllerSettings};
pub use registration::{INJECTOR, VALIDATOR};
pub use routes::{Observer, Outcome, router};
pub use server::{Bound, Certificates, LIMITS, ServerError};
pub use store::SECRET;
pub use validate::{Analysis, RevisionNow, Validator};
pub use yaml_template::{YamlTemplate, YamlTemplateError};

/// Limits with their names in responses and metrics, beside those of connections ([`LIMITS`]).
pub const NAMED_LIMITS: [(&str, usize); 3] = [
    ("review-bytes", arrival::LARGEST),
    ("review-values", review::MOST_VALUES),
    ("reviews-in-memory", arrival::SMALL_AT_A_TIME),
];
