//! Checks of `gateway.networking.k8s.io`.

pub(super) mod backend_tls;
pub(super) mod filters;
pub(super) mod gateway;
pub(super) mod routes;
