//! Measures xDS servers: a load client that behaves as N proxies, and a mesh for it in which each proxy differs.
//!
//! Nothing here is shared with what it measures, so that any server can be. The messages are a hand-declared subset of
//! the xDS protocol, so that this crate builds in seconds and the client spends its time on the socket.
//!
//! - [`connection`]: one stream on a connection of its own; [`session`]: the protocol state of one proxy, without IO;
//!   [`content`]: what the proxies hold together.
//! - [`server`]: a server as a process: how it is started, its CPU time and memory.
//! - [`mesh`]: Services, Pods and settings, their proxies, and what they cost.

pub mod connection;
pub mod content;
pub mod mesh;
pub mod messages;
mod names;
pub mod server;
pub mod session;
pub mod stats;
