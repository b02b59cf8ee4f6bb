//! Gateways: what routers listen on.
//!
//! ```text
//! Gateway  ┐
//! Ingress  ├─▶ AllGateways: headers ─▶ Bound: those of one router ─▶ MergedOf: servers by port and by route
//! Gateway  ┘                           GatewayOf(id): the servers
//! (Gateway API)
//! ```
//!
//! A router has the gateways whose selector fits its labels, or (Gateway API) whose Service leads to it. Their servers are
//! merged by port: several plain HTTP servers share a listener and a route, TLS servers are told apart by SNI, and what cannot
//! live together with an older server is left out.

mod bound;
mod index;
mod merge;
mod server;

pub(crate) use bound::Bound;
pub(crate) use index::{AllGateways, GatewayOf};
pub(crate) use merge::{MergedOf, PortServers};
pub(crate) use server::MergedServer;

#[cfg(test)]
mod tests;
