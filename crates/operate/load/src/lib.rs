//! Measures xDS servers: a load client that simulates N proxies, and a mesh for it in which each proxy is
//! different.
//!
//! Shares no code with the measured server, so that any server can be measured. The messages are a
//! hand-declared subset of the xDS protocol, so that this crate builds in seconds and the client spends its
//! time on the socket.
//!
//! - [`connection`]: one stream on its own connection; [`session`]: the protocol state of one proxy, without
//!   IO; [`content`]: the resources of all proxies.
//! - [`reader`]: all resources of one proxy, read once; for `pilotfish compare --istiod`.
//! - [`server`]: a server process: its start, CPU time and memory.
//! - [`mesh`]: Services, Pods and settings, their proxies, and the costs.

pub mod connection;
pub mod content;
pub mod mesh;
pub mod messages;
mod names;
pub mod reader;
pub mod server;
pub mod session;
pub mod stats;
