//! Simulated Polaris server, written from its documentation and from recorded exchanges, since the real one
//! is not available from a package registry.
//!
//! It serves HTTP and gRPC on real sockets. Each rule names its source: `[console]` and `[client]`, the HTTP
//! APIs in Polaris' documentation, `[grpc]`, its protocol buffers, or `[rec FILE]`, a recorded exchange with
//! a server of June 2025. `tests/polaris.rs` replays the recordings. It does not depend on Pilotfish's
//! client.
//!
//! Not simulated: rules (routing, limits, circuit breakers), the server's own xDS, roles, and users except
//! for the token of one.

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
