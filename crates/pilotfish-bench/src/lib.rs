//! What measures Pilotfish: the load client of `pilotfish-load`, servers that only broadcast (what an xDS
//! server can cost at best), and the comparison of the two with Pilotfish in one run.
//!
//! Nothing here is shared with what it measures, and nothing here ships. The messages are a hand-declared subset of
//! the xDS protocol, so that this crate builds in seconds and the client spends its time on the socket.
//!
//! - [`fleet`]: N streams on N connections ([`connection`]), each with its protocol state ([`session`]).
//! - [`broadcast`]: the plain servers, on tonic and on the h2 crate.
//! - [`world`]: Services and EndpointSlices as YAML files, and the one change that is measured.
//! - [`server`]: a server as a process of its own, with its CPU time and memory.
//! - [`mesh`]: the bench of a mesh in which every proxy differs.
//! - [`scale`]: size and trouble: large worlds, many streams, storms, slow readers, churn.
//! - [`compare`]: the phases of the bench; [`report`]: its table and bars.

// The bench is a command-line tool: its output is the terminal.
#![allow(clippy::print_stdout, clippy::print_stderr)]

pub mod broadcast;
pub mod compare;
pub mod fleet;
pub mod mesh;
pub mod report;
pub mod scale;
pub mod server;
pub mod world;

pub use pilotfish_load::{connection, messages, session, stats};
