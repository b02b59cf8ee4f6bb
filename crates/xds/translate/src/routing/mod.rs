//! Routing: VirtualServices, Gateways, Ingresses and the Gateway API, as virtual services by host and servers
//! of routers.
//!
//! ```text
//! VirtualService ┐                    ┌ index: RulesFor { namespace, gateway }, RuleOf(id)
//! Ingress        ├─▶ ir, collected by ┤
//! Gateway API    ┘                    └ gateway: the servers of one router, merged
//! ```
//!
//! Dependencies go one way: `virtual_service`, `ingress` and `gateway_api` (the producers) use `ir` and never
//! one another; `redirect_loop` judges redirects for them and for the analysis; `index` and `gateway` use the
//! producers. The module `scope`, which uses this one, selects the
//! virtual services that a sidecar imports.

pub(crate) mod gateway;
pub(crate) mod gateway_api;
mod index;
pub(crate) mod ingress;
pub(crate) mod ir;
pub(crate) mod redirect_loop;
mod source;
mod virtual_service;

pub(crate) use index::{AllVirtualServices, VirtualServiceOf, VirtualServicesByHost, VirtualServicesFor};
pub(crate) use ir::{
    HttpRule, MESH, RouteDialect, VirtualServiceHeader, VirtualServiceId, VirtualServiceIr,
    destination_cluster, destination_port,
};
pub(crate) use source::{Source, SourceLabels};
pub use virtual_service::RefusedDelegate;
pub(crate) use virtual_service::{MAX_VIRTUAL_SERVICE_BYTES, RefusedDelegates};
pub(crate) use virtual_service::{delegate_key, gateway_name, header as header_of};
