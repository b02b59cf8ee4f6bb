//! The server API of Netflix's Eureka on the registrar: programs register and discover with the client that
//! they have.
//!
//! ```text
//! JSON, XML ─ wire ─▶ InstanceInfo ─ record ─▶ Registration ─▶ registrar
//!                     answer ◀─ Catalog (changes of three minutes) ◀─ directory
//! ```
//!
//! A registration keeps the client's document in its metadata, so every Pilotfish on the store answers with
//! it. The catalog is derived from the directory alone and can be dropped at any time.

mod answer;
mod calls;
mod catalog;
mod path;
mod recent;
mod record;
mod replication;
mod router;
mod wire;
mod xml;

pub use calls::EurekaApi;

use std::num::NonZeroU16;
use std::sync::Arc;

/// Mapping of applications to services. The defaults are those of the registry that reads Eureka's servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EurekaSettings {
    /// Namespace of the services.
    pub namespace: Arc<str>,
    /// Domain of the hosts: application `ORDERS` is `orders.DOMAIN`.
    pub domain: Arc<str>,
    /// Port that clients connect to, whichever the first port of an instance is; `None` for that port.
    pub service_port: Option<NonZeroU16>,
}

impl Default for EurekaSettings {
    fn default() -> Self {
        Self { namespace: "default".into(), domain: "eureka".into(), service_port: None }
    }
}
