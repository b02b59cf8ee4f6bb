//! What runs beside a workload, or is made for it: the bootstrap that connects a client to Pilotfish, and the rules that lead a
//! Pod's connections to its Envoy. Nothing here serves anything.

pub mod bootstrap;
pub mod interception;
