//! Benchmarks of Pilotfish: the load client of `pilotfish-load`, servers that only broadcast (the minimum
//! cost of an xDS server), and the comparison of the two with Pilotfish in one run.
//!
//! Shares no code with the measured server, and is not shipped. The messages are a hand-declared subset of
//! the xDS protocol, so that this crate builds in seconds and the client spends its time on the socket.
//!
//! - [`fleet`]: N streams on N connections ([`connection`]), each with its protocol state ([`session`]).
//! - [`broadcast`]: the broadcast servers, on tonic and on the h2 crate.
//! - [`world`]: Services and EndpointSlices as YAML files, and the measured change.
//! - [`server`]: a server process, with its CPU time and memory.
//! - [`mesh`]: the benchmark of a mesh in which every proxy is different.
//! - [`scale`]: large worlds, many streams, storms, slow readers, churn.
//! - [`certificates`]: certificates signed through gRPC, beside rcgen alone.
//! - [`compare`]: the phases of the comparison; [`report`]: its table and bars.

// A command-line tool prints to the terminal.
#![allow(clippy::print_stdout, clippy::print_stderr)]

pub mod broadcast;
pub mod certificates;
pub mod compare;
pub mod fleet;
pub mod mesh;
pub mod report;
pub mod scale;
pub mod server;
pub mod world;

pub use pilotfish_load::{connection, messages, session, stats};
