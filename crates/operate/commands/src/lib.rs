//! Commands that do more than ask a running control plane: they read files, clusters and other servers, or
//! run a program. Commands that only ask are in `pilotfish_cli`.
//!
//! ```text
//! files ─▶ plan_files ─▶ plan (registries that read objects, World) ─▶ plan, validate, why --files
//! clusters ─▶ port forwards, Pods of proxies, remote secrets;  istiod ─▶ its resources
//! ```

mod bench;
mod cluster;
mod crds;
mod inject;
mod istiod;
mod plan;
mod plan_files;
mod proxy_cluster;
mod register;
mod remote_secret;
mod replay;
mod validate;
mod why_files;

pub use bench::Bench;
pub use cluster::dial as dial_cluster;
pub use crds::Crds;
pub use inject::Inject;
pub use istiod::read as read_istiod;
pub use plan::run as plan;
pub use proxy_cluster::open as open_proxy_cluster;
pub use register::Register;
pub use remote_secret::RemoteSecret;
pub use replay::Replay;
pub use validate::Validate;
pub use why_files::run as why_files;
