//! Connected proxies.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A connected proxy: `/api/v1/proxies`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Proxy {
    /// `web-0.shop`: name and namespace of its node, by which it is asked for.
    pub name: String,
    /// The connection's id, which no other connection of this process ever has.
    pub connection: String,
    /// `sidecar`, `router`, or what else its node says.
    pub kind: String,
    /// The cluster that its node names.
    pub cluster: String,
    /// The version of its client: `envoy 1.40.0`; empty where it says none.
    pub version: String,
    /// The address that it connects from.
    pub address: String,
    /// Its authenticated identities.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub identities: Vec<String>,
    /// When it connected, RFC 3339.
    pub connected_at: String,
    /// `delta` or `sotw`.
    pub protocol: String,
    /// The worst of its types.
    pub state: State,
    /// The newest revision that it acknowledged in all of its types.
    pub revision: u64,
    /// What it subscribes to, in the order in which it is sent.
    pub types: Vec<ProxyType>,
}

/// What a proxy subscribes to and was sent of one resource type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProxyType {
    /// `clusters`, `endpoints`, `listeners`, `routes`, `secrets`, `extensions`, `names`.
    pub name: String,
    /// Whether it has everything.
    pub state: State,
    /// Since when it is so: the time of the ACK, the response or the NACK, RFC 3339; empty before the first response.
    pub since: String,
    /// Seconds since then; only where something is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_seconds: Option<f64>,
    /// How many resources it has.
    pub resources: usize,
    /// How many names it subscribes to; `None` for everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subscribed: Option<usize>,
    /// The newest revision of which it acknowledged a response.
    pub revision: u64,
    /// The number of the view that the resources are of: proxies of one view get the same bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<u64>,
    /// How many other connected proxies have that view; only where one proxy is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_with: Option<usize>,
    /// What it refused, in its own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejection: Option<Rejection>,
}

/// A response that a proxy refused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rejection {
    /// When, RFC 3339.
    pub at: String,
    /// The proxy's reason in one line, without the refused message.
    pub reason: String,
    /// All that the proxy said.
    pub error: String,
    /// The resources that it names, or else those of the response; at most 100.
    pub resources: Vec<String>,
    /// The objects that made them, the most suspect first; at most 100. Lists name them of 20 proxies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub made_by: Vec<super::ObjectName>,
}

/// Whether a proxy has what it is to have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It has acknowledged the newest of everything.
    #[default]
    Synced,
    /// Something was sent, or is to be sent, and is not acknowledged yet.
    Pending,
    /// It refused something. What it had before stays in force.
    Rejected,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Synced => "synced",
            Self::Pending => "pending",
            Self::Rejected => "rejected",
        })
    }
}
