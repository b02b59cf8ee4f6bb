//! The server API of Nacos's naming on the registrar: programs register and discover with the client that
//! they have.
//!
//! ```text
//! HTTP (v1, v2) ─ call, params ─┐
//!                               ├─▶ calls ─ record ─▶ Registration ─▶ registrar ─ changes ─┐
//! gRPC ─ grpc, messages ────────┘                                                          │
//! subscribers ◀─ pushes ─ connections ◀────────────────────────────────────────────────────┘
//! ```
//!
//! A registration keeps the client's instance in its metadata, so every Pilotfish on the store answers with
//! it. Ephemeral instances of gRPC clients live as long as their connection, whose server renews their
//! leases; those of HTTP clients live by their own beats.

mod answer;
mod call;
mod calls;
mod catalog;
mod connections;
mod grpc;
mod keeper;
mod messages;
mod params;
mod record;
mod router;
mod service;

pub use calls::NacosApi;

use std::num::NonZeroU16;
use std::sync::Arc;

/// Offset of the port for gRPC from that for HTTP, which clients know.
pub const GRPC_OFFSET: u16 = 1000;

/// Mapping of services. The defaults are those of the registry that reads Nacos's servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NacosSettings {
    /// Namespace of the services; those of Nacos are in the hosts.
    pub namespace: Arc<str>,
    /// Port that clients connect to, whichever the first port of an instance is; `None` for that port.
    pub service_port: Option<NonZeroU16>,
}

impl Default for NacosSettings {
    fn default() -> Self {
        Self { namespace: "default".into(), service_port: None }
    }
}
