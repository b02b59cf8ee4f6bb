//! The common form (intermediate representation) of VirtualServices and gateways. Ingresses and the objects
//! of the Gateway API are read into it, too, so that nothing behind it knows more than one kind of route or
//! of gateway.
//!
//! Headers (hosts, gateways, visibility) are apart from content (routes, servers), so that a change of some
//! route does not recompute which rule serves a host.

mod destination;
mod gateway;
mod http_rule;
mod server_host;
mod virtual_service;

pub(crate) use destination::{destination_cluster, destination_port};
pub(crate) use gateway::{Gateway, GatewayHeader, GatewayId, Selection};
pub(crate) use http_rule::HttpRule;
pub(crate) use server_host::{ServerHost, WrittenHosts};
pub(crate) use virtual_service::{
    MESH, RouteDialect, VirtualServiceHeader, VirtualServiceId, VirtualServiceIr,
};
