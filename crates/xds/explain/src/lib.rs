//! Explanations of the configuration that proxies receive: readable resources, effects of a change, and the
//! path of a request.
//!
//! ```text
//! two worlds ─▶ own Translator ─▶ resources of the proxies before and after ─▶ differences, dangers, diffs
//! a request  ─▶ resources of a proxy: listener ─▶ route ─▶ cluster ─▶ endpoints, causes of exclusion
//! ```
//!
//! This crate makes no decisions about traffic: it reads the resources that proxies receive, and calls the
//! queries that build them.

mod around;
mod plan;
mod resource;
mod subject;
mod why;

pub use around::{ProxyCounts, namespaces, service, service_map};
pub use plan::{Held, Planned, held, held_until, plan, plan_until, unified};
pub use resource::{json, section};
pub use subject::{Subject, gateways_of, proxy_named, subjects_of, subjects_of_change};
pub use why::{Request, why, why_endpoint, why_object};
