//! Reader of live Kubernetes clusters: watches objects, as a source for the registries. Writing is
//! `pilotfish-kube-writer`.
//!
//! ```text
//!  API server ─ lists, watches ──▶ Reflector, one per kind ─ Change ─▶ Source ─ SourceBatch ─▶ control loop
//!               (kube client, IO)  (pure: differences)                 (pure: one per cluster)
//! ```
//!
//! Secrets with kubeconfigs name further clusters ([`remote`]), each of which is a source of its own.
//!
//! A source that cannot reach its API server reports that and removes nothing. After the outage it resumes
//! its watches; where that is no longer possible, it lists again and sends the differences, so downstream
//! sees no gap.

pub mod access_review;
pub mod client;
mod pods;
mod port_forward;
pub mod remote;
pub mod request;
mod revision_tags;
mod service_account_token;
mod source;
pub mod token_review;
pub mod watch;

pub use pods::each_pod;
pub use port_forward::{ForwardError, Forwarded, ForwardedPod, WantedPod};
pub use revision_tags::RevisionTags;
pub use service_account_token::request_token;
pub use source::{Kinds, KubeSource, KubeSourceSettings, SourceError, has_status, resources_of};
pub use watch::{NoopObserver, Observer, WatchEvent};
