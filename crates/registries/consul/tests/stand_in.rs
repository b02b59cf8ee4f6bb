//! The registry against the stand-in for Consul: what is registered becomes services and endpoints, and what
//! goes wrong takes nothing away.

#[path = "stand_in/faults.rs"]
mod faults;
#[path = "stand_in/mapping.rs"]
mod mapping;
#[path = "stand_in/scale.rs"]
mod scale;
#[path = "stand_in/security.rs"]
mod security;
#[path = "stand_in/support.rs"]
mod support;
