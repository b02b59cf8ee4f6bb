//! Simulated Consul agent, written from HashiCorp's documentation, since the real one is not available from a
//! package registry.
//!
//! It serves HTTP/1.1 over TCP, and HTTP/1.1 or HTTP/2 over TLS, on real sockets. Each rule names its source,
//! as `[blocking]`: a page of Consul's HTTP API documentation (`api-docs/...`), or `[config]`, the agent's
//! configuration reference. If the documentation is ambiguous, the simulation does what costs a client most:
//! it wakes queries more often than necessary, never less. It does not depend on Pilotfish's client;
//! third-party clients are tested against it in `tests/real_consul_clients.rs`.
//!
//! Not simulated: Connect, peering, prepared queries, Enterprise's namespaces, and the execution of HTTP, TCP
//! and script checks (such a check keeps its given status).

mod connection;
mod filter;
mod lists;
mod options;
mod read;
mod request;
mod server;
mod store;
mod tick;
mod value;
mod write;

pub use options::{Acl, Asked, ConsulCounts, ConsulFault, ConsulOptions, ConsulTls, Rights};
pub use server::Consul;
pub(crate) use server::acceptor;
