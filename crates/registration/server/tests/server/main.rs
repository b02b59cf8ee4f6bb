//! The server over real sockets, on a store in memory.

#![allow(clippy::unwrap_used, reason = "a test fails this way")]

mod access;
mod bad_input;
mod grpc;
mod harness;
mod json;
mod limits;
mod tls;
mod watch;
