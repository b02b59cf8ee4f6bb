//! The admin API over plain HTTP: health, metrics, debug pages, what operators ask, and the dashboard.
//!
//! The server knows nothing of registries, translation or xDS: it is served from a [`ControlPlane`], which the binary
//! implements. Paths and field names follow istiod's.

mod access;
mod dashboard;
mod feed;
mod metrics;
mod registration_metrics;
mod routes;
mod sampler;
mod server;
mod v1;
mod views;

pub use access::Access;
pub use feed::{CHANGES, Feed, SAMPLES, SUBSCRIBERS};
pub use metrics::{Metrics, XdsType};
pub use prometheus::IntGauge;
pub use registration_metrics::RegistrationApiMetrics;
pub use routes::{ControlPlane, ENDPOINTS, router};
pub use sampler::{Sampler, millis};
pub use server::{Bound, LIMITS, ServerError};
pub use v1::{ConfigAsked, Operations, WaitFor, WhyQuery};
pub use views::{provenance, time};
