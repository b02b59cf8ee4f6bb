//! What routes, listeners and servers are made from.

pub(crate) mod gateway;
pub(crate) mod gateway_api;
pub(crate) mod ingress;
pub(crate) mod virtual_service;
