//! A filter chain of a router's listener.

use pilotfish_model::Origin;
use pilotfish_proto::Duration;
use pilotfish_proto::envoy::config::core::v3::TransportSocket;
use pilotfish_proto::envoy::config::listener::v3::{Filter, FilterChain, FilterChainMatch};

/// A filter chain with its match conditions.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Chain {
    /// Matched server names; `*` among them for all.
    pub(super) server_names: Vec<String>,
    /// Matched application protocols; empty for all.
    pub(super) protocols: Vec<String>,
    /// TLS settings, if TLS is terminated.
    pub(super) tls: Option<TransportSocket>,
    pub(super) filters: Vec<Filter>,
    /// Objects that it comes from, besides the gateway.
    pub(super) provenance: Vec<Origin>,
}

/// Timeout of a TLS handshake.
const CONNECT_TIMEOUT_SECONDS: i64 = 15;

impl Chain {
    /// Returns true if the chain needs the TLS inspector.
    pub(super) fn needs_tls(&self) -> bool {
        !self.server_names.is_empty() || self.tls.is_some()
    }

    /// Converts the chain to its Envoy message.
    pub(super) fn build(self) -> FilterChain {
        let mut found = FilterChainMatch { application_protocols: self.protocols, ..Default::default() };
        // `*` matches every host, so it is no condition.
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
