//! Stock gRPC libraries (Python's grpcio and Node's grpc-js) as clients that resolve `xds:///` names through
//! Pilotfish, and as servers that get their listeners from it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod clients;
mod document;
mod mesh;
mod peer;
mod rules;
mod secure;
mod servers;
