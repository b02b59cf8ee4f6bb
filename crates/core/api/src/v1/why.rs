//! Path of a request.

use serde::{Deserialize, Serialize};

/// Path of a request: `/api/v1/why`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Why {
    /// Proxy that sends the request.
    pub proxy: String,
    /// True if it is connected; otherwise the path is that of the proxy that the workload of this name would
    /// have.
    #[serde(default = "connected")]
    pub connected: bool,
    /// Readable form of the request.
    pub request: String,
    /// Outcome in one line.
    pub outcome: String,
    /// True if it reaches an endpoint that can take it.
    pub reaches: bool,
    /// Steps, starting with the service.
    pub steps: Vec<Step>,
    /// Endpoints that can take it, at most 100: `10.0.0.1:80 (Healthy, priority 0, weight 1)`.
    pub endpoints: Vec<String>,
    /// Endpoints of the host that are not sent to the proxy, with the reason; at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<Dropped>,
}

/// Default for servers without the field.
const fn connected() -> bool {
    true
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Step name: `service`, `listener`, `filter chain`, `virtual host`, `route`, `cluster`, `endpoints`,
    /// `other side`, `authorization`.
    pub step: String,
    pub verdict: Verdict,
    /// Chosen item; empty if there is none.
    pub chosen: String,
    /// Meaning in one line; the reason if nothing was chosen.
    pub text: String,
    /// Objects that determined the choice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decided_by: Vec<super::ObjectName>,
    /// Other candidates, with the reasons why they were not chosen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Dropped>,
}

/// Result of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    #[default]
    Ok,
    /// The request continues, but possibly not as expected.
    Doubtful,
    /// The request ends here.
    Ends,
}

/// A candidate that was not chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Dropped {
    pub what: String,
    pub why: String,
}

/// Services of an address: `/api/v1/why/endpoint`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WhyEndpoint {
    pub address: String,
    /// Workloads with the address.
    pub workloads: Vec<String>,
    /// Services that it is in, or was kept out of.
    pub services: Vec<WhyService>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WhyService {
    pub host: String,
    pub namespace: String,
    /// True if it is an endpoint of the service that receives traffic.
    pub serves: bool,
    /// Rule that makes it one, or that keeps it out.
    pub rule: String,
    /// Object that makes it one, or would have to.
    pub made_by: super::ObjectName,
}

/// Proxies that an object reaches: `/api/v1/why/object`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WhyObject {
    pub object: super::ObjectName,
    /// Number of connected proxies.
    pub proxies: usize,
    /// Number of proxies with resources made from it.
    pub reached: usize,
    /// Some of these proxies, with the resources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<Reached>,
    /// Reasons why other proxies have nothing from it, and its problems.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<Dropped>,
}

/// Resources of a proxy that are made from an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reached {
    pub proxy: String,
    /// Names of resources with their type, such as `routes 80`.
    pub resources: Vec<String>,
}
