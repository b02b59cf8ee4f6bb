//! Options, faults and request records of a simulated agent.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::Instant;

/// Options of a simulated agent.
pub struct ConsulOptions {
    pub address: SocketAddr,
    /// Served data centres; the first one is the agent's own.
    pub datacenters: Vec<String>,
    /// Name of the agent's node.
    pub node: String,
    /// [config, `limits.http_max_conns_per_client`] Maximum number of connections of one address.
    pub connections_per_client: usize,
    /// Tokens with their rights; `None` if ACLs are off.
    pub acl: Option<Acl>,
    /// TLS with a certificate; `None` for plaintext.
    pub tls: Option<ConsulTls>,
    /// [agent/check, `DeregisterCriticalServiceAfter`] Interval at which services with critical checks are
    /// reaped.
    pub reap_every: Duration,
    /// Minimum accepted value of `DeregisterCriticalServiceAfter`.
    pub reap_minimum: Duration,
    /// [streaming] True if blocking queries of `health/service` are served from a local view, without two of
    /// the headers.
    pub streaming: bool,
}

impl Default for ConsulOptions {
    fn default() -> Self {
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            datacenters: vec!["dc1".to_owned()],
            node: "agent-1".to_owned(),
            connections_per_client: 200,
            acl: None,
            tls: None,
            reap_every: Duration::from_secs(30),
            reap_minimum: Duration::from_secs(60),
            streaming: false,
        }
    }
}

/// Certificate of a simulated agent, in PEM.
#[derive(Clone)]
pub struct ConsulTls {
    /// Certificate chain of the server.
    pub chain: String,
    pub key: String,
    /// Authority of client certificates; `None` if they are not required.
    pub client_root: Option<String>,
    /// True if HTTP/2 is offered, as by Consul.
    pub http2: bool,
}

/// [acl] Rights of tokens; the default policy is `deny`.
#[derive(Clone, Debug, Default)]
pub struct Acl {
    /// Rights of each token. Unknown tokens are refused (403); requests without one have the rights of
    /// `anonymous`.
    pub tokens: BTreeMap<String, Rights>,
    /// Rights of requests without a token.
    pub anonymous: Rights,
    /// True to hide omissions from requests without a token, as in Consul 1.11 and later, so that strangers
    /// do not detect that data exists.
    pub hide_from_anonymous: bool,
}

/// Rights of a token.
#[derive(Clone, Debug, Default)]
pub struct Rights {
    /// All rights.
    pub management: bool,
    /// Prefixes of readable services: `service_prefix "..." { policy = "read" }`.
    pub services: Vec<String>,
    /// True if nodes are readable: `node_prefix "" { policy = "read" }`.
    pub nodes: bool,
}

impl Rights {
    #[must_use]
    pub fn management() -> Self {
        Self { management: true, ..Self::default() }
    }

    /// Read access to all nodes, and to services with these name prefixes.
    #[must_use]
    pub fn reader(services: &[&str]) -> Self {
        Self {
            management: false,
            services: services.iter().map(|&name| name.to_owned()).collect(),
            nodes: true,
        }
    }

    pub(super) fn reads_service(&self, name: &str) -> bool {
        self.management || self.services.iter().any(|prefix| name.starts_with(prefix.as_str()))
    }

    pub(super) fn reads_nodes(&self) -> bool {
        self.management || self.nodes
    }
}

/// Faulty behaviour of a server.
#[derive(Clone, Debug)]
pub enum ConsulFault {
    /// Responds with this status and text.
    Status(u16, String),
    /// Sends half of the response's JSON, as if it were complete.
    Truncated,
    /// Sends half of the response and closes the connection.
    Cut,
    /// Sends invalid JSON.
    Garbled,
    Hang,
    /// Delays responses.
    Slow(Duration),
    /// Reports these indexes one after the other, and then its own again.
    Indexes(VecDeque<u64>),
    /// [consistency] Reports this number of milliseconds since a follower's last contact to the leader, if
    /// `stale` allows a follower to respond.
    LastContact(u64),
    /// Responds with an empty result, as if the catalog was lost.
    Empty,
}

/// Counters of client activity since they were last read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsulCounts {
    /// Requests by the first three segments of their path, such as `GET health/service`.
    pub requests: BTreeMap<String, u64>,
    /// Number of open connections.
    pub connections: usize,
    /// Maximum number of concurrent connections.
    pub most_connections: usize,
    /// Number of connections over the limit.
    pub refused: u64,
    /// Number of blocked queries.
    pub blocked: usize,
}

impl ConsulCounts {
    #[must_use]
    pub fn total(&self) -> u64 {
        self.requests.values().sum()
    }
}

/// A recorded request, for tests of its parameters.
#[derive(Clone, Debug)]
pub struct Asked {
    pub at: Instant,
    pub uri: String,
    pub token: Option<String>,
}
