//! Admin API over HTTP: health, metrics, debug pages, operations, and the dashboard.
//!
//! The server does not know registries, translation or xDS: it serves a [`ControlPlane`], which the binary
//! implements. Paths and field names follow istiod's.

mod abandoned;
mod access;
mod audit;
mod ca_metrics;
mod catalogue;
mod change_metrics;
mod cross_site;
mod dashboard;
mod feed;
mod flow_metrics;
mod metrics;
mod metrics_page;
mod permissions;
mod process;
mod process_metrics;
mod profile;
mod readiness;
mod registration_metrics;
mod roles;
mod routes;
mod sampler;
mod server;
mod turns;
mod v1;
mod views;
mod webhook_metrics;

pub use abandoned::Abandoned;
pub use access::Access;
pub use ca_metrics::CaMetrics;
pub use catalogue::MetricDescription;
pub use change_metrics::ChangeMetrics;
pub use feed::{CHANGES, Feed, SAMPLES, SUBSCRIBERS};
pub use flow_metrics::FlowMetrics;
pub use metrics::{Metrics, XdsType};
pub use permissions::Permissions;
pub use prometheus::IntGauge;
pub use readiness::ProblemLines;
pub use registration_metrics::RegistrationApiMetrics;
pub use roles::{Role, RoleRules, RoleTable, Roles};
pub use routes::{ControlPlane, ENDPOINTS, NOT_CONNECTED, router};
pub use sampler::{Sampler, millis};
pub use server::{ALPN, Bound, ServerError, page};
pub use v1::{ConfigAsked, HistoryQuery, Operations, WaitFor, WhyQuery};
pub use views::{provenance, time};
pub use webhook_metrics::{ReviewedObject, WebhookMetrics};

/// Limits with their names in responses and metrics, beside those of connections
/// ([`Limits::PAGES`](pilotfish_listener::Limits::PAGES)); times are in seconds.
pub const NAMED_LIMITS: [(&str, usize); 8] = [
    ("address-refusals", permissions::ADDRESS_REFUSALS as usize),
    ("debug-pages", turns::AT_A_TIME),
    ("address-debug-pages", turns::OF_AN_ADDRESS),
    ("debug-page-bytes", access::WAITING_KIB << 10),
    ("address-metrics", metrics_page::OF_AN_ADDRESS),
    ("metrics-bytes", metrics_page::WAITING_KIB << 10),
    ("metrics-time", metrics_page::PATIENCE_SECONDS),
    ("event-streams", SUBSCRIBERS),
];
