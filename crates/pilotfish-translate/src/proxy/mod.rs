//! What is known of one proxy: what its node says ([`Proxy`]), and what the registries know of the workload that it belongs to.

pub(crate) mod locality;
mod node;
pub(crate) mod proxy_config;
pub(crate) mod targets;
pub(crate) mod workload;

pub use node::{Identity, InterceptionMode, NodeError, NotItsIdentity, Proxy, ProxyKind};
