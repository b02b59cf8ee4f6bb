//! `gateway.networking.k8s.io`: the Gateway API, with the defaults that its definitions give to the API
//! server.
//!
//! The types have the fields and JSON forms of <https://gateway-api.sigs.k8s.io/reference/spec/>; those that
//! nothing here reads are [`Unread`](crate::Unread). v1, v1beta1 and v1alpha2 are read alike.
#![allow(
    missing_docs,
    reason = "fields carry the names and the meaning of the Gateway API reference, linked above"
)]

mod backend_tls;
mod filters;
mod gateway;
mod grpc_route;
mod http_route;
mod managed;
mod options;
mod reference;
mod stream_routes;

pub use backend_tls::*;
pub use filters::*;
pub use gateway::*;
pub use grpc_route::*;
pub use http_route::*;
pub use managed::*;
pub use options::*;
pub use reference::*;
pub use stream_routes::*;
