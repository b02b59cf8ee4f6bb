//! Limits on the configuration of one proxy, by their names in docs/limits.md.

use crate::envoy_filter::{MAX_PATCH_BYTES, MAX_PATCHES};
use crate::routing::MAX_VIRTUAL_SERVICE_BYTES;
use crate::services::alias::MAX_ALIAS_CHAIN;
use crate::translator::{MAX_PROXY_BYTES, MAX_PROXY_RESOURCES};
use crate::xds::cds::{MAX_SERVICE_CLUSTERS, MAX_SERVICE_CLUSTERS_BYTES};
use crate::xds::lds::{MAX_CHAIN_CONDITIONS, MAX_LISTENER_BYTES, MAX_PORT_LISTENERS_BYTES};
use crate::xds::rds::{MAX_ROUTE_BYTES, MAX_ROUTES, MAX_VIRTUAL_HOSTS};

/// Limits on resources generated from several objects. For limits on single objects, see
/// [`pilotfish_config::OBJECT_LIMITS`].
pub const LIMITS: [(&str, usize); 14] = [
    ("virtual-service-bytes", MAX_VIRTUAL_SERVICE_BYTES),
    ("port-listeners-bytes", MAX_PORT_LISTENERS_BYTES),
    ("route-configuration-routes", MAX_ROUTES),
    ("route-configuration-hosts", MAX_VIRTUAL_HOSTS),
    ("route-configuration-bytes", MAX_ROUTE_BYTES),
    ("service-clusters", MAX_SERVICE_CLUSTERS),
    ("service-clusters-bytes", MAX_SERVICE_CLUSTERS_BYTES),
    ("listener-bytes", MAX_LISTENER_BYTES),
    ("chain-conditions", MAX_CHAIN_CONDITIONS),
    ("proxy-patches", MAX_PATCHES),
    ("proxy-patches-bytes", MAX_PATCH_BYTES),
    ("proxy-resources", MAX_PROXY_RESOURCES),
    ("proxy-bytes", MAX_PROXY_BYTES),
    ("alias-chain", MAX_ALIAS_CHAIN),
];
