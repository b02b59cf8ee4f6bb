use serde::{Deserialize, Serialize};
use std::fmt;

/// A connected proxy: `/api/v1/proxies`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Proxy {
    /// Name and namespace of its node, such as `web-0.shop`, by which it is requested.
    pub name: String,
    /// Connection id, unique in this process.
    pub connection: String,
    /// Kind of its node: `sidecar`, `router` or another.
    pub kind: String,
    /// Cluster of its node.
    pub cluster: String,
    /// Client version, such as `envoy 1.40.0`; empty if it is unknown.
    pub version: String,
    pub address: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub identities: Vec<String>,
    /// Certificate of its workload, if it was made here or shown by the proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<ProxyCertificate>,
    /// Time of its connection, RFC 3339.
    pub connected_at: String,
    /// Variant of xDS: `delta` or `sotw`.
    pub protocol: String,
    /// The worst state of its types.
    pub state: State,
    /// Newest revision that it acknowledged in all of its types.
    pub revision: u64,
    /// Subscribed types, in the order in which they are sent.
    pub types: Vec<ProxyType>,
}

/// Certificate of a proxy's workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProxyCertificate {
    /// SPIFFE id, such as `spiffe://cluster.local/ns/shop/sa/web`.
    pub identity: String,
    /// End of its validity, RFC 3339.
    pub expires: String,
    /// How it is known: `sds` if it was sent to the proxy, `connection` if the proxy connected with it.
    pub source: String,
}

/// Subscription and responses of one resource type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProxyType {
    /// `clusters`, `endpoints`, `listeners`, `routes`, `secrets`, `extensions`, `names`.
    pub name: String,
    pub state: State,
    /// Time of the ACK, response or NACK that caused the state, RFC 3339; empty before the first response.
    pub since: String,
    /// Seconds since then, unless it is in sync.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_seconds: Option<f64>,
    /// Number of its resources.
    pub resources: usize,
    /// Number of subscribed names; `None` for the wildcard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subscribed: Option<usize>,
    /// Newest revision of an acknowledged response.
    pub revision: u64,
    /// Number of its view: proxies with equal views receive the same bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view: Option<u64>,
    /// Number of other connected proxies with that view, in the response for one proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_with: Option<usize>,
    /// Refused response, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejection: Option<Rejection>,
}

/// A response that a proxy refused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rejection {
    /// Time of the refusal, RFC 3339.
    pub at: String,
    /// The proxy's reason in one line, without the refused message.
    pub reason: String,
    /// Complete error message of the proxy.
    pub error: String,
    /// Resources that it names, or else those of the response; at most 100.
    pub resources: Vec<String>,
    /// Objects that they were made from, the likely cause first; at most 100. Lists have them for 20 proxies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub made_by: Vec<super::ObjectName>,
}

/// Sync state of a proxy or of one of its types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The newest resources are acknowledged.
    #[default]
    Synced,
    /// A change is not sent, or not acknowledged yet.
    Pending,
    /// The last response was refused. The previous resources stay in force.
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
