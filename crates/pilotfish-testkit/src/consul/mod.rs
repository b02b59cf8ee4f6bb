//! A stand-in for a Consul agent, written from HashiCorp's documentation: the real one cannot be had from a package registry.
//!
//! It speaks HTTP/1.1 over TCP, and HTTP/1.1 or HTTP/2 over TLS, on real sockets. Each rule names the page that it comes from, as
//! `[blocking]`: a page of Consul's HTTP API documentation (`api-docs/...`), or `[config]`, the agent's configuration reference.
//! Where the documentation leaves something open, the stand-in does what costs a client most: it wakes queries more often than
//! it must, never less. It knows nothing of Pilotfish's client; clients that others wrote are tried against it in
//! `tests/real_consul_clients.rs`.
//!
//! Not here: Connect, peering, prepared queries, Enterprise's namespaces, and the running of HTTP, TCP and script checks (such a
//! check keeps the status that it is given).

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
