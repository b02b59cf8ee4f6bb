//! The admin API over plain HTTP: health, metrics and debug pages.
//!
//! The server knows nothing of registries, translation or xDS: it is served from a [`ControlPlane`], which the binary
//! implements. Paths and field names follow istiod's.

mod access;
mod catalogue;
mod change_metrics;
mod metrics;
mod process;
mod process_metrics;
mod registration_metrics;
mod routes;
mod server;
mod v1;
mod views;
mod webhook_metrics;

pub use access::Access;
pub use catalogue::MetricDescription;
pub use change_metrics::ChangeMetrics;
pub use metrics::{Metrics, XdsType};
pub use prometheus::IntGauge;
pub use registration_metrics::RegistrationApiMetrics;
pub use routes::{ControlPlane, ENDPOINTS, router};
pub use server::{Bound, LIMITS, ServerError};
pub use v1::{HistoryQuery, Operations, WaitFor, WhyQuery};
pub use views::{provenance, time};
pub use webhook_metrics::{ReviewedObject, WebhookMetrics};
