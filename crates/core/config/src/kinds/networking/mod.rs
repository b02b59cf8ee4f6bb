//! `networking.istio.io`: the traffic API of Istio 1.29. v1, v1beta1 and v1alpha3 are read alike.
//!
//! The types have the fields, names and proto JSON forms of
//! <https://istio.io/latest/docs/reference/config/networking/>. In a validated object, at most one field of a
//! `oneof` is set.
#![allow(
    missing_docs,
    reason = "fields carry the names and the meaning of Istio's API reference, linked above"
)]

mod destination_rule;
mod envoy_filter;
mod gateway;
mod proxy_config;
mod service_entry;
mod sidecar;
mod virtual_service;
mod workload_entry;
mod workload_group;

pub use destination_rule::*;
pub use envoy_filter::*;
pub use gateway::*;
pub use proxy_config::*;
pub use service_entry::*;
pub use sidecar::*;
pub use virtual_service::*;
pub use workload_entry::*;
pub use workload_group::*;
