//! EnvoyFilter: patches on the resources sent to proxies.

use super::LabelSelector;
use crate::PolicyTargetReference;
use crate::kinds::message::{enumeration, kind, message};
use std::collections::BTreeMap;

kind!(EnvoyFilter = EnvoyFilter;);

message! {
/// Patches for the selected proxies.
pub struct EnvoyFilter {
    pub workload_selector: Option<LabelSelector>,
    pub target_refs: Vec<PolicyTargetReference>,
    pub config_patches: Vec<EnvoyConfigObjectPatch>,
    pub priority: i32,
}

/// A patch: conditions, type of element, and change.
pub struct EnvoyConfigObjectPatch {
    pub apply_to: ApplyTo,
    pub r#match: Option<EnvoyConfigObjectMatch>,
    pub patch: Option<Patch>,
}

/// Conditions for a patch. The object matches are a oneof.
pub struct EnvoyConfigObjectMatch {
    pub context: PatchContext,
    pub proxy: Option<ProxyMatch>,
    pub listener: Option<ListenerMatch>,
    pub route_configuration: Option<RouteConfigurationMatch>,
    pub cluster: Option<ClusterMatch>,
    pub waypoint: Option<WaypointMatch>,
}

/// Conditions on the proxy.
pub struct ProxyMatch {
    pub proxy_version: String,
    pub metadata: BTreeMap<String, String>,
}

/// Conditions on a cluster.
pub struct ClusterMatch {
    pub port_number: u32,
    pub service: String,
    pub subset: String,
    pub name: String,
}

/// Conditions on a route configuration.
pub struct RouteConfigurationMatch {
    pub port_number: u32,
    pub port_name: String,
    pub gateway: String,
    pub vhost: Option<VirtualHostMatch>,
    pub name: String,
}

/// Conditions on a virtual host.
pub struct VirtualHostMatch {
    pub name: String,
    pub domain_name: String,
    pub route: Option<RouteMatch>,
}

/// Conditions on a route.
pub struct RouteMatch {
    pub name: String,
    pub action: RouteAction,
}

/// Conditions on a listener.
pub struct ListenerMatch {
    pub port_number: u32,
    pub port_name: String,
    pub filter_chain: Option<FilterChainMatch>,
    pub listener_filter: String,
    pub name: String,
}

/// Conditions on a filter chain.
pub struct FilterChainMatch {
    pub name: String,
    pub sni: String,
    pub transport_protocol: String,
    pub application_protocols: String,
    pub filter: Option<FilterMatch>,
    pub destination_port: u32,
    /// Name of the transport socket; of Istio 1.32.
    pub transport_socket: String,
}

/// Conditions on a network filter.
pub struct FilterMatch {
    pub name: String,
    pub sub_filter: Option<SubFilterMatch>,
}

/// Conditions on an HTTP filter.
pub struct SubFilterMatch {
    pub name: String,
}

/// Conditions on resources of a waypoint.
pub struct WaypointMatch {
    pub port_number: u32,
    pub filter: Option<FilterMatch>,
    pub route: Option<WaypointRouteMatch>,
}

/// Conditions on a route of a waypoint.
pub struct WaypointRouteMatch {
    pub name: String,
}

/// Operation and value of a patch. `value` is a part of Envoy's configuration as JSON.
pub struct Patch {
    pub operation: PatchOperation,
    pub value: Option<serde_json::Value>,
    pub filter_class: FilterClass,
}
}

enumeration! {
/// Type of the patched element.
pub enum ApplyTo {
    #[default]
    Invalid,
    Listener,
    FilterChain,
    NetworkFilter,
    HttpFilter,
    RouteConfiguration,
    VirtualHost,
    HttpRoute,
    Cluster,
    ExtensionConfig,
    Bootstrap,
    ListenerFilter,
}

/// Type of proxy, and direction of the traffic, that a patch applies to.
pub enum PatchContext {
    #[default]
    Any,
    SidecarInbound,
    SidecarOutbound,
    Gateway,
    Waypoint,
}

/// The kind of change.
pub enum PatchOperation {
    #[default]
    Invalid,
    Merge,
    /// Merges, but replaces lists instead of extending them.
    MergeAndReplaceList,
    Add,
    Remove,
    InsertBefore,
    InsertAfter,
    InsertFirst,
    Replace,
}

/// Position of an added filter among Istio's own.
pub enum FilterClass {
    #[default]
    Unspecified,
    Authn,
    Authz,
    Stats,
}

/// Action of the matched route.
pub enum RouteAction {
    #[default]
    Any,
    Route,
    Redirect,
    DirectResponse,
}
}

impl ApplyTo {
    /// True if the patched element is part of an ordered list. Insertions into other elements add.
    #[must_use]
    pub fn has_order(self) -> bool {
        matches!(self, Self::NetworkFilter | Self::HttpFilter | Self::HttpRoute | Self::ListenerFilter)
    }
}

impl PatchOperation {
    /// True if the operation inserts at a position.
    #[must_use]
    pub fn is_insertion(self) -> bool {
        matches!(self, Self::InsertBefore | Self::InsertAfter | Self::InsertFirst)
    }
}
