//! Policies on traffic and workloads: all configuration except routing.

pub(crate) mod attachment;
pub(crate) mod destination_rule;
pub(crate) mod peer_authentication;
pub(crate) mod provider;
pub(crate) mod security;
pub(crate) mod telemetry;
pub(crate) mod wasm;
