//! Checks of `networking.istio.io`.

pub(super) mod destination_rule;
pub(super) mod envoy_filter;
pub(super) mod gateway;
pub(super) mod http_fault;
pub(super) mod http_match;
pub(super) mod http_route;
pub(super) mod locality;
pub(super) mod service_entry;
pub(super) mod sidecar;
pub(super) mod stream_route;
pub(super) mod tls;
pub(super) mod virtual_service;
pub(super) mod workload;
