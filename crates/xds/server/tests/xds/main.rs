//! The protocol as sequences of requests and publications, properties over random histories, and the server
//! over a socket.
// `clippy.toml` allows these in test functions; here whole modules are helpers of tests.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod acknowledged;
mod collections;
mod delta;
mod environment;
mod limits;
mod methods;
mod order;
mod parts;
mod private;
mod properties;
mod recorded;
mod secure;
mod server;
mod sotw;
mod support;
