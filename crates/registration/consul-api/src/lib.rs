//! Consul's HTTP API on the registrar: programs register and discover with the client that they have.
//!
//! ```text
//! JSON ─ fields ─▶ Service ─ record ─▶ Registration ─▶ registrar
//!        answer ◀─ forms ◀─ Catalog (with the indexes of blocking queries) ◀─ directory
//! ```
//!
//! A registration keeps the client's definition in its metadata, so every Pilotfish on the store answers with
//! it. The agent of a client is its address: ids are unique among the services that one address registers.
//! The catalog is derived from the directory alone and can be dropped at any time.

mod answer;
mod calls;
mod catalog;
mod checks;
mod fields;
mod filter;
mod forms;
mod path;
mod query;
mod record;
mod router;
mod service;
mod wait;

pub use calls::ConsulApi;

use std::num::NonZeroU16;
use std::sync::Arc;

/// Mapping of Consul's services. The defaults are those of the registry that reads Consul's agents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsulSettings {
    /// Namespace of the services.
    pub namespace: Arc<str>,
    /// Name of the data centre in answers.
    pub datacenter: Arc<str>,
    /// Port that clients connect to, whichever port an instance has; `None` for that port.
    pub service_port: Option<NonZeroU16>,
}

impl Default for ConsulSettings {
    fn default() -> Self {
        Self { namespace: "default".into(), datacenter: "dc1".into(), service_port: None }
    }
}
