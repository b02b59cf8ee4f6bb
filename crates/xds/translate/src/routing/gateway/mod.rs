//! Gateways: servers of routers.
//!
//! ```text
//! Gateway  ┐
//! Ingress  ├─▶ AllGateways: headers ─▶ RouterGateways: of one router ─▶ MergedGatewaysOf: servers by port
//! Gateway  ┘                           GatewayOf(id): the servers                         and by route
//! (Gateway API)
//! ```
//!
//! A router has the gateways whose selector matches its labels, or (Gateway API) whose Service selects it.
//! Their servers are merged by port: several plain HTTP servers share a listener and a route, TLS servers are
//! distinguished by SNI, and servers that conflict with older ones are left out.

mod index;
mod merge;
mod router;
mod server;

pub(crate) use index::{AllGateways, GatewayOf};
pub(crate) use merge::{MergedGatewaysOf, PortServers};
pub(crate) use router::RouterGateways;
pub(crate) use server::{MergedServer, ServerRoutes};

#[cfg(test)]
mod tests;
