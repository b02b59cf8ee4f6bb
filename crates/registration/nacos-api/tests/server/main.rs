//! The API over HTTP and gRPC, with a store in memory.

#![allow(clippy::unwrap_used, reason = "a test fails this way")]

mod access;
mod grpc;
mod harness;
mod http;
