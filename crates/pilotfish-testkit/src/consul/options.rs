//! How a stand-in is started, what it does wrong, and what clients did.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::Instant;

/// How a stand-in is started.
pub struct ConsulOptions {
    /// Where it listens.
    pub address: SocketAddr,
    /// The data centres that it answers for; the first one is the agent's own.
    pub datacenters: Vec<String>,
    /// The name of the agent's node.
    pub node: String,
    /// [config, `limits.http_max_conns_per_client`] Connections of one address.
    pub connections_per_client: usize,
    /// Tokens and what they may; `None`: ACLs are off.
    pub acl: Option<Acl>,
    /// TLS with a certificate; plain without.
    pub tls: Option<ConsulTls>,
    /// [agent/check, `DeregisterCriticalServiceAfter`] How often services with critical checks are reaped, and the least time that is allowed.
    pub reap_every: Duration,
    /// See `reap_every`.
    pub reap_minimum: Duration,
    /// [streaming] Blocking queries of `health/service` come from a local view, without two of the headers.
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

/// The certificate of a stand-in, in PEM.
#[derive(Clone)]
pub struct ConsulTls {
    /// The server's certificate and those that follow.
    pub chain: String,
    /// Its key.
    pub key: String,
    /// Clients must have a certificate of this authority.
    pub client_root: Option<String>,
    /// Whether HTTP/2 is offered, as Consul does.
    pub http2: bool,
}

/// [acl] Who may what; the default policy is `deny`.
#[derive(Clone, Debug, Default)]
pub struct Acl {
    /// The rights of each token. A token that is not here is unknown (403); requests without one are `anonymous`.
    pub tokens: BTreeMap<String, Rights>,
    /// The rights of requests without a token.
    pub anonymous: Rights,
    /// Consul 1.11 and later do not tell those without a token that something was left out, so as not to tell strangers that it exists.
    pub hide_from_anonymous: bool,
}

/// What a token may.
#[derive(Clone, Debug, Default)]
pub struct Rights {
    /// Everything.
    pub management: bool,
    /// `service_prefix "..." { policy = "read" }`.
    pub services: Vec<String>,
    /// `node_prefix "" { policy = "read" }`.
    pub nodes: bool,
}

impl Rights {
    /// Everything.
    #[must_use]
    pub fn management() -> Self {
        Self { management: true, ..Self::default() }
    }

    /// Reads all nodes, and the services whose names begin so.
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

/// What a server does wrong.
#[derive(Clone, Debug)]
pub enum ConsulFault {
    /// Answers this status and text.
    Status(u16, String),
    /// Sends half of the answer's JSON, as if it were whole.
    Truncated,
    /// Sends half of the answer and closes the connection.
    Cut,
    /// Sends what is no JSON.
    Garbled,
    /// Never answers.
    Hang,
    /// Answers so much later.
    Slow(Duration),
    /// Reports these indexes one after the other, and then its own again.
    Indexes(VecDeque<u64>),
    /// [consistency] Reports this as the milliseconds since a follower heard from the leader, where `stale` allows a follower to answer.
    LastContact(u64),
    /// Answers with an empty result, as a catalog that was lost.
    Empty,
}

/// What clients did since the counts were last taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsulCounts {
    /// Requests by the first three parts of their path, as `GET health/service`.
    pub requests: BTreeMap<String, u64>,
    /// Connections that are open now.
    pub connections: usize,
    /// The most that were open at once.
    pub most_connections: usize,
    /// Connections over the limit.
    pub refused: u64,
    /// Queries that wait for a change now.
    pub blocked: usize,
}

impl ConsulCounts {
    /// All requests.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.requests.values().sum()
    }
}

/// A request as a client made it, for tests that look at parameters.
#[derive(Clone, Debug)]
pub struct Asked {
    /// When.
    pub at: Instant,
    /// Path and query.
    pub uri: String,
    /// The token.
    pub token: Option<String>,
}
