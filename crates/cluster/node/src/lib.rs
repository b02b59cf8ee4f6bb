//! Tools for a workload's node: the bootstrap that connects a client to Pilotfish, and the rules that
//! redirect a Pod's connections to its Envoy. Contains no servers.

pub mod bootstrap;
pub mod injection;
pub mod interception;
