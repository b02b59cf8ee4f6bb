//! Why a request goes where it goes.

use serde::{Deserialize, Serialize};

/// The way of a request: `/api/v1/why`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Why {
    /// The proxy that sends the request.
    pub proxy: String,
    /// Whether it is connected; else the answer is for the sidecar that the workload of this name would have.
    #[serde(default = "connected")]
    pub connected: bool,
    /// The request in words.
    pub request: String,
    /// What becomes of it, in one line.
    pub outcome: String,
    /// Whether it reaches an endpoint that can take it.
    pub reaches: bool,
    /// The steps, from the listener on.
    pub steps: Vec<Step>,
    /// The endpoints that can take it, at most 100: `10.0.0.1:80 (Healthy, priority 0, weight 1)`.
    pub endpoints: Vec<String>,
    /// Endpoints of the host that are not sent to the proxy, with the reason; at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<Dropped>,
}

/// What servers that do not say it answer for.
const fn connected() -> bool {
    true
}

/// One step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// `service`, `listener`, `filter chain`, `virtual host`, `route`, `cluster`, `endpoints`, `other side`, `authorization`.
    pub step: String,
    /// How it went.
    pub verdict: Verdict,
    /// What was chosen; empty where nothing was.
    pub chosen: String,
    /// What that means, in one line; the reason where nothing was chosen.
    pub text: String,
    /// The objects that decided.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decided_by: Vec<super::ObjectName>,
    /// What else was considered, and why it was not taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Dropped>,
}

/// How a step went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The request goes on.
    #[default]
    Ok,
    /// It goes on, but not as somebody may expect.
    Doubtful,
    /// It ends here.
    Ends,
}

/// Something that was not taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Dropped {
    /// What.
    pub what: String,
    /// Why not.
    pub why: String,
}

/// What an address is an endpoint of: `/api/v1/why/endpoint`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WhyEndpoint {
    /// The address.
    pub address: String,
    /// The workloads that have it.
    pub workloads: Vec<String>,
    /// The services that it is in or was kept out of.
    pub services: Vec<WhyService>,
}

/// One service for an address.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WhyService {
    /// The host name.
    pub host: String,
    /// Its namespace.
    pub namespace: String,
    /// Whether it is an endpoint of it that traffic is sent to.
    pub serves: bool,
    /// By which rule it is, or is not.
    pub rule: String,
    /// What made it, or would have to.
    pub made_by: super::ObjectName,
}

/// Whom an object reaches: `/api/v1/why/object`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WhyObject {
    /// The object.
    pub object: super::ObjectName,
    /// Connected proxies.
    pub proxies: usize,
    /// How many of them have something that it made.
    pub reached: usize,
    /// Some of these, with what they have of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<Reached>,
    /// Why others, or all, have nothing of it; what is wrong with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<Dropped>,
}

/// What a proxy has of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reached {
    /// The proxy.
    pub proxy: String,
    /// Names of resources with their type: `routes 80`.
    pub resources: Vec<String>,
}
