//! A filter chain of an outbound listener, before chains are merged into listeners.

use crate::envoy::dubbo::{self, Call};
use crate::envoy::filters::{PLAINTEXT_HTTP, PLAINTEXT_HTTP10, RAW_BUFFER};
use crate::envoy::range;
use pilotfish_model::Origin;
use pilotfish_proto::Duration;
use pilotfish_proto::envoy::config::core::v3::{CidrRange, Metadata};
use pilotfish_proto::envoy::config::listener::v3::{Filter, FilterChain, FilterChainMatch};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Match conditions of a chain: HTTP only, server names, address ranges.
pub(super) type Conditions = (bool, BTreeSet<String>, BTreeSet<String>);

/// A filter chain with its match conditions.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Chain {
    /// True if the chain matches clear-text HTTP only.
    pub(super) http: bool,
    /// Matched addresses and ranges; empty for all.
    pub(super) ranges: Vec<String>,
    /// Matched server names; empty for all.
    pub(super) server_names: Vec<String>,
    pub(super) filters: Vec<Filter>,
    /// True if a filter looks up the SNI.
    pub(super) looks_up_sni: bool,
    /// Destinations of Dubbo calls by interface. If not empty, a Dubbo proxy follows the filters.
    pub(super) calls: Vec<Call>,
    /// The VirtualService that it comes from.
    pub(super) metadata: Option<Metadata>,
    /// Objects that it comes from, besides the service.
    pub(super) provenance: Vec<Origin>,
}

/// Timeout of a TLS handshake, and of the wait for the first bytes.
const CONNECT_TIMEOUT_SECONDS: i64 = 15;

impl Chain {
    /// Match conditions of the chain. Envoy rejects a listener with two chains that have the same ones.
    pub(super) fn conditions(&self) -> Conditions {
        let set = |list: &[String]| list.iter().cloned().collect();
        (self.http, set(&self.server_names), set(&self.ranges))
    }

    /// Returns true if the chain matches or looks up the SNI, which needs the TLS inspector.
    pub(super) fn needs_sni(&self) -> bool {
        !self.server_names.is_empty() || self.looks_up_sni
    }

    /// Converts the chain to its Envoy message. `unknown` is the cluster for Dubbo calls of unknown
    /// interfaces.
    pub(super) fn build(mut self, http10: bool, unknown: Option<&str>) -> FilterChain {
        if !self.calls.is_empty() {
            let calls = std::mem::take(&mut self.calls);
            self.filters.push(dubbo::proxy("outbound_dubbo", calls, unknown));
        }
        FilterChain {
            filter_chain_match: self.matches(http10),
            filters: self.filters,
            metadata: self.metadata,
            transport_socket_connect_timeout: Some(Duration { seconds: CONNECT_TIMEOUT_SECONDS, nanos: 0 }),
            ..Default::default()
        }
    }

    fn matches(&self, http10: bool) -> Option<FilterChainMatch> {
        let mut found = FilterChainMatch::default();
        // `*` matches every host, so it is no condition.
        if !self.server_names.iter().any(|name| name == "*") {
            found.server_names.clone_from(&self.server_names);
            found.server_names.sort();
            found.server_names.dedup();
        }
        let ranges: BTreeSet<&String> = self.ranges.iter().collect();
        found.prefix_ranges = ranges.into_iter().filter_map(|text| condition(text)).collect();
        if self.http {
            let alpn: &[&str] = if http10 { &PLAINTEXT_HTTP10 } else { &PLAINTEXT_HTTP };
            found.application_protocols = alpn.iter().map(|name| (*name).to_owned()).collect();
            RAW_BUFFER.clone_into(&mut found.transport_protocol);
        }
        (found != FilterChainMatch::default()).then_some(found)
    }
}

/// Returns an address or range as a condition; `None` if it covers everything (`0.0.0.0`, `::/0`) or is
/// invalid.
fn condition(text: &str) -> Option<CidrRange> {
    let covers_all = |range: &CidrRange| {
        let is_unspecified = range.address_prefix.parse().is_ok_and(|ip: IpAddr| ip.is_unspecified());
        is_unspecified && (range.prefix_len == Some(0) || !text.contains('/'))
    };
    range(text).filter(|range| !covers_all(range))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_that_covers_everything_is_no_condition() {
        for (text, want) in [
            ("10.0.0.0/8", 1),
            ("0.0.0.0", 0),
            ("0.0.0.0/0", 0),
            ("0.0.0.0/8", 1),
            ("::", 0),
            ("::/0", 0),
            ("::/32", 1),
        ] {
            let chain = Chain { ranges: vec![text.to_owned()], ..Chain::default() };
            let ranges = chain.matches(false).map_or(0, |matches| matches.prefix_ranges.len());
            assert_eq!(ranges, want, "{text}");
        }
    }

    #[test]
    fn a_name_for_every_host_is_no_condition() {
        let chain = Chain { server_names: vec!["a.com".into(), "*".into()], ..Chain::default() };
        assert_eq!(chain.matches(false), None);
    }
}
