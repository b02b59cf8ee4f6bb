//! A filter chain of a router's listener.

use pilotfish_model::Origin;
use pilotfish_proto::Duration;
use pilotfish_proto::envoy::config::core::v3::TransportSocket;
use pilotfish_proto::envoy::config::listener::v3::{Filter, FilterChain, FilterChainMatch};

/// A filter chain, and what it takes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Chain {
    /// The server names that it is for; `*` among them for all.
    pub(super) server_names: Vec<String>,
    /// The application protocols that it is for; empty for all.
    pub(super) protocols: Vec<String>,
    /// How it ends TLS.
    pub(super) tls: Option<TransportSocket>,
    pub(super) filters: Vec<Filter>,
    /// What made it, besides the gateway.
    pub(super) provenance: Vec<Origin>,
}

/// How long a TLS handshake may take.
const CONNECT_TIMEOUT_SECONDS: i64 = 15;

impl Chain {
    /// Whether the TLS inspector is needed.
    pub(super) fn needs_tls(&self) -> bool {
        !self.server_names.is_empty() || self.tls.is_some()
    }

    /// The chain as Envoy has it.
    pub(super) fn build(self) -> FilterChain {
        let mut found = FilterChainMatch { application_protocols: self.protocols, ..Default::default() };
        // A name that stands for every host is no condition.
        if !self.server_names.iter().any(|name| name == "*") {
            found.server_names = self.server_names;
            found.server_names.sort();
        }
        FilterChain {
            filter_chain_match: (found != FilterChainMatch::default()).then_some(found),
            filters: self.filters,
            transport_socket: self.tls,
            transport_socket_connect_timeout: Some(Duration { seconds: CONNECT_TIMEOUT_SECONDS, nanos: 0 }),
            ..Default::default()
        }
    }
}
