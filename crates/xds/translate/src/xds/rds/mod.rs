//! Route configurations (RDS).
//!
//! ```text
//! name ─▶ port ─▶ PlanOf: virtual service of each host ─▶ RoutesOf { rule } | HashingOf { host } ─┐
//!                                                virtual hosts with domains ◀─────────────────────┘
//! ```
//!
//! The routes of a virtual service, and the hash policy of a service without one, are separate results: a
//! change of one does not recompute the others.
#![allow(
    deprecated,
    reason = "Envoy's newer field for gRPC timeouts has other semantics, so Istio's proxies are sent the \
        older one"
)]

mod action;
mod budget;
mod catch_all;
mod convert;
mod cors;
mod domains;
mod encode;
mod encoded_routes;
mod fault;
mod gateway;
mod grpc;
mod hash_policy;
mod headers;
mod matches;
mod path_prefix;
mod plan;
mod redirect;
pub(in crate::xds) mod retry;
mod routes;
mod services;
mod sidecar;
mod view;

pub(crate) use budget::{MAX_ROUTE_BYTES, MAX_ROUTES, MAX_VIRTUAL_HOSTS};
pub(crate) use catch_all::of_unknown_addresses;
pub(crate) use matches::takes_every_request;
pub(crate) use view::RouteView;

use self::encode::Host;
use crate::engine::{Cx, EncodedResource, ResourceBatch, ResourceBatchKey};
use crate::proxy::ProxyKind;
use pilotfish_model::Origin;
use pilotfish_proto::envoy::config::route::v3::RouteConfiguration;
use std::sync::Arc;

impl RouteView {
    /// Generates the resources of one batch.
    #[must_use]
    pub(crate) fn generate(&self, cx: &Cx<'_>, batch_key: &ResourceBatchKey) -> ResourceBatch {
        let ResourceBatchKey::Named(name) = batch_key else { return ResourceBatch::default() };
        let resource = match self.facets.scope.kind {
            ProxyKind::Sidecar => Some(sidecar::route_configuration(self, cx, name)),
            ProxyKind::Grpc => grpc::route_configuration(self, cx, name),
            ProxyKind::Router => Some(gateway::route_configuration(self, cx, name)),
        };
        Vec::from_iter(resource).into()
    }
}

impl RouteView {
    /// Returns true if no route configuration can have the name, in any world.
    #[must_use]
    pub(crate) fn is_meaningless(&self, name: &str) -> bool {
        self.facets.scope.kind == ProxyKind::Sidecar && sidecar::is_meaningless(name)
    }
}

/// Returns the route configuration for a name that has none.
pub(crate) fn empty(name: &Arc<str>) -> EncodedResource {
    let config =
        RouteConfiguration { name: name.to_string(), validate_clusters: Some(false), ..Default::default() };
    EncodedResource::new(name.clone(), &config, Vec::new()).standing_in()
}

/// The largest body of a direct response, in bytes.
const MAX_DIRECT_RESPONSE_BODY: u32 = 1 << 20;

/// Adds the settings that every route configuration has.
fn with_common_settings(config: RouteConfiguration) -> RouteConfiguration {
    RouteConfiguration {
        validate_clusters: Some(false),
        max_direct_response_body_size_bytes: Some(MAX_DIRECT_RESPONSE_BODY),
        ..config
    }
}

/// Adds the settings of every route configuration, and encodes it with its virtual hosts.
fn finish(config: RouteConfiguration, hosts: &[Host], provenance: Vec<Origin>) -> EncodedResource {
    let config = with_common_settings(config);
    let encoded = encode::encode(&config, hosts);
    EncodedResource::of_encoded::<RouteConfiguration>(config.name.as_str(), encoded, provenance)
}

#[cfg(test)]
mod tests;
