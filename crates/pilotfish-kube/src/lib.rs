//! Live Kubernetes: the objects of a cluster by watches, as a source for the registries.
//!
//! ```text
//!  API server ── lists and watches ──▶ Reflector, one per kind ── Change ──▶ Source ── SourceBatch ──▶ control loop
//!                (kube client, IO)     (pure: what differs)                  (pure: one voice per cluster)
//! ```
//!
//! Secrets with kubeconfigs name further clusters ([`remote`]): each is a source of its own.
//!
//! A source that cannot reach its API server says so and takes nothing away. When it is back, it goes on where it was; when
//! that is no longer possible it lists anew and tells what differs, so that nobody downstream sees a gap.

pub mod client;
pub mod remote;
pub mod request;
mod source;
pub mod token_review;
pub mod watch;

pub use source::{Broken, Kinds, KubeSource, KubeSourceSettings, has_status, resources_of};
pub use watch::{Observer, Silent, Watched};
