//! Facts about one proxy: its node ([`Proxy`]), and its workload in the registries.

mod ip_families;
pub(crate) mod locality;
mod metadata;
mod node;
pub(crate) mod proxy_config;
mod secret_access;
pub(crate) mod selectors;
pub(crate) mod targets;
pub(crate) mod workload;

pub(crate) use ip_families::IpFamilies;
pub use metadata::Metadata;
pub(crate) use node::DUBBO_PROXY;
pub use node::{
    CERTIFICATES_KEY, CERTIFICATES_OVER_ADS, Identity, InterceptionMode, MAX_ADDRESSES, MAX_LABELS,
    NodeError, NotItsIdentity, PodPort, Proxy, ProxyKind, WasmSupport,
};
pub use secret_access::SecretAccess;
