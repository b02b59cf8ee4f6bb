//! A stand-in for a Polaris server, written from its documentation and from recorded exchanges: the real one cannot be had from a
//! package registry.
//!
//! It speaks HTTP and gRPC on real sockets. Each rule names where it comes from: `[console]` and `[client]`, the HTTP APIs of Polaris'
//! documentation, `[grpc]`, its protocol buffers, or `[rec FILE]`, a recorded exchange with a server of June 2025.
//! `tests/polaris.rs` replays the recordings. It knows nothing of Pilotfish's client.
//!
//! Not here: rules (routing, limits, circuit breakers), the server's own xDS, roles, and users but for the token of one.

mod aliases;
mod batch;
mod checks;
mod codes;
mod discover;
mod element;
mod faults;
pub mod grpc;
mod http;
mod options;
mod query;
mod server;
mod store;

pub use faults::{PolarisFault, Seen};
pub use options::PolarisOptions;
pub use server::Polaris;
