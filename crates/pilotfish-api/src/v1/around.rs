//! What there is around a service, and how namespaces see each other.

use super::{ObjectName, ServiceRow};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A service and what there is around it: `/api/v1/service`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceDetail {
    /// The service.
    pub service: ServiceRow,
    /// Labels of its object.
    pub labels: BTreeMap<String, String>,
    /// Labels of the workloads that it selects.
    pub selector: BTreeMap<String, String>,
    /// Identities of its endpoints, at most 100.
    pub identities: Vec<String>,
    /// Its endpoints by locality.
    pub localities: Vec<LocalityRow>,
    /// The namespaces, at most 500, first those that have workloads or proxies: whether they see it.
    pub callers: Vec<Caller>,
    /// Routes for its host, and those that lead to it, at most 200.
    pub routes: Vec<RouteRow>,
    /// What clients of its own namespace use for it: DestinationRules.
    pub client_policies: Vec<ObjectName>,
    /// Policies on the workloads behind it, of at most 20 different sets of labels.
    pub workload_policies: Vec<ObjectName>,
    /// Other services of its host, and why they do not count for clients of its own namespace.
    pub others: Vec<super::Dropped>,
}

/// The endpoints of one locality.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalityRow {
    /// `region/zone/sub_zone`; empty where none is known.
    pub locality: String,
    /// How many endpoints there are.
    pub endpoints: usize,
    /// How many of them are healthy, or of a health that nobody checks.
    pub healthy: usize,
}

/// A namespace whose workloads may call a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Caller {
    /// The namespace.
    pub namespace: String,
    /// Workloads that are known in it.
    pub workloads: usize,
    /// Its connected proxies.
    pub proxies: usize,
    /// Whether a proxy of it sees the service, where no Sidecar selects it by labels.
    pub sees: bool,
    /// Why it does not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// The Sidecar that narrows what it sees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sidecar: Option<ObjectName>,
}

/// Routes of one object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteRow {
    /// The objects: a VirtualService with its delegates.
    pub made_by: Vec<ObjectName>,
    /// Whether they are for the service's own host; else they lead to it.
    pub own: bool,
    /// The hosts that they are for.
    pub hosts: Vec<String>,
    /// The gateways: `namespace/name`, or `mesh` for sidecars.
    pub gateways: Vec<String>,
    /// Where they lead.
    pub destinations: Vec<Destination>,
}

/// Where a route leads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Destination {
    /// The host.
    pub host: String,
    /// The namespace of its service; empty where no service has the host.
    pub namespace: String,
    /// The subset; empty for all.
    pub subset: String,
    /// Endpoints of the service, or of the subset alone.
    pub endpoints: usize,
    /// How many of them are healthy, or of a health that nobody checks.
    pub healthy: usize,
}

/// Namespaces and who sees whose services: `/api/v1/map`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceMap {
    /// The namespaces that have services, workloads or proxies.
    pub namespaces: Vec<NamespaceRow>,
    /// Who sees whose services, where it is not everybody's.
    pub links: Vec<NamespaceLink>,
    /// Whether it is cut short: at most 1,000 namespaces, scopes of 200 of them, 2,000 links.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// A namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceRow {
    /// Its name.
    pub name: String,
    /// Services.
    pub services: usize,
    /// Services all of whose endpoints are healthy.
    pub healthy: usize,
    /// Services some of whose endpoints are healthy.
    pub degraded: usize,
    /// Services none of whose endpoints is healthy.
    pub unhealthy: usize,
    /// Services without endpoints.
    pub empty: usize,
    /// Endpoints.
    pub endpoints: usize,
    /// Endpoints that are healthy, or of a health that nobody checks.
    #[serde(default)]
    pub healthy_endpoints: usize,
    /// Workloads.
    pub workloads: usize,
    /// Connected proxies.
    pub proxies: usize,
    /// Services of other namespaces that its proxies see, where a Sidecar narrows that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sees: Option<usize>,
    /// Whether they see all services that are shown to everybody.
    pub sees_all: bool,
    /// The Sidecar that narrows what they see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sidecar: Option<ObjectName>,
}

/// One namespace sees services of another, or its routes lead there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceLink {
    /// Whose proxies.
    pub from: String,
    /// Whose services.
    pub to: String,
    /// How many of them they see, because a Sidecar or `exportTo` names them.
    pub services: usize,
    /// To how many of them routes lead, of services of the first or of objects in it.
    #[serde(default, skip_serializing_if = "is_none")]
    pub routed: usize,
}

/// The routes around the services of a namespace: `/api/v1/map/NAMESPACE`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceMap {
    /// The namespace.
    pub namespace: String,
    /// Routes from its services and to them; at most 500.
    pub routes: Vec<ServiceRoute>,
    /// Whether there are more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// What is sent to one service or host goes to another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceRoute {
    /// Whose requests.
    pub from: RoutedService,
    /// Whether that is a service; else it is a host that only the route has.
    pub is_service: bool,
    /// Where they go.
    pub to: RoutedService,
    /// The subset there, if one is named.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subset: String,
    /// The service with the endpoints of that subset alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_subset: Option<RoutedService>,
    /// The gateways of the route, without `mesh`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<String>,
    /// The objects that made the route.
    pub made_by: Vec<super::ObjectName>,
}

/// A service of a route.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoutedService {
    /// Its host.
    pub host: String,
    /// Its namespace.
    pub namespace: String,
    /// Endpoints.
    pub endpoints: usize,
    /// Those that get requests.
    pub healthy: usize,
}

fn is_none(count: &usize) -> bool {
    *count == 0
}
