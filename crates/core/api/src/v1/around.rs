//! Neighbourhood of a service, and visibility between namespaces.

use super::{ObjectName, ServiceRow};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A service and its neighbourhood: `/api/v1/service`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceDetail {
    pub service: ServiceRow,
    /// Labels of its object.
    pub labels: BTreeMap<String, String>,
    /// Labels of the selected workloads.
    pub selector: BTreeMap<String, String>,
    /// Identities of its endpoints, at most 100.
    pub identities: Vec<String>,
    pub localities: Vec<LocalityRow>,
    /// Namespaces with the visibility of the service, at most 500, first those with workloads or proxies.
    pub callers: Vec<Caller>,
    /// Routes for its host, and routes that lead to it, at most 200.
    pub routes: Vec<RouteRow>,
    /// DestinationRules that clients of its own namespace use for it.
    pub client_policies: Vec<ObjectName>,
    /// Policies on the workloads behind it, for at most 20 different label sets.
    pub workload_policies: Vec<ObjectName>,
    /// Other services of its host, with the reasons why clients of its own namespace do not use them.
    pub others: Vec<super::Dropped>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalityRow {
    /// Locality as `region/zone/sub_zone`; empty if it is unknown.
    pub locality: String,
    pub endpoints: usize,
    /// Number of endpoints that are healthy or without a health check.
    pub healthy: usize,
}

/// A namespace whose workloads may call a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Caller {
    pub namespace: String,
    /// Number of known workloads in it.
    pub workloads: usize,
    /// Number of its connected proxies.
    pub proxies: usize,
    /// True if its proxies, unless a Sidecar selects them by labels, see the service.
    pub sees: bool,
    /// Reason why they do not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// Sidecar that restricts their visibility.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sidecar: Option<ObjectName>,
}

/// Routes of one object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteRow {
    /// Objects: a VirtualService with its delegates.
    pub made_by: Vec<ObjectName>,
    /// True for routes of the service's own host, false for routes that lead to it.
    pub own: bool,
    /// Hosts of the routes.
    pub hosts: Vec<String>,
    /// Gateways: `namespace/name`, or `mesh` for sidecars.
    pub gateways: Vec<String>,
    pub destinations: Vec<Destination>,
}

/// Destination of a route.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Destination {
    pub host: String,
    /// Namespace of its service; empty if no service has the host.
    pub namespace: String,
    /// Subset; empty for all endpoints.
    pub subset: String,
    /// Number of endpoints of the service, or of the subset.
    pub endpoints: usize,
    /// Number of endpoints that are healthy or without a health check.
    pub healthy: usize,
}

/// Namespaces, and the visibility of their services to each other: `/api/v1/map`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceMap {
    /// Namespaces with services, workloads or proxies.
    pub namespaces: Vec<NamespaceRow>,
    /// Visibility between namespaces, beyond services that are public to all.
    pub links: Vec<NamespaceLink>,
    /// True if it is incomplete: it has at most 1,000 namespaces, the scopes of 200, and 2,000 links.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// A namespace with numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceRow {
    pub name: String,
    pub services: usize,
    /// Number of services with healthy endpoints only.
    pub healthy: usize,
    /// Number of services with some healthy endpoints.
    pub degraded: usize,
    /// Number of services without healthy endpoints.
    pub unhealthy: usize,
    /// Number of services without endpoints.
    pub empty: usize,
    pub endpoints: usize,
    /// Number of endpoints that are healthy or without a health check.
    #[serde(default)]
    pub healthy_endpoints: usize,
    pub workloads: usize,
    /// Number of connected proxies.
    pub proxies: usize,
    /// Number of services of other namespaces that its proxies see, if a Sidecar restricts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sees: Option<usize>,
    /// True if they see all public services.
    pub sees_all: bool,
    /// Sidecar that restricts their visibility.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sidecar: Option<ObjectName>,
}

/// Visibility of a namespace's services to another, or routes between them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceLink {
    /// Namespace of the proxies.
    pub from: String,
    /// Namespace of the services.
    pub to: String,
    /// Number of services that they see because a Sidecar or `exportTo` names them.
    pub services: usize,
    /// Number of services that routes lead to, from services or objects of the first namespace.
    #[serde(default, skip_serializing_if = "is_none")]
    pub routed: usize,
}

/// Routes from and to services of a namespace: `/api/v1/map/NAMESPACE`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceMap {
    pub namespace: String,
    /// Routes from its services and to them, at most 500.
    pub routes: Vec<ServiceRoute>,
    /// True if there are more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// A route from one service or host to another service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceRoute {
    /// Service or host of the route.
    pub from: RoutedService,
    /// True for a service, false for a host that only the route has.
    pub is_service: bool,
    /// Destination of the route.
    pub to: RoutedService,
    /// Destination subset, if there is one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subset: String,
    /// Destination with the endpoints of the subset only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_subset: Option<RoutedService>,
    /// Gateways of the route, without `mesh`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<String>,
    /// Objects that define the route.
    pub made_by: Vec<super::ObjectName>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoutedService {
    pub host: String,
    pub namespace: String,
    pub endpoints: usize,
    /// Number of endpoints that receive requests.
    pub healthy: usize,
}

fn is_none(count: &usize) -> bool {
    *count == 0
}
